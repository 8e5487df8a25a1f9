"""Some rows of an EVENTS batch, each column brought into NumPy once for all that ask for it.

A text column becomes its distinct values and a number for each row (`Coded`), so that grouping by it costs
no texts. A column that the batch lacks is one that is null in every row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kwsniff.count.codes import combined, distinct
from kwsniff.rows.arrays import NONE
from kwsniff.rows.arrays import places as places_of
from kwsniff.rows.columns import Floats, Ints, Mask, integers, numbered, reals, valid

T = TypeVar("T")

KEPT = 65_536
"""Rows up to which what was made of a column is kept; a single call may name 140,000 partitions."""

SCATTERED = 16
"""Rows of a stretch for each one asked for from which on only those are looked at, column by column."""

FETCHES = (1, 78)
WAITED = ("waited_us",)
"""Columns of EVENTS by which `waited` tells."""

NOT_A_CODE = -(1 << 40)
"""Stands for null among API keys and error codes."""


class Coded(NamedTuple):
    """A column as distinct values and the place of each row's among them."""

    values: list[Any]
    codes: Ints

    def at(self, rows: Ints) -> Coded:
        """The same of some rows."""
        return Coded(self.values, self.codes[rows])

    def equals(self, value: Any) -> Mask:
        """Which rows have this value."""
        wanted = np.array([each == value for each in self.values] or [False])
        found: Mask = wanted[self.codes] if len(self.codes) else np.zeros(0, np.bool_)
        return found

    def beginning(self, prefixes: tuple[str, ...]) -> Mask:
        """Which rows have a text that begins with one of these."""
        wanted = np.array([(each or "").startswith(prefixes) for each in self.values] or [False])
        found: Mask = wanted[self.codes] if len(self.codes) else np.zeros(0, np.bool_)
        return found

    def containing(self, text: str) -> Mask:
        """Which rows have a text with this in it."""
        wanted = np.array([text in (each or "") for each in self.values] or [False])
        found: Mask = wanted[self.codes] if len(self.codes) else np.zeros(0, np.bool_)
        return found

    @property
    def size(self) -> int:
        """The codes are below it."""
        return len(self.values)

    @property
    def plain(self) -> list[Coded]:
        """The columns that this is made of."""
        return [self]

    def named(self, codes: list[int]) -> list[list[Any]]:
        """What codes stand for, column by column."""
        return [[self.values[code] for code in codes]]


class Joint(NamedTuple):
    """Several columns as one, grouped once for all that group by them."""

    columns: list[Coded]
    codes: Ints
    rows: Ints
    """The first row of each code in the columns."""

    @classmethod
    def of(cls, *columns: Coded) -> Joint:
        """Columns of the same rows."""
        codes, rows = combined([each.codes for each in columns], [each.size for each in columns])
        return cls(list(columns), codes, rows)

    def at(self, rows: Ints) -> Joint:
        """The same of some rows."""
        return Joint(self.columns, self.codes[rows], self.rows)

    @property
    def size(self) -> int:
        """The codes are below it."""
        return len(self.rows)

    @property
    def plain(self) -> list[Coded]:
        """The columns that this is made of."""
        return [each.at(self.rows[self.codes]) for each in self.columns]

    def named(self, codes: list[int]) -> list[list[Any]]:
        """What codes stand for, column by column."""
        rows = self.rows[codes]
        return [[each.values[code] for code in each.codes[rows].tolist()] for each in self.columns]


Keys = Sequence[Coded | Joint]
"""Columns to group by."""


