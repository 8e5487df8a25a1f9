"""How far consumers and groups are behind: one calculation, from columns, for whoever tells it; the rows of
`kwsniff groups`, and when it is worth a word.

The *end* of a partition is what was told of it last (by the time of the response): its high watermark in any
Fetch response, or one beyond the last record that a Produce response says was written. Its *start* is the
log start offset told last. A consumer's *position* is the offset it asked for last, a group's is what it
committed last. Then

    lag = max(end - max(position, start), 0)

Records that retention or DeleteRecords took away are no lag.

First and last readings are kept by key, in NumPy arrays with a row for each. They are ordered by time, and
where that is the same by what differs: offset, end, packet. So in whatever order batches and parts of an
input are taken, the same ones stay.
"""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from itertools import compress
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from kwsniff.analysis.rule import Context, Finding, Rule, command, documented
from kwsniff.analysis.tabular import Row, columns, names_of
from kwsniff.count.codes import Keys
from kwsniff.count.eventrows import UNKNOWN, EventBatch, Partitions
from kwsniff.count.keyed import FIRST, LAST, NEVER, Columns, Key, Keyed
from kwsniff.count.tally import Packet, Tally, grouped
from kwsniff.output.units import client, duration, many, name
from kwsniff.rows.columns import Floats, Ints, Mask
from kwsniff.rows.schema import TIMESTAMP

PRODUCE, FETCH, OFFSET_FETCH, COMMITS = 0, 1, 9, (8, 28)
APIS = (PRODUCE, FETCH, *COMMITS)
NEEDED = columns("partitions asked group_id response_time time api_key")
Place = tuple[str | None, int]
"""Topic and partition."""
LIMIT = 5_000
"""Partitions of consumers, of groups, and ends of partitions that are followed, each."""


class Reading(NamedTuple):
    """An offset of a partition at some time, and its end then."""

    packet: Packet
    offset: float
    end: float


def when(reading: Reading) -> tuple[int, float, float, int]:
    """By what readings are ordered."""
    return reading.packet.time, reading.offset, reading.end, reading.packet.number


Ends = tuple[Reading, Reading]
"""The first and the last reading."""


_READING = np.dtype(
    [("time", "i8"), ("offset", "f8"), ("end", "f8"), ("number", "i8"), ("capture", np.object_)]
)
"""Compared in this order."""
_FIRST = FIRST._replace(kind=_READING, nothing=np.array((NEVER, 0, 0, 0, None), _READING))
_LAST = LAST._replace(kind=_READING, nothing=np.array((-NEVER, 0, 0, 0, None), _READING))


