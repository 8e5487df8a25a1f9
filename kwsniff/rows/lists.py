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


# Columns and batches with some of their values replaced; everything else stays where it is.


def with_elements(column: pa.ListArray, values: pa.Array) -> pa.ListArray:
    """Lists with other elements in place of those that `spread` gives."""
    offsets = column.offsets.to_numpy()
    mask = column.is_null() if column.null_count else None
    return pa.ListArray.from_arrays(pa.array(offsets - offsets[0]), values, type=column.type, mask=mask)


def with_lists(column: pa.ListArray, rows: Ints, given: pa.ListArray, lines: Ints) -> pa.ListArray:
    """Lists with, in these rows, those that `lines` choose of `given`; none of those is null."""
    own, other = spread(column), spread(given)
    begin, size = own.begin.copy(), own.size.copy()
    begin[rows] = other.begin[lines] + len(own.values)
    size[rows] = other.size[lines]
    absent = is_null(column)
    absent[rows] = False
    values = pa.concat_arrays([own.values, other.values.cast(own.values.type)])
    chosen = values.take(pa.array(expanded(begin, size)))
    return rebuilt(chosen, size, absent).cast(column.type)


def with_values(values: pa.Array, places: Ints, given: pa.Array, codes: Ints) -> pa.Array:
    """Values with, in these places, those that `codes` choose of `given`."""
    index = np.arange(len(values), dtype=np.int64)
    index[places] = codes + len(values)
    return pa.concat_arrays([values, given]).take(pa.array(index))


def with_field(structs: pa.StructArray, name: str, values: pa.Array) -> pa.StructArray:
    """Structs with other values in one field."""
    kind = structs.type
    fields = [structs.field(at) for at in range(kind.num_fields)]
    fields[kind.get_field_index(name)] = values
    mask = structs.is_null() if structs.null_count else None
    return pa.StructArray.from_arrays(fields, fields=list(kind), mask=mask)


def with_column(batch: pa.RecordBatch, name: str, values: pa.Array | None) -> pa.RecordBatch:
    """A batch with another column of this name; with None as it is."""
    if values is None:
        return batch
    at = batch.schema.get_field_index(name)
    return batch.set_column(at, batch.schema.field(at), values)
