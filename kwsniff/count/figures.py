"""Counts, sums, greatest values, first and last packets: a row for each of many keys, in NumPy arrays.

A batch has a thousand keys of its own, and an object for each of them would cost more than all else that is
done with the batch. What people read is made of a row when the input has ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from kwsniff.count.eventrows import Floats, Ints, Mask

Texts = npt.NDArray[np.object_]

_LATEST = np.iinfo(np.int64).max


class Packets(NamedTuple):
    """A packet of each row; see `kwsniff.count.tally.Packet`."""

    time: Ints
    capture: Texts
    number: Ints

    def at(self, rows: Any) -> Packets:
        """Those of some rows."""
        return Packets(self.time[rows], self.capture[rows], self.number[rows])

    def take(self, rows: Ints, others: Packets, *, earlier: bool) -> None:
        """Replace those of some rows, each named once, by others that come before, or else after."""
        time = self.time[rows]
        better = others.time < time if earlier else others.time > time
        better |= self._ties(rows, others, time, earlier)
        rows = rows[better]
        self.time[rows], self.capture[rows], self.number[rows] = others.at(better)

    def best(self, rows: Ints, *, earlier: bool) -> tuple[Ints, Packets]:
        """The first, or last, packets for each of the rows that they are for."""
        captures = [each or "" for each in self.capture.tolist()]
        whole = list(zip(self.time.tolist(), captures, self.number.tolist(), strict=True))
        order = sorted(range(len(whole)), key=whole.__getitem__, reverse=earlier)
        best = dict(zip(rows[order].tolist(), order, strict=True))  # the last of each stays
        return np.array(list(best), np.int64), self.at(list(best.values()))

    def _ties(self, rows: Ints, others: Packets, time: Ints, earlier: bool) -> Mask:
        """Where the time is the same and the other one comes before (or after) by capture and number."""
        found: Mask = others.time == time
        for place in np.flatnonzero(found).tolist():
            row = rows[place]
            mine = (self.capture[row] or "", self.number[row])
            other = (others.capture[place] or "", others.number[place])
            found[place] = other < mine if earlier else other > mine
        return found


def _no_packets(size: int, time: int) -> Packets:
    return Packets(np.full(size, time), np.full(size, None, object), np.zeros(size, np.int64))


class Figures(NamedTuple):
    """What is known of keys, a row each."""

    counts: Ints
    sums: list[Floats]
    maxes: list[Floats]
    first: Packets
    last: Packets

    @classmethod
    def nothing(cls, size: int, like: Figures) -> Figures:
        """Rows of which nothing is known yet."""
        return cls(
            np.zeros(size, np.int64),
            [np.zeros(size) for _ in like.sums],
            [np.full(size, -np.inf) for _ in like.maxes],
            _no_packets(size, _LATEST),
            _no_packets(size, -_LATEST),
        )

    def __len__(self) -> int:
        return len(self.counts)

    def at(self, rows: Any) -> Figures:
        """Those of some rows."""
        sums, maxes = ([each[rows] for each in columns] for columns in (self.sums, self.maxes))
        return Figures(self.counts[rows], sums, maxes, self.first.at(rows), self.last.at(rows))

    def absorb(self, rows: Ints, others: Figures) -> None:
        """Add what others counted, each to its row."""
        np.add.at(self.counts, rows, others.counts)
        for total, each in zip(self.sums, others.sums, strict=True):
            np.add.at(total, rows, each)
        for greatest, each in zip(self.maxes, others.maxes, strict=True):
            np.maximum.at(greatest, rows, each)
        first, last = others.first, others.last
        if len(set(rows.tolist())) < len(rows):  # texts that differ beyond what is kept of them
            self.first.take(*first.best(rows, earlier=True), earlier=True)
            self.last.take(*last.best(rows, earlier=False), earlier=False)
        else:
            self.first.take(rows, first, earlier=True)
            self.last.take(rows, last, earlier=False)

    def columns(self) -> list[list[Any]]:
        """Counts, sums, greatest values, and time, capture and number of the first and the last packet, each
        as a list with an element for each row."""
        size = len(self)
        sums, maxes = (
            _rows([each.tolist() for each in columns], size) for columns in (self.sums, self.maxes)
        )
        ends = [_rows([part.tolist() for part in end], size) for end in (self.first, self.last)]
        return [self.counts.tolist(), sums, maxes, *ends]


def no_figures() -> Figures:
    """No rows."""
    nothing = np.zeros(0, np.int64)
    return Figures(nothing, [], [], _no_packets(0, 0), _no_packets(0, 0))


def joined(parts: Sequence[Figures]) -> Figures:
    """The rows of all of them, one after the other."""
    sums, maxes = (
        [np.concatenate(some) for some in zip(*columns, strict=True)]
        for columns in ([each.sums for each in parts], [each.maxes for each in parts])
    )
    first, last = (
        Packets(*(np.concatenate(some) for some in zip(*ends, strict=True)))
        for ends in ([each.first for each in parts], [each.last for each in parts])
    )
    return Figures(np.concatenate([each.counts for each in parts]), sums, maxes, first, last)


def _rows(columns: list[list[Any]], size: int) -> list[Any]:
    """Columns of `size` values as rows, which are empty if there is no column."""
    return list(zip(*columns, strict=True)) if columns else [()] * size
