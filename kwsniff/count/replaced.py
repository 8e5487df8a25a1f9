"""Columns and batches with some of their values replaced; everything else stays where it is."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from kwsniff.rows import lists
from kwsniff.rows.columns import Ints


def elements(column: pa.ListArray, values: pa.Array) -> pa.ListArray:
    """Lists with other elements in place of those that `lists.spread` gives."""
    offsets = column.offsets.to_numpy()
    mask = column.is_null() if column.null_count else None
    return pa.ListArray.from_arrays(pa.array(offsets - offsets[0]), values, type=column.type, mask=mask)


def whole(column: pa.ListArray, rows: Ints, given: pa.ListArray, lines: Ints) -> pa.ListArray:
    """Lists with, in these rows, those that `lines` choose of `given`; none of those is null."""
    own, other = lists.spread(column), lists.spread(given)
    begin, size = own.begin.copy(), own.size.copy()
    begin[rows] = other.begin[lines] + len(own.values)
    size[rows] = other.size[lines]
    absent = lists.is_null(column)
    absent[rows] = False
    values = pa.concat_arrays([own.values, other.values.cast(own.values.type)])
    chosen = values.take(pa.array(lists.expanded(begin, size)))
    return lists.rebuilt(chosen, size, absent).cast(column.type)


def some(values: pa.Array, places: Ints, given: pa.Array, codes: Ints) -> pa.Array:
    """Values with, in these places, those that `codes` choose of `given`."""
    index = np.arange(len(values), dtype=np.int64)
    index[places] = codes + len(values)
    return pa.concat_arrays([values, given]).take(pa.array(index))


def field(structs: pa.StructArray, name: str, values: pa.Array) -> pa.StructArray:
    """Structs with other values in one field."""
    kind = structs.type
    fields = [structs.field(at) for at in range(kind.num_fields)]
    fields[kind.get_field_index(name)] = values
    mask = structs.is_null() if structs.null_count else None
    return pa.StructArray.from_arrays(fields, fields=list(kind), mask=mask)


def column(batch: pa.RecordBatch, name: str, values: pa.Array | None) -> pa.RecordBatch:
    """A batch with another column of this name; with None as it is."""
    if values is None:
        return batch
    at = batch.schema.get_field_index(name)
    return batch.set_column(at, batch.schema.field(at), values)
