"""List columns as NumPy sees them: how long each list is, where it starts among the flattened elements, and
how to put flattened elements back. All of it holds for sliced batches and for null lists, which count as
empty."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Ints = npt.NDArray[np.int64]


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


def rebuilt(values: pa.Array, counts: Ints, null: npt.NDArray[np.bool_]) -> pa.ListArray:
    """Lists of `counts` elements each from flattened `values`; null where `null` (its count must be 0)."""
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    mask = pa.array(null) if null.any() else None
    return pa.ListArray.from_arrays(pa.array(offsets), values, mask=mask)


def is_null(column: pa.Array) -> npt.NDArray[np.bool_]:
    mask: npt.NDArray[np.bool_] = column.is_null().to_numpy(zero_copy_only=False)
    return mask
