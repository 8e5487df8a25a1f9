"""How far consumers are behind, as the wire shows it, and when that is worth a word."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pyarrow as pa

from kwsniff.analysis.positions import COMMITS, NEEDED, Ends, Logs, Place, Positions, Reading, renamed
from kwsniff.analysis.positions import Lag as Committed
from kwsniff.analysis.rule import WARNING, Context, Finding, Rule, command
from kwsniff.analysis.tabular import Row
from kwsniff.count.eventrows import EventBatch
from kwsniff.count.keyed import Key
from kwsniff.count.tally import Packet, Tally
from kwsniff.output.units import client, duration, many, name

FETCH, OFFSET_FETCH = 1, 9
KEPT = 500_000
"""Partitions of consumers and groups, each, that are followed."""
Who = tuple[str | None, str | None]


class Lag:
    """Positions of consumers and commits of groups."""

    def __init__(self) -> None:
        self._positions = Positions(KEPT)
        self._moved: dict[tuple[Who, str | None, int], tuple[int, datetime]] = {}
        """The offset that a consumer asks for, and since when."""
        self._asked: dict[Who, datetime] = {}
        """When a consumer asked last."""
        self._told: dict[tuple[str | None, str, int], int] = {}
        """Offsets that groups were told to have committed."""
        self._commits: dict[tuple[str | None, str | None, int], int] = {}

    def take(self, calls: pa.RecordBatch) -> None:
        """Take calls of EVENTS."""
        self._positions.take(EventBatch(calls))

    def take_call(self, row: Row) -> None:
        """Take one of them, too, if it was answered."""
        parts = row["partitions"] or ()
        if row["api_key"] == FETCH:
            who = (row["client_ip"], row["client_id"])
            self._asked[who] = row["time"]
            for part in (*parts, *(row["asked"] or ())):
                offset, key = (
                    part["fetch_offset"],
                    (who, part["topic"] or part["topic_id"], part["partition"]),
                )
                known = self._moved.get(key)
                room = known is not None or len(self._moved) < KEPT
                if offset is not None and room and (known is None or known[0] != offset):
                    self._moved[key] = offset, row["time"]
        elif row["api_key"] in COMMITS:
            for part in parts:
                if not part["error_code"] and (part["committed_offset"] or 0) >= 0:
                    place = (row["group_id"], part["topic"] or part["topic_id"], part["partition"])
                    self._commits[place] = self._commits.get(place, 0) + 1

    def told(self, row: Row, response: Row) -> None:
        """Take the body of an answered OffsetFetch."""
        for group in response.get("groups") or [{**response, "group_id": row["group_id"]}]:
            for topic, part in _parts(group.get("topics"), names_of(row)):
                if part.get("committed_offset", -1) >= 0:
                    key = (group["group_id"], topic, part["partition_index"])
                    self._told.setdefault(key, part["committed_offset"])

    def rows(self, groups: Mapping[Who, set[str]], names: Mapping[str, str]) -> Iterator[Row]:
        """A row for each partition that a consumer fetches or a group commits. `groups` are those of each
        client, `names` topics by uuid."""

        def name(topic: Any) -> str:
            return str(names.get(topic, topic))

        logs, lags = self._positions.logs(name), list(self._positions.lags(name))
        commits: dict[Any, Committed] = {
            (row.group, row.topic, row.partition): row for row in lags if row.group is not None
        }
        counts: Counter[Any] = Counter()
        for (group, topic, part), count in self._commits.items():
            counts[group, name(topic), part] += count
        standing: dict[Any, datetime] = {}
        for (who, topic, part), (_, since) in self._moved.items():
            place = (who, name(topic), part)
            standing[place] = max(since, standing.get(place, since))
        told: dict[Any, int] = {
            (group, name(topic), part): at for (group, topic, part), at in self._told.items()
        }
        seen: set[tuple[Any, ...]] = set()
        fetches = sorted((row for row in lags if row.group is None), key=_order)
        for row in fetches:
            who = (row.address, row.client)
            for group in sorted(groups.get(who, ())) or (None,):
                key = (group, row.topic, row.partition)
                seen.add(key)
                began, asked = standing.get((who, *key[1:])), self._asked.get(who)
                still = (asked - began) / timedelta(microseconds=1) if row.lag and began and asked else None
                shown = _row(key, logs, commits.get(key), counts[key], told.get(key))
                yield shown | {
                    "client": row.client, "address": row.address, "position": row.offset, "lag": row.lag,
                    "stands_still_us": still,
                }  # fmt: skip
        for key, row in sorted(commits.items(), key=str):
            if key not in seen:
                yield _row(key, logs, row, counts[key], None)


def _row(
    key: tuple[Any, ...], logs: Logs, commits: Committed | None, count: int, told: int | None
) -> dict[str, Any]:
    """The row of a partition for a group, as if nobody fetched it."""
    group, topic, partition = key
    place: Place = (topic, partition)
    last = None
    if commits is not None:
        last = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=commits.time)
    return {
        "group": group, "topic": topic, "partition": partition, "client": None, "address": None,
        "high_watermark": logs.end(place), "position": None, "lag": None,
        "committed": told if commits is None else commits.offset,
        "commit_lag": logs.lag(place, told) if commits is None else commits.lag, "commits": count,
        "last_commit": last, "stands_still_us": None,
    }  # fmt: skip


def _order(row: Committed) -> Any:
    return row.topic, row.partition, str((row.address, row.client))


def names_of(row: Row) -> dict[str, str]:
    """Topics of a call by uuid."""
    pairs = zip(row["topic_ids"] or (), row["topics"] or (), strict=False)
    parts = ((part["topic_id"], part["topic"]) for part in row["partitions"] or ())
    return {uuid: name for uuid, name in (*pairs, *parts) if uuid and name}


def _parts(topics: Any, names: dict[str, str]) -> Iterator[tuple[str, Row]]:
    for topic in topics or ():
        uuid = topic.get("topic_id")
        name = topic.get("topic") or topic.get("name") or names.get(uuid, uuid)
        for part in topic.get("partitions") or ():
            yield str(name), part


HEARTBEATS = (12, 68, 76, 88)


class Behind(NamedTuple):
    """How far somebody is behind in one partition."""

    place: str
    lag: float
    numbers: dict[str, float]
    shown: tuple[Packet, Packet]
    words: str


class FallsBehind(Rule):
    """A group commits more slowly than records come to a partition, or a consumer is further behind the end
    of one at its last Fetch than at its first, and by a good deal. Give the group more members (there may be
    as many as partitions), make their work quicker, or fetch more at once. A member that stands still has a
    rule of its own."""

    code = "consumer_falls_behind"
    about = "lag"
    several = "{count} consumers lag, by up to {max_lag_last:record} in a partition, and the lag grows."
    needs = NEEDED
    missing = "no ends of partitions with positions in them"

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.positions = Positions()
        self.members = Tally()
        """Heartbeats and commits by client id, address and group."""

    def take(self, batch: EventBatch) -> None:
        calls = batch.calls
        member = calls.is_in("api_key", (*HEARTBEATS, *COMMITS))
        self.members.add(calls, member, [calls.client, calls.coded("group_id")])
        self.looked += self.positions.take(batch)

    def findings(self, context: Context) -> list[Finding]:
        found = []
        logs = self.positions.logs(context.topic)
        groups = self._groups(context, logs)
        for group, rows in groups.items():
            only = f"--group {shlex.quote(name(group))}"
            found.append(self._finding(f"Group {name(group)}", name(group), only, rows, context))
        told = {key[:2] for key in self.members.entries if key[2] in groups}
        for who, rows in self._consumers(context, logs).items():
            if who not in told:
                found.append(self._finding(client(*who), client(*who), "", rows, context))
        return found

    def _groups(self, context: Context, logs: Logs) -> dict[Any, list[Behind]]:
        behind: dict[Any, list[Behind]] = {}
        for (group, *named), commits in renamed(self.positions.commits.of, context.topic).items():
            place = (named[0], named[1])
            row = self._by_commits(commits, place, logs) if place in logs.ends else None
            if row is not None:
                behind.setdefault(group, []).append(row)
        return behind

    def _by_commits(self, commits: Ends, place: Place, logs: Logs) -> Behind | None:
        ends = logs.ends[place]
        done = max(commits[1].offset - commits[0].offset, 0.0)
        came = max(ends[1].offset - ends[0].offset, 0.0)
        lag = logs.lag(place, commits[1].offset) or 0
        before, after = (max(_end_at(ends, each.packet.time) - each.offset, 0.0) for each in commits)
        if not self._grows(before, min(after, lag)):
            return None
        seconds = (commits[1].packet.time - commits[0].packet.time) / 1e6
        numbers = {"lag_last": lag, "committed": done, "came": came, "span_s": seconds}
        where = f"{place[0]}[{place[1]}]"
        words = f"{int(done):,} of {many(came, 'new record')} committed in {duration(seconds)}"
        return Behind(where, lag, numbers, (commits[0].packet, commits[1].packet), words)

    def _consumers(self, context: Context, logs: Logs) -> dict[Key, list[Behind]]:
        behind: dict[Key, list[Behind]] = {}
        fetches = renamed(self.positions.fetches.of, context.topic)
        for (client_id, ip, topic, partition), readings in fetches.items():
            place = (topic, partition)
            if place not in logs.ends:
                continue
            lag = logs.lag(place, readings[1].offset) or 0
            before, after = (_lag_then(each, logs.ends[place]) for each in readings)
            if self._grows(before, min(after, lag)):
                where = f"{place[0]}[{place[1]}]"
                seconds = (readings[1].packet.time - readings[0].packet.time) / 1e6
                numbers = {"lag_first": before, "lag_last": lag, "span_s": seconds}
                words = f"{int(before):,} records {duration(seconds)} before"
                row = Behind(where, lag, numbers, (readings[0].packet, readings[1].packet), words)
                behind.setdefault((client_id, ip), []).append(row)
        return behind

    def _grows(self, before: float, after: float) -> bool:
        limits = self.thresholds
        return after >= limits.lag_records and after >= limits.lag_growth * max(before, 1.0)

    def _finding(self, subject: str, who: str, only: str, rows: list[Behind], context: Context) -> Finding:
        worst = max(rows, key=lambda row: (row.lag, row.place))
        more = f", {len(rows):,} partitions" if len(rows) > 1 else ""
        brief = f"{name(worst.place)} {many(worst.lag, 'record')}{more}, growing ({worst.words})"
        return Finding(
            self.code, WARNING, who, f"{subject} lags: {brief}.", {**worst.numbers, "partitions": len(rows)},
            worst.shown, command("groups", "", f"--table lag {only}".rstrip()), worst.lag,
            share=context.of_clients(), brief=brief,
        )  # fmt: skip


def _lag_then(reading: Reading, ends: Ends) -> float:
    """How far a consumer was behind when it asked: by what it was answered, if that names the end."""
    end = _end_at(ends, reading.packet.time) if math.isnan(reading.end) else reading.end
    return max(end - reading.offset, 0.0)


def _end_at(ends: Ends, time: int) -> float:
    """Where the end of a partition was at some time, if it moved evenly."""
    first, last = ends
    span = last.packet.time - first.packet.time
    part = (time - first.packet.time) / span if span > 0 else 1.0
    return first.offset + min(max(part, 0.0), 1.0) * (last.offset - first.offset)
