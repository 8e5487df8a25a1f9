"""Consumers that fall behind: how far the end of a partition is from what they fetch, and from what they
commit. `kwsniff.analysis.positions` calculates how far.

A group's distance is that of its last commit; that of a consumer outside of groups, or whose commits are not
shown, is that of its last Fetch. A group that commits every few seconds is always behind by what came since.
So whether it falls behind is judged by its distance when it committed first and when it committed last, with
an end of the partition that moved evenly from its first reading to its last.
"""

from __future__ import annotations

import math
import shlex
from typing import Any, NamedTuple

from kwsniff.analysis.finding import WARNING, Finding, command
from kwsniff.analysis.positions import COMMITS, NEEDED, Ends, Logs, Place, Positions, Reading, renamed
from kwsniff.analysis.rule import Context, Rule
from kwsniff.count.eventrows import EventBatch
from kwsniff.count.tally import Key, Packet, Tally
from kwsniff.output.units import client, duration, many, name

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
