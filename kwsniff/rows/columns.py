"""Arrow's columns as NumPy arrays, read straight from their buffers: what Arrow computes of a column costs
tens of microseconds each time, and a batch has dozens of columns.

Null is a value that the caller names. Nothing is copied where a column has no nulls and is as wide as what is
asked for, and one value stands for all of a column of nulls, so what is returned is not written to.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

SPREAD = 4096
"""Whole numbers that lie no further apart are numbered by a table, others by hashing."""


def valid(column: pa.Array) -> Mask:
    """Which rows have a value."""
    if not column.null_count:
        return np.broadcast_to(np.True_, len(column))
    if column.null_count == len(column):  # of nothing but nulls there may be no bits
        return np.broadcast_to(np.False_, len(column))
    return _bits(column.buffers()[0], column.offset, len(column))


def integers(column: pa.Array, null: int = 0) -> Ints:
    """Whole numbers of any width, times in their unit, flags as 0 and 1; `null` where there is none."""
    if column.null_count == len(column):
        return np.broadcast_to(np.int64(null), len(column))
    values = _values(column)
    if column.null_count:
        return np.where(valid(column), values, np.int64(null))
    return values.astype(np.int64, copy=False)


def reals(column: pa.Array) -> Floats:
    """Numbers, NaN where there is none."""
    if column.null_count == len(column):
        return np.broadcast_to(np.float64(np.nan), len(column))
    values = _values(column)
    if column.null_count:
        return np.where(valid(column), values, np.nan)
    return values.astype(np.float64, copy=False)


def numbered(column: pa.Array) -> tuple[list[int | None], Ints] | None:
    """The distinct ones of whole numbers that lie close together, null first, then ascending, and the place
    of each row's among them; None if they do not."""
    values = _values(column).astype(np.int64, copy=False)
    known = valid(column) if column.null_count else None
    some = values if known is None else values[known]
    if not len(some):
        return None
    least = int(some.min()) - 1  # stands for null
    size = int(some.max()) - least + 1
    if size > SPREAD:
        return None
    shifted = values - least if known is None else np.where(known, values - least, 0)
    occurs = np.zeros(size, np.bool_)
    occurs[shifted] = True
    kinds = [None if place == 0 else place + least for place in np.flatnonzero(occurs).tolist()]
    return kinds, (np.cumsum(occurs) - 1)[shifted]


def _values(column: pa.Array) -> npt.NDArray[Any]:
    """Those of all rows, whatever null ones hold."""
    data = column.buffers()[1]
    if pa.types.is_boolean(column.type):
        return _bits(data, column.offset, len(column))
    width = column.type.bit_width // 8
    kind = "f" if pa.types.is_floating(column.type) else "i"
    return np.frombuffer(data, f"{kind}{width}", len(column), column.offset * width)


def _bits(data: pa.Buffer, first: int, count: int) -> Mask:
    begin, end = first // 8, (first + count + 7) // 8
    bits = np.unpackbits(np.frombuffer(data, np.uint8, end - begin, begin), bitorder="little")
    return bits[first - 8 * begin : first - 8 * begin + count].view(np.bool_)
