"""How far consumers are behind: one calculation, from columns, for whoever tells it.

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

from collections.abc import Callable, Iterator, Mapping
from itertools import compress
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from kwsniff.count.codes import Keys
from kwsniff.count.eventrows import UNKNOWN, EventBatch, Partitions
from kwsniff.count.keyed import FIRST, LAST, NEVER, Columns, Key, Keyed
from kwsniff.count.tally import Packet, grouped
from kwsniff.rows.columns import Floats, Ints, Mask
from kwsniff.rows.schema import TIMESTAMP

PRODUCE, FETCH, COMMITS = (0,), (1,), (8, 28)
APIS = (*PRODUCE, *FETCH, *COMMITS)
NEEDED = frozenset(("partitions", "asked", "group_id", "response_time", "time", "api_key"))
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
    def of(self) -> dict[Key, tuple[Reading, Reading]]:
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
            calls.is_in("api_key", keys)[parts.row] for keys in (PRODUCE, FETCH, COMMITS)
        )
        end, fine = parts.floats("high_watermark"), parts.ints("error_code", UNKNOWN) == 0
        written, base = _sum(parts, "base_offset", "records"), parts.floats("base_offset")
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
        for mine, theirs in zip(self._all(), other._all(), strict=True):
            mine.merge(theirs)

    def _all(self) -> tuple[Readings, ...]:
        return self.fetches, self.commits, self._ends, self._starts

    def lags(self, name: Callable[[Any], Any]) -> Iterator[Lag]:
        """How far each group and each consumer was behind in each partition at last; `name` gives a topic's
        name for its name or uuid."""
        logs = self.logs(name)
        for (group, topic, partition), ends in renamed(self.commits.of, name).items():
            if group is not None:
                yield logs.behind((group, None, None), (topic, partition), ends[1])
        for (client, ip, topic, partition), ends in renamed(self.fetches.of, name).items():
            yield logs.behind((None, client, ip), (topic, partition), ends[1])

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


class Lag(NamedTuple):
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


def _column(name: str, kind: pa.DataType, doc: str) -> pa.Field:
    return pa.field(name, kind, metadata={"doc": doc})


LAG = pa.schema(
    [
        _column("group_id", pa.string(), "group that commits; null in the row of a consumer that fetches"),
        _column("client_id", pa.string(), "consumer that fetches; null in the row of a group"),
        _column("client_ip", pa.string(), "its address"),
        _column("topic", pa.string(), "topic"),
        _column("partition", pa.int32(), "partition"),
        _column("high_watermark", pa.int64(), "end of the partition, as anybody was told last"),
        _column("offset", pa.int64(), "offset that the group committed last, or the consumer asked for last"),
        _column("lag", pa.int64(), "records from that offset to the end, but for those that retention took"),
        _column("time", TIMESTAMP, "when it committed, or asked, last"),
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

    def behind(self, who: tuple[Any, Any, Any], place: Place, last: Reading) -> Lag:
        """How far somebody is behind whose last reading is given."""
        offset = int(last.offset)
        return Lag(*who, *place, self.end(place), offset, self.lag(place, offset), last.packet.time)

    def lag(self, place: Place, position: float | None) -> int | None:
        """How many records are between a position and the end, None if either is not known."""
        end = self.end(place)
        if end is None or position is None or position < 0:
            return None
        start = self._starts[place][1].offset if place in self._starts else 0.0
        return max(int(end - max(position, start)), 0)


def _sum(parts: Partitions, *names: str) -> Floats:
    found: Floats = np.sum([parts.floats(name) for name in names], axis=0)
    return found


def renamed(readings: Mapping[tuple[Any, ...], Ends], name: Callable[[Any], Any]) -> dict[Any, Ends]:
    """By keys that end in topic and partition, with the topic's name: what was told by name and by uuid is of
    the same partition."""
    found: dict[Any, Ends] = {}
    for (*who, topic, partition), (first, last) in readings.items():
        key = (*who, name(topic), partition)
        known = found.get(key, (first, last))
        found[key] = (min(known[0], first, key=when), max(known[1], last, key=when))
    return found
