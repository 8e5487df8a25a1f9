"""Small integers for values that repeat, so that grouping by texts costs no texts: a column as its distinct
values and a number for each row (`Coded`), several columns as one (`Joint`), and numbers that stay the same
from batch to batch (`Codes`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kwsniff.rows.columns import Ints, Mask, numbered, valid

OTHERS = "(others)"
"""Stands for every text beyond a limit: names come from the wire, and a stranger can make up millions."""
MAX_NAMES = 10_000
"""Client ids, client addresses, broker addresses and topics that a report tells apart, each."""

NAME_LENGTH = 256
"""Characters of a name for which there is room on average."""

PIECE = 32_768
"""Bytes of texts that are compared at a time."""


class Codes:
    """Numbers values in the order in which they are first seen; null is a value like any other."""

    def __init__(self, limit: int | None = None) -> None:
        """With `limit`, texts that are new when there are so many already, or so long ones, are all
        `OTHERS`."""
        self._limit = limit
        self._room = (limit or 0) * NAME_LENGTH
        self.values: list[Any] = []
        self._numbers: dict[Any, int] = {}

    def numbers(self, values: Sequence[Any], indices: Ints) -> Ints:
        """The number of each element of a column that is given as `distinct` gives it."""
        occurs = np.bincount(indices, minlength=len(values)).tolist()
        numbers = [self.number(value) if count else 0 for value, count in zip(values, occurs, strict=True)]
        codes: Ints = np.array(numbers, dtype=np.int64)[indices]
        return codes

    def number(self, value: Any) -> int:
        """The number of one value."""
        if self._limit is not None and value not in self._numbers:
            self._room -= len(value or "")
            if len(self.values) >= self._limit or self._room < 0:
                value = OTHERS
        number = self._numbers.setdefault(value, len(self.values))
        if number == len(self.values):
            self.values.append(value)
        return number

    def taken(self, other: Codes) -> Ints:
        """The number here of each value of another one."""
        return np.array([self.number(value) for value in other.values], np.int64)

    def __len__(self) -> int:
        return len(self.values)

    def __contains__(self, value: Any) -> bool:
        return value in self._numbers


def distinct(column: pa.Array) -> tuple[list[Any], Ints]:
    """Distinct values of a column, or of Arrow's dictionary of it, null among them if there is any, and the
    place of each row's among them. Of a dictionary not every value needs to occur, nor null."""
    if not pa.types.is_dictionary(column.type):
        if len(column) and column.null_count == len(column):
            return [None], np.zeros(len(column), np.int64)
        if (one := _one_text(column)) is not None:
            return one
        encoded = column.dictionary_encode(null_encoding="encode")
        return encoded.dictionary.to_pylist(), encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    values = [*column.dictionary.to_pylist(), None]
    indices = column.indices.fill_null(len(values) - 1)
    return values, indices.to_numpy(zero_copy_only=False).astype(np.int64)


def _one_text(column: pa.Array) -> tuple[list[str | None], Ints] | None:
    """`distinct` of a column that has the same text or null in all rows, as captures and states often have:
    comparing is several times as quick as hashing."""
    count = len(column) - column.null_count
    if not pa.types.is_string(column.type) or not count:
        return None
    offsets = np.frombuffer(column.buffers()[1], np.int32, len(column) + 1, 4 * column.offset)
    first, total = int(offsets[0]), int(offsets[-1]) - int(offsets[0])
    size = total // count
    if not size or total != size * count:
        return None
    texts = np.frombuffer(column.buffers()[2], np.uint8, total, first)
    sizes = np.diff(offsets)
    filled = sizes == size
    if not np.array_equal(filled, valid(column)) or not _repeats(texts, size):
        return None
    text = texts[:size].tobytes().decode()
    return [text, None] if column.null_count else [text], np.where(filled, 0, 1)


def _repeats(data: npt.NDArray[np.uint8], size: int) -> bool:
    """Whether all bytes are those that stand `size` before them. Compared in pieces: there may be many, and
    the first ones may differ already."""
    rest = len(data) - size
    return all(
        np.array_equal(data[at + size : at + size + PIECE], data[at : min(at + PIECE, rest)])
        for at in range(0, rest, PIECE)
    )


_HOLDS = 1 << 62


def combined(columns: Sequence[Ints], sizes: Sequence[int]) -> tuple[Ints, Ints]:
    """Numbers the combinations that occur in parallel columns of non-negative integers below `sizes`, in the
    order in which they come.

    Returns the number of each row's combination, and for each number the first row that has it."""
    codes: Ints = np.zeros(len(columns[0]), dtype=np.int64)
    count = 1
    for column, size in zip(columns, sizes, strict=True):
        if count * size > _HOLDS:  # numbering what occurs so far keeps the product small
            codes, rows = _numbered(codes, count)
            count = len(rows)
        codes = codes * size + column
        count *= size
    return _numbered(codes, count)


def _numbered(codes: Ints, size: int) -> tuple[Ints, Ints]:
    """Codes below `size` numbered in the order in which they come, and the first row of each."""
    rows = np.arange(len(codes), dtype=np.int64)
    if size > 4 * len(codes) + 1024:  # then a table of all that could occur takes longer than hashing
        encoded = pa.array(codes).dictionary_encode()
        numbers = encoded.indices.to_numpy().astype(np.int64)
        firsts = np.zeros(len(encoded.dictionary), np.int64)
        firsts[numbers[::-1]] = rows[::-1]
        return numbers, firsts
    first = np.full(size, len(codes), np.int64)
    first[codes[::-1]] = rows[::-1]
    kinds = np.flatnonzero(first < len(codes))
    kinds = kinds[np.argsort(first[kinds])]
    number = np.zeros(size, np.int64)
    number[kinds] = np.arange(len(kinds))
    return number[codes], first[kinds]


class Coded(NamedTuple):
    """A column as distinct values and the place of each row's among them."""

    values: list[Any]
    codes: Ints

    def at(self, rows: Ints) -> Coded:
        """The same of some rows."""
        return Coded(self.values, self.codes[rows])

    def matching(self, test: Callable[[Any], bool]) -> Mask:
        """Which rows have a value that passes a test."""
        wanted = np.array([test(value) for value in self.values] or [False])
        found: Mask = wanted[self.codes] if len(self.codes) else np.zeros(0, np.bool_)
        return found

    def equals(self, value: Any) -> Mask:
        """Which rows have this value."""
        return self.matching(lambda each: bool(each == value))

    def beginning(self, prefixes: tuple[str, ...]) -> Mask:
        """Which rows have a text that begins with one of these."""
        return self.matching(lambda each: (each or "").startswith(prefixes))

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


def kinds_of(column: pa.Array) -> Coded:
    """A column of whole numbers or texts by its distinct values."""
    close = numbered(column) if pa.types.is_integer(column.type) else None
    return Coded(*(close or distinct(column)))
