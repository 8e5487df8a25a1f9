"""The first and the last reading of an offset by key, in NumPy arrays with a row for each key.

Readings are ordered by time, and where that is the same by what differs: offset, end, packet. So in whatever
order batches and parts of an input are taken, the same ones stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from kwsniff.findings.tally import Key, Packet, grouped
from kwsniff.report.eventrows import UNKNOWN, EventBatch, Floats, Ints, Keys, Mask, Partitions

LIMIT = 5_000
"""Partitions of consumers, of groups, and ends of partitions that are followed, each."""


class Reading(NamedTuple):
    """An offset of a partition at some time, and its end then."""

    packet: Packet
    offset: float
    end: float

    @property
    def lag(self) -> float:
        return max(self.end - self.offset, 0.0)


def when(reading: Reading) -> tuple[int, float, float, int]:
    """By what readings are ordered."""
    return reading.packet.time, reading.offset, reading.end, reading.packet.number


class _Rows(NamedTuple):
    """A reading of each row."""

    time: Ints
    offset: Floats
    end: Floats
    number: Ints
    capture: npt.NDArray[np.object_]

    def at(self, rows: Any) -> _Rows:
        return _Rows(*(each[rows] for each in self))

    def put(self, rows: Any, others: _Rows) -> None:
        for mine, theirs in zip(self, others, strict=True):
            mine[rows] = theirs

    def before(self, others: _Rows) -> Mask:
        """Which rows come before those of the others."""
        found: Mask = self.number < others.number
        for mine, theirs in zip(self[2::-1], others[2::-1], strict=True):
            found = (mine < theirs) | ((mine == theirs) & found)
        return found

    def readings(self) -> list[Reading]:
        time, offset, end, number, capture = (each.tolist() for each in self)
        return list(map(Reading, map(Packet, time, capture, number), offset, end))

    @classmethod
    def joined(cls, parts: Sequence[_Rows]) -> _Rows:
        return cls(*(np.concatenate(some) for some in zip(*parts, strict=True)))


class Readings:
    """The first and the last reading by key."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._places: dict[Key, int] = {}
        self._ends: tuple[_Rows, _Rows] | None = None

    @property
    def of(self) -> dict[Key, tuple[Reading, Reading]]:
        """By key."""
        if self._ends is None:
            return {}
        first, last = (each.readings() for each in self._ends)
        return {key: (first[row], last[row]) for key, row in self._places.items()}

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
            call, row = of[places], rows[places]
            mine = _Rows(time[places], offset[row], end[row], calls.packet[call], names[capture.codes[call]])
            ends.append(mine)
        self._put(list(zip(*columns, strict=True)), ends[0], ends[1])
        return len(rows)

    def merge(self, other: Readings) -> None:
        """Take those of another one."""
        if other._ends is not None:
            self._put(list(other._places), *other._ends)

    def _put(self, keys: list[Key], first: _Rows, last: _Rows) -> None:
        """Add the first and the last readings of keys, each of which is there once."""
        known, begun = self._places, len(self._places)
        room = max(self._limit - begun, 0)
        new = [key not in known for key in keys]
        taken = np.ones(len(keys), np.bool_)
        if sum(new) > room:
            taken[np.flatnonzero(new)[room:]] = False
            keys, new = list(compress(keys, taken)), list(compress(new, taken))
            first, last = first.at(taken), last.at(taken)
        for key in compress(keys, new):
            known[key] = len(known)
        old, fresh = np.flatnonzero(~np.array(new, np.bool_)), np.flatnonzero(new)
        rows = np.array([known[keys[place]] for place in old.tolist()], np.int64)
        if self._ends is None:
            self._ends = first.at(fresh), last.at(fresh)
            return
        for mine, theirs, earlier in zip(self._ends, (first, last), (True, False), strict=True):
            held, other = mine.at(rows), theirs.at(old)
            better = other.before(held) if earlier else held.before(other)
            mine.put(rows[better], other.at(better))
        if len(fresh):
            begin, end = self._ends
            self._ends = _Rows.joined([begin, first.at(fresh)]), _Rows.joined([end, last.at(fresh)])


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
