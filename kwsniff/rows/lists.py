"""List columns as NumPy sees them: how long each list is, where it starts among the flattened elements, and
how to put flattened elements back. All of it holds for sliced batches and for null lists, which count as
empty."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kwsniff.rows.arrays import lists
from kwsniff.rows.columns import Ints, Mask, valid


def lengths(column: pa.ListArray) -> Ints:
    """Elements of each list, 0 for a null one."""
    counts: Ints = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    return counts.astype(np.int64)


def starts(counts: Ints) -> Ints:
    """Position of each list's first element in the flattened column."""
    begin: Ints = np.cumsum(counts) - counts
    return begin


def parents(counts: Ints) -> Ints:
    """Row of each flattened element."""
    return np.repeat(np.arange(len(counts), dtype=np.int64), counts)


class Spread(NamedTuple):
    """A column of lists as its elements, and where among them the lists are."""

    values: pa.Array
    begin: Ints
    size: Ints

    def places(self, rows: Ints, size: Ints) -> Ints:
        """Where the first so many elements of each of these lists are."""
        return expanded(self.begin[rows], size)


def spread(column: pa.ListArray) -> Spread:
    """The elements without a copy: of a slice only its own, and perhaps some that no list holds."""
    offsets = column.offsets.to_numpy()
    if not len(column):
        return Spread(column.values.slice(0, 0), *np.zeros((2, 0), np.int64))
    first = int(offsets[0])
    size = np.diff(offsets).astype(np.int64)
    if column.null_count:
        size *= ~is_null(column)
    begin = offsets[:-1].astype(np.int64) - first
    return Spread(column.values.slice(first, int(offsets[-1]) - first), begin, size)


def expanded(begin: Ints, size: Ints) -> Ints:
    """The numbers from each `begin` on, so many of each."""
    if (size == 1).all():
        return begin
    end = np.cumsum(size)
    total = int(end[-1])
    return np.repeat(begin - end + size, size) + np.arange(total, dtype=np.int64)


def aligned(column: pa.ListArray, counts: Ints) -> pa.Array:
    """The flattened elements of `column` as if its lists had `counts` elements: cut, or filled with nulls."""
    own = lengths(column)
    flat = column.flatten()
    if np.array_equal(own, counts):
        return flat
    rows = parents(counts)
    place = np.arange(len(rows), dtype=np.int64) - starts(counts)[rows]
    index = starts(own)[rows] + place
    return flat.take(pa.array(index, mask=place >= own[rows]))


def rebuilt(values: pa.Array, counts: Ints, null: Mask) -> pa.ListArray:
    """Lists of `counts` elements each from flattened `values`; null where `null` (its count must be 0)."""
    return lists(np.where(null, -1, counts), values, pa.list_(values.type))


def is_null(column: pa.Array) -> Mask:
    """Which values are null."""
    return ~valid(column)
