"""Big-endian numbers and texts in a byte array, for compiled kernels; nothing here checks bounds.

Positions are made unsigned before they are used: a signed index might count from the end, and numba would
look each time whether it does.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from kwsniff.engine.bulk.kernel import inlined, kernel

Bytes = NDArray[np.uint8]

NONE = -(1 << 63)
"""Stands for None in columns of int64."""


@inlined
def int16(buf: Bytes, pos: int) -> Any:
    """Signed, two bytes."""
    value = (types.int64(buf[types.uintp(pos)]) << 8) | types.int64(buf[types.uintp(pos + 1)])
    return value - 0x10000 if value & 0x8000 else value


@inlined
def int32(buf: Bytes, pos: int) -> Any:
    """Signed, four bytes."""
    value = (
        (types.int64(buf[types.uintp(pos)]) << 24)
        | (types.int64(buf[types.uintp(pos + 1)]) << 16)
        | (types.int64(buf[types.uintp(pos + 2)]) << 8)
        | types.int64(buf[types.uintp(pos + 3)])
    )
    return value - 0x100000000 if value & 0x80000000 else value


@inlined
def int64(buf: Bytes, pos: int) -> Any:
    """Signed, eight bytes."""
    high, low = int32(buf, pos), int32(buf, pos + 4)
    return (high << 32) | (low & 0xFFFFFFFF)


@kernel
def is_ascii(buf: Bytes, pos: int, end: int) -> bool:
    """Whether all bytes are ASCII: then they decode as themselves in any error mode."""
    for at in range(types.uintp(pos), types.uintp(end)):
        if buf[at] >= 0x80:
            return False
    return True


@kernel
def uvarint(buf: Bytes, pos: int, end: int) -> tuple[int, int]:
    """UNSIGNED_VARINT (KIP-482) and the position behind it; the position is -1 if it does not end."""
    value = types.int64(0)
    shift = 0
    while pos < end and shift < 35:
        byte = types.int64(buf[types.uintp(pos)])
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value, pos) if value <= 0xFFFFFFFF else (types.int64(0), -1)
        shift += 7
    return types.int64(0), -1