class Rows:
    """Some rows of a batch."""

    def __init__(self, batch: pa.RecordBatch, which: Mask | None = None) -> None:
        """The rows of `batch` for which `which` is true, or all of them."""
        self._whole = batch
        self._which = which
        rows = np.arange(batch.num_rows, dtype=np.int64) if which is None else np.flatnonzero(which)
        self._count = len(rows)
        # From the first to the last of them; between those there may be others, which are left out last.
        first, end = (int(rows[0]), int(rows[-1]) + 1) if len(rows) else (0, 0)
        self._batch = batch if end - first == batch.num_rows else batch.slice(first, end - first)
        self._rows: Ints | None = None
        self._few: Ints | None = None
        """Where there are so few that columns are cut down to them before anything is made of them."""
        if SCATTERED * len(rows) < end - first:
            self._few = rows - first
        elif len(rows) < end - first:
            self._rows = rows - first
        self._names = frozenset(batch.schema.names)
        self._arrays: dict[str, pa.Array] = {}
        self._made: dict[tuple[str, str, int], Any] = {}

    def __len__(self) -> int:
        return self._count

    def column(self, name: str) -> pa.Array:
        """A column that there is, as it is in Arrow."""
        column = self._array(name)
        return column if self._rows is None else column.take(places_of(self._rows))

    def some(self, rows: Ints, names: Sequence[str]) -> pa.RecordBatch:
        """Some of these rows with those of these columns that there are, as they are in Arrow."""
        mine = self._rows if self._few is None else self._few
        columns = self._batch.select([name for name in names if name in self._names])
        return columns.take(places_of(rows if mine is None else mine[rows]))

    def unfiltered(self, name: str) -> pa.Array:
        """A column of the whole batch."""
        return self._whole.column(name)

    @cached_property
    def places(self) -> Ints:
        """For each row of the whole batch its number among these rows."""
        if self._which is None:
            return np.arange(self._count, dtype=np.int64)
        return np.cumsum(self._which, dtype=np.int64) - 1

    @cached_property
    def in_batch(self) -> Ints:
        """Where these rows are in the whole batch."""
        return np.arange(self._count, dtype=np.int64) if self._which is None else np.flatnonzero(self._which)

    def filled(self, name: str) -> bool:
        """Whether the batch has a value in this column, in these rows or in others between them."""
        if name not in self._names:
            return False
        column = self._array(name)
        return bool(column.null_count < len(column))

    def has(self, name: str) -> bool:
        """Whether any row has a value in this column."""
        return self.filled(name) and bool(self.known(name).any())

    def coded(self, name: str) -> Coded:
        """The distinct values (null is None) and which one each row has. A value that only other rows have
        may be there too."""
        return self.once("coded", name, lambda: self._encoded(name))

    def _encoded(self, name: str) -> Coded:
        if not self.filled(name):
            return Coded([None], np.broadcast_to(np.int64(0), len(self)))
        coded = kinds_of(self._array(name))
        return coded if self._rows is None else coded.at(self._rows)

    def ints(self, name: str, null: int = 0) -> Ints:
        """Whole numbers, times as microseconds, flags as 0 and 1; `null` where there is none."""
        if not self.filled(name):
            return np.broadcast_to(np.int64(null), len(self))
        return self.once("ints", name, lambda: self._mine(integers(self._array(name), null)), null)

    def floats(self, name: str) -> Floats:
        """Numbers, NaN where there is none."""
        if not self.filled(name):
            return np.broadcast_to(np.float64(np.nan), len(self))
        return self.once("floats", name, lambda: self._mine(reals(self._array(name))))

    def known(self, name: str) -> Mask:
        """Which rows have a value."""
        if not self.filled(name):
            return np.broadcast_to(np.False_, len(self))
        return self.once("known", name, lambda: self._mine(valid(self._array(name))))

    def first_known(self, *names: str, null: int) -> Ints:
        """The first of several columns of whole numbers that has a value; `null` where none has."""
        found = self.ints(names[0], NONE)
        for name in names[1:]:
            missing = found == NONE
            if not missing.any():
                return found
            found = np.where(missing, self.ints(name, NONE), found)
        return np.where(found == NONE, null, found)

    def is_in(self, name: str, values: tuple[int, ...]) -> Mask:
        """Which rows have one of these whole numbers."""
        numbers = self.ints(name, NOT_A_CODE)
        mask: Mask = numbers == values[0]
        for value in values[1:]:  # few: np.isin sorts, and the rules ask for dozens of sets
            mask |= numbers == value
        return mask

    def once(self, kind: str, name: str, make: Callable[[], T], null: int = 0) -> T:
        """What `make` gives of a column, made once but for whole columns of numbers of a huge batch."""
        if len(self) > KEPT and kind != "coded":
            return make()
        key = (kind, name, null)
        if key not in self._made:
            self._made[key] = make()
        made: T = self._made[key]
        return made

    def _array(self, name: str) -> pa.Array:
        if name not in self._arrays:
            column = self._batch.column(name)
            self._arrays[name] = column if self._few is None else column.take(places_of(self._few))
        return self._arrays[name]

    def _mine(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return values if self._rows is None else values[self._rows]


def kinds_of(column: pa.Array) -> Coded:
    """A column of whole numbers or texts by its distinct values."""
    close = numbered(column) if pa.types.is_integer(column.type) else None
    return Coded(*(close or distinct(column)))


def waited(batch: pa.RecordBatch | Rows) -> Mask:
    """Which calls waited on purpose: those of which EVENTS say for how long. `kwsniff.engine.callcolumns` has
    the rule."""
    calls = batch if isinstance(batch, Rows) else Rows(batch)
    found: Mask = calls.floats("waited_us") > 0  # NaN is not
    return found