class Readings:
    """The first and the last reading by key."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._table = Keyed({"first": _FIRST, "last": _LAST})

    @property
    def of(self) -> dict[Key, Ends]:
        """By key."""
        first, last = (
            [
                Reading(Packet(time, capture, number), offset, end)
                for time, offset, end, number, capture in each
            ]
            for each in (column.tolist() for column in self._table.columns().values())
        )
        return dict(zip(self._table.rows, zip(first, last, strict=True), strict=True))

    def add(
        self,
        batch: EventBatch,
        which: Mask,
        keys: Keys,
        offset: Floats,
        end: Floats,
        *,
        parts: Partitions | None = None,
        when: str = "time",
    ) -> int:
        """Take partitions (a mask over them) with the columns of their keys beside those of topic and
        partition; returns how many. `parts`: others than those of `batch.partitions`. `when`: the column of
        calls that says when it was so."""
        calls = batch.calls
        parts = batch.partitions if parts is None else parts
        rows = np.flatnonzero(which)
        if not len(rows):
            return 0
        of = parts.row[rows]
        picked = [*(key.at(of) for key in keys), parts.place.at(rows)]
        group, some = grouped(picked)
        columns = [each for key in picked for each in key.named(key.codes[some].tolist())]
        capture = calls.coded("capture")
        names = np.array([*capture.values, None], object)
        time = calls.ints(when, UNKNOWN)[of]
        ends = []
        for places in _ends(group, len(some), (time, offset[rows], end[rows], calls.packet[of])):
            call, row, found = of[places], rows[places], np.empty(len(places), _READING)
            found["time"], found["offset"], found["end"] = time[places], offset[row], end[row]
            found["number"], found["capture"] = calls.packet[call], names[capture.codes[call]]
            ends.append(found)
        self._put(list(zip(*columns, strict=True)), {"first": ends[0], "last": ends[1]})
        return len(rows)

    def merge(self, other: Readings) -> None:
        """Take those of another one."""
        self._put(list(other._table.rows), other._table.columns())

    def _put(self, keys: list[Key], ends: Columns) -> None:
        """Add the first and the last readings of keys, as far as there is room."""
        new = np.array([key not in self._table.rows for key in keys], np.bool_)
        taken = ~new
        taken[np.flatnonzero(new)[: max(self._limit - len(self._table), 0)]] = True
        rows = self._table.numbers(compress(keys, taken))
        self._table.add(rows, {name: column[taken] for name, column in ends.items()})


def _ends(group: Ints, size: int, by: tuple[Any, ...]) -> list[Ints]:
    """The places of the first and of the last of each group, by time and what else orders them. Rows come as
    calls were completed, which is not the order of their times."""
    time = by[0]
    least, greatest = np.full(size, np.iinfo(np.int64).max), np.full(size, np.iinfo(np.int64).min)
    np.minimum.at(least, group, time)
    np.maximum.at(greatest, group, time)
    ends = []
    for extreme, step in ((least, -1), (greatest, 1)):
        some = np.flatnonzero(time == extreme[group])  # most groups have only one
        if len(some) > size:
            some = some[np.lexsort([each[some] for each in reversed(by)])]
        found = np.zeros(size, np.int64)
        found[group[some[::step]]] = some[::step]  # of several that are put into one place the last stays
        ends.append(found)
    return ends


class Positions:
    """What is known of partitions, consumers and groups; merges, and is bounded by `limit` keys of each."""

    def __init__(self, limit: int = LIMIT) -> None:
        self.fetches = Readings(limit)
        """By client id, address and place; `end` is that of the same response, if it names one."""
        self.commits = Readings(limit)
        """By group and place."""
        self._ends, self._starts = Readings(limit), Readings(limit)

    def take(self, batch: EventBatch) -> int:
        """Take a batch; returns how many positions it had."""
        calls = batch.calls
        if not calls.is_in("api_key", APIS).any():
            return 0
        parts, asked = batch.partitions, batch.asked
        produced, fetched, committed = (
            calls.is_in("api_key", keys)[parts.row] for keys in ((PRODUCE,), (FETCH,), COMMITS)
        )
        end, fine = parts.floats("high_watermark"), parts.ints("error_code", UNKNOWN) == 0
        base = parts.floats("base_offset")
        written = base + parts.floats("records")
        start, commit = parts.floats("log_start_offset"), parts.floats("committed_offset")
        with np.errstate(invalid="ignore"):
            sure = produced & fine & (base >= 0) & (written > 0)
            newest = np.where(sure, written, end)
            told = sure | (fetched & (end >= 0))
            self._ends.add(batch, told, [], newest, newest, when="response_time")
            self._starts.add(batch, start > 0, [], start, start, when="response_time")
            looked = 0
            for some, own in ((parts, end), (asked, None)):
                offset = some.floats("fetch_offset")
                ends = np.full(len(some), np.nan) if own is None else np.where(own >= 0, own, np.nan)
                looked += self.fetches.add(batch, offset >= 0, [calls.client], offset, ends, parts=some)
            group = [calls.coded("group_id")]
            looked += self.commits.add(batch, committed & fine & (commit >= 0), group, commit, commit)
        return looked

    def merge(self, other: Positions) -> None:
        """Take what another one took."""
        for each, readings in vars(self).items():
            readings.merge(getattr(other, each))

    def lags(self, name: Callable[[Any], Any]) -> Iterator[Behind]:
        """How far each group and each consumer was behind in each partition at last; `name` gives a topic's
        name for its name or uuid."""
        logs = self.logs(name)
        for (group, topic, partition), ends in renamed(self.commits.of, name).items():
            if group is not None:
                yield logs.behind((group, None, None), (topic, partition), ends[1])
        for (client_id, ip, topic, partition), ends in renamed(self.fetches.of, name).items():
            yield logs.behind((None, client_id, ip), (topic, partition), ends[1])

    def table(self, name: Callable[[Any], Any]) -> pa.Table:
        """The same as rows of LAG, the furthest behind first."""
        rows = sorted(self.lags(name), key=lambda row: (-(row.lag or 0), str(row[:5])))
        columns = zip(*rows, strict=True) if rows else [[]] * len(LAG)
        return pa.table(
            [pa.array(values, field.type) for values, field in zip(columns, LAG, strict=True)], LAG
        )

    def logs(self, name: Callable[[Any], Any]) -> Logs:
        """What was told of each partition."""
        return Logs(*(renamed(each.of, name) for each in (self._ends, self._starts)))


class Behind(NamedTuple):
    """How far a group or a consumer is behind in a partition; see LAG."""

    group: str | None
    client: str | None
    address: str | None
    topic: str | None
    partition: int
    end: int | None
    offset: int
    lag: int | None
    time: int


LAG = pa.schema(
    [
        documented("group_id", pa.string(), "group that commits; null in the row of a consumer that fetches"),
        documented("client_id", pa.string(), "consumer that fetches; null in the row of a group"),
        documented("client_ip", pa.string(), "its address"),
        documented("topic", pa.string(), "topic"),
        documented("partition", pa.int32(), "partition"),
        documented("high_watermark", pa.int64(), "end of the partition, as anybody was told last"),
        documented(
            "offset", pa.int64(), "offset that the group committed last, or the consumer asked for last"
        ),
        documented(
            "lag", pa.int64(), "records from that offset to the end, but for those that retention took"
        ),
        documented("time", TIMESTAMP, "when it committed, or asked, last"),
    ]
)
"""A row for each partition that a group commits, and for each that a consumer fetches."""


class Logs:
    """Ends and starts of partitions."""

    def __init__(self, ends: dict[Place, Ends], starts: dict[Place, Ends]) -> None:
        self.ends, self._starts = ends, starts

    def end(self, place: Place) -> int | None:
        """Where a partition ends, None if nobody was told."""
        return int(self.ends[place][1].offset) if place in self.ends else None

    def behind(self, who: tuple[Any, Any, Any], place: Place, last: Reading) -> Behind:
        """How far somebody is behind whose last reading is given."""
        offset = int(last.offset)
        return Behind(*who, *place, self.end(place), offset, self.lag(place, offset), last.packet.time)

    def lag(self, place: Place, position: float | None) -> int | None:
        """How many records are between a position and the end, None if either is not known."""
        end = self.end(place)
        if end is None or position is None or position < 0:
            return None
        start = self._starts[place][1].offset if place in self._starts else 0.0
        return max(int(end - max(position, start)), 0)


def renamed(readings: Mapping[tuple[Any, ...], Ends], name: Callable[[Any], Any]) -> dict[Any, Ends]:
    """By keys that end in topic and partition, with the topic's name: what was told by name and by uuid is of
    the same partition."""
    found: dict[Any, Ends] = {}
    for (*who, topic, partition), (first, last) in readings.items():
        key = (*who, name(topic), partition)
        known = found.get(key, (first, last))
        found[key] = (min(known[0], first, key=when), max(known[1], last, key=when))
    return found


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
                offset = part["fetch_offset"]
                key = (who, part["topic"] or part["topic_id"], part["partition"])
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
        commits: dict[Any, Behind] = {
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
                yield {
                    **_row(key, logs, commits.get(key), counts[key], told.get(key)), "client": row.client,
                    "address": row.address, "position": row.offset, "lag": row.lag, "stands_still_us": still,
                }  # fmt: skip
        for key, row in sorted(commits.items(), key=str):
            if key not in seen:
                yield _row(key, logs, row, counts[key], None)


def _row(
    key: tuple[Any, ...], logs: Logs, commits: Behind | None, count: int, told: int | None
) -> dict[str, Any]:
    """The row of a partition for a group, as if nobody fetched it."""
    group, *place = key
    found = {
        "group": group, "topic": place[0], "partition": place[1], "high_watermark": logs.end((*place,)),
        "lag": None, "commits": count,
    }  # fmt: skip
    if commits is None:
        return {**found, "committed": told, "commit_lag": logs.lag((*place,), told)}
    last = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=commits.time)
    return {**found, "committed": commits.offset, "commit_lag": commits.lag, "last_commit": last}


def _order(row: Behind) -> Any:
    return row.topic, row.partition, str((row.address, row.client))


def _parts(topics: Any, names: dict[str, str]) -> Iterator[tuple[str, Row]]:
    for topic in topics or ():
        uuid = topic.get("topic_id")
        name = topic.get("topic") or topic.get("name") or names.get(uuid, uuid)
        for part in topic.get("partitions") or ():
            yield str(name), part


HEARTBEATS = (12, 68, 76, 88)


class Lagging(NamedTuple):
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

    positions: Positions
    members: Tally
    """Heartbeats and commits by client id, address and group."""

    def take(self, batch: EventBatch) -> None:
        calls = batch.calls
        member = calls.is_in("api_key", (*HEARTBEATS, *COMMITS))
        self.members.add(calls, member, [calls.client, calls.coded("group_id")])
        self.looked += self.positions.take(batch)

    def findings(self, context: Context) -> Iterable[Finding]:
        logs = self.positions.logs(context.topic)
        groups = self._groups(context, logs)
        for group, rows in groups.items():
            only = f"--group {shlex.quote(name(group))}"
            yield self._finding(f"Group {name(group)}", name(group), only, rows, context)
        told = {key[:2] for key in self.members.entries if key[2] in groups}
        for who, rows in self._consumers(context, logs).items():
            if who not in told:
                yield self._finding(client(*who), client(*who), "", rows, context)

    def _groups(self, context: Context, logs: Logs) -> dict[Any, list[Lagging]]:
        behind: dict[Any, list[Lagging]] = {}
        for (group, *named), commits in renamed(self.positions.commits.of, context.topic).items():
            place = (named[0], named[1])
            row = self._by_commits(commits, place, logs) if place in logs.ends else None
            if row is not None:
                behind.setdefault(group, []).append(row)
        return behind

    def _by_commits(self, commits: Ends, place: Place, logs: Logs) -> Lagging | None:
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
        return Lagging(where, lag, numbers, (commits[0].packet, commits[1].packet), words)

    def _consumers(self, context: Context, logs: Logs) -> dict[Key, list[Lagging]]:
        behind: dict[Key, list[Lagging]] = {}
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
                row = Lagging(where, lag, numbers, (readings[0].packet, readings[1].packet), words)
                behind.setdefault((client_id, ip), []).append(row)
        return behind

    def _grows(self, before: float, after: float) -> bool:
        limits = self.thresholds
        return after >= limits.lag_records and after >= limits.lag_growth * max(before, 1.0)

    def _finding(self, subject: str, who: str, only: str, rows: list[Lagging], context: Context) -> Finding:
        worst = max(rows, key=lambda row: (row.lag, row.place))
        more = f", {len(rows):,} partitions" if len(rows) > 1 else ""
        brief = f"{name(worst.place)} {many(worst.lag, 'record')}{more}, growing ({worst.words})"
        return self.found(
            "warning", who, f"{subject} lags: {brief}.", {**worst.numbers, "partitions": len(rows)},
            worst.shown, command("groups", "", f"--table lag {only}".rstrip()), weight=worst.lag,
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
