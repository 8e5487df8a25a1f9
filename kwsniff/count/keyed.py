"""The counting engine: figures by key, a row for each key, in NumPy arrays.

Theory of operation. A `Keyed` table numbers keys (tuples) in the order in which they come and keeps a column
for each measure: a sum, an extreme, a first or last packet, counts by bin. What a batch says is folded into
the columns by row: of a batch only its distinct keys reach Python. So a table holds nothing of the rows that
it counted, and what another table holds is folded in the same way.

Names come from the wire, and a stranger can make up millions: a table with a limit counts what is beyond it
under the keys that `others` gives.

Invariant: sums over all rows of a table are those over everything taken, in any order of taking and merging.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from kwsniff.count.codes import combined
from kwsniff.rows.columns import Ints

Array = npt.NDArray[Any]
Columns = Mapping[str, Array]
"""A column of values for each measure."""
Key = tuple[Any, ...]

NEVER = np.iinfo(np.int64).max
"""The least of no whole numbers."""
PACKET = np.dtype([("time", np.int64), ("capture", np.object_), ("number", np.int64)])
"""Packets: microseconds since 1970, capture, number in it."""
_ROWS = 8
"""Rows that a table begins with."""


class Measure(NamedTuple):
    """How a figure folds."""

    fold: Any
    """A ufunc, or a function of the totals, the row of each value, and the values."""
    kind: Any = np.int64
    nothing: Any = 0
    """The figure of a key with no values."""
    bins: int = 0
    """A figure is so many counts. Values are bins, or rows of counts."""

    def column(self, size: int) -> Array:
        """The figures of so many keys of which nothing is known yet."""
        return np.full((size, self.bins) if self.bins else size, self.nothing, self.kind)

    def take(self, totals: Array, rows: Ints, values: Array) -> None:
        """Fold values into their rows."""
        if self.bins and values.ndim == 1:
            np.add.at(totals, (rows, values), 1)
        elif isinstance(self.fold, np.ufunc):
            self.fold.at(totals, rows, values.astype(self.kind, copy=False))
        else:
            self.fold(totals, rows, values)


def _extreme(totals: Array, rows: Ints, packets: Array, earlier: bool) -> None:
    """Put packets that come before, or else after, in the place of those of their rows."""
    if len(set(rows.tolist())) < len(rows):  # of several for a row the best is put last
        order = sorted(range(len(rows)), key=_whens(packets).__getitem__, reverse=earlier)
        rows, packets = rows[order], packets[order]
    old, new = totals["time"][rows], packets["time"]
    better = new < old if earlier else new > old
    ties = np.flatnonzero(new == old)
    pairs = zip(_whens(totals[rows[ties]]), _whens(packets[ties]), strict=True)
    better[ties] = [other < mine if earlier else other > mine for mine, other in pairs]
    totals[rows[better]] = packets[better]


def _whens(packets: Array) -> list[tuple[Any, ...]]:
    """What packets are compared by: their fields in order."""
    return [tuple("" if part is None else part for part in packet) for packet in packets.tolist()]


SUM = Measure(np.add)
REAL_SUM = Measure(np.add, np.float64)
GREATEST = Measure(np.maximum, np.int64, -NEVER)
REAL_GREATEST = Measure(np.fmax, np.float64, -np.inf)
LEAST = Measure(np.minimum, np.int64, NEVER)
FIRST = Measure(partial(_extreme, earlier=True), PACKET, np.array((NEVER, None, 0), PACKET))
LAST = Measure(partial(_extreme, earlier=False), PACKET, np.array((-NEVER, None, 0), PACKET))


def is_steady(values: Array) -> bool:
    """Whether this is one value that stands for all."""
    return values.strides == (0,)


def fold(measures: Mapping[str, Measure], totals: Columns, rows: Ints, values: Columns) -> None:
    """Fold the values of measures into their rows; a measure without values stays as it is."""
    if not len(rows):
        return
    counts = None
    for name, column in values.items():
        measure, total = measures[name], totals[name]
        if not is_steady(column) or measure.bins:
            measure.take(total, rows, column)
            continue
        if counts is None:
            counts = np.bincount(rows, minlength=len(total))
        if measure.fold is not np.add:
            there = np.flatnonzero(counts)
            total[there] = measure.fold(total[there], column[0])
        elif measure.kind is np.int64:
            total += counts * column[0]
        elif column[0]:  # most are nothing for most batches; else one after the other, as they are rounded
            np.add.at(total, rows, column)


def folded(measures: Mapping[str, Measure], values: Columns, rows: Ints, size: int) -> dict[str, Array]:
    """The measures of values by row, of which there are `size`."""
    totals = {name: measure.column(size) for name, measure in measures.items()}
    fold(measures, totals, rows, {name: values[name] for name in measures})
    return totals


class Keyed:
    """Measures by key."""

    def __init__(
        self,
        measures: Mapping[str, Measure],
        limit: int | None = None,
        others: Callable[[Key], Key] | None = None,
    ) -> None:
        """With `limit`, what is beyond so many keys counts under the one that `others` gives for it."""
        self.measures = measures
        self.rows: dict[Key, int] = {}
        """The row of each key."""
        self.overflowed = 0
        """Values counted under another key for want of room, as far as they were placed by number."""
        self._limit, self._others = limit, others
        self._columns = {name: measure.column(_ROWS) for name, measure in measures.items()}

    def __len__(self) -> int:
        return len(self.rows)

    def row(self, key: Key) -> int:
        """The row of a key, a new one if there is none yet."""
        known = self.rows.get(key)
        if known is not None:
            return known
        if self._others is not None and self._limit is not None and len(self.rows) >= self._limit:
            key = self._others(key)
        return self.rows.setdefault(key, len(self.rows))

    def numbers(self, keys: Iterable[Key]) -> Ints:
        """The row of each key."""
        known = self.rows
        if self._limit is None:
            return np.array([known.setdefault(key, len(known)) for key in keys], np.int64)
        return np.array([self.row(key) for key in keys], np.int64)

    def placed(self, columns: Sequence[Ints], sizes: Sequence[int] | None = None) -> Ints:
        """The row of each combination of numbers in parallel columns. `sizes`: none is negative, and all are
        below them."""
        shifted = columns
        if sizes is None:
            least = [int(column.min(initial=0)) for column in columns]
            shifted = [column - each for column, each in zip(columns, least, strict=True)]
            sizes = [int(column.max(initial=0)) + 1 for column in shifted]
        codes, firsts = combined(shifted, sizes)
        kinds = list(zip(*(column[firsts].tolist() for column in columns), strict=True))
        numbers = self.numbers(kinds)
        moved = [kind not in self.rows for kind in kinds]
        if any(moved):
            self.overflowed += int(np.array(moved)[codes].sum())
        return numbers[codes]

    def add(self, rows: Ints, values: Columns) -> None:
        """Fold values into their rows; measures that have none stay as they are."""
        room = len(next(iter(self._columns.values())))
        if room < len(self.rows):
            more = max(2 * room, len(self.rows)) - room
            self._columns = {
                name: np.concatenate([column, self.measures[name].column(more)])
                for name, column in self._columns.items()
            }
        fold(self.measures, self._columns, rows, values)

    def merge(self, other: Keyed) -> None:
        """Take what another table of the same keys and measures holds."""
        self.add(self.numbers(other.rows), other.columns())

    def columns(self) -> dict[str, Array]:
        """The measures in the order of the rows: not copied."""
        return {name: column[: len(self.rows)] for name, column in self._columns.items()}

    def keys(self, names: tuple[str, ...]) -> dict[str, Ints]:
        """Keys that are numbers, in the order of their rows, a column for each part."""
        columns = np.array(list(self.rows), np.int64).reshape(len(self.rows), len(names))
        return {name: columns[:, place] for place, name in enumerate(names)}

    def moved(self, keys: Sequence[Key]) -> Keyed:
        """The same figures under other keys, one for each row; of those that are the same in one."""
        made = Keyed(self.measures, self._limit, self._others)
        made.add(made.numbers(keys), self.columns())
        return made
