"""NumPy arrays as Arrow arrays, straight from their buffers.

`pyarrow.array` would import pandas first, to see whether it was given any of it: a fifth of a second.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


def column(values: NDArray[Any], kind: pa.DataType, missing: NDArray[np.bool_] | None = None) -> pa.Array:
    """Numbers (or, as integers, timestamps) of an Arrow type; null where `missing`."""
    if pa.types.is_boolean(kind):
        data = np.packbits(values, bitorder="little")
    else:
        width = kind.bit_width // 8
        data = np.ascontiguousarray(values, np.dtype(f"{'f' if pa.types.is_floating(kind) else 'i'}{width}"))
    return pa.Array.from_buffers(kind, len(values), [_validity(missing), pa.py_buffer(data)])


def places(values: NDArray[Any], missing: NDArray[np.bool_] | None = None) -> pa.Array:
    """Row numbers to take."""
    return column(values, pa.int64(), missing)


def flags(values: NDArray[np.bool_]) -> pa.Array:
    """Booleans."""
    return column(values, pa.bool_())


def _validity(missing: NDArray[np.bool_] | None) -> pa.Buffer | None:
    if missing is None or not missing.any():
        return None
    return pa.py_buffer(np.packbits(~missing, bitorder="little"))
