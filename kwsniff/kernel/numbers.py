"""Big-endian numbers in byte arrays, and sequence arithmetic; nothing here checks bounds.

What is read from a byte array is made a 64-bit integer at once: compiled, a `uint8` would wrap.
"""

from __future__ import annotations

from typing import Any

from kwsniff.native.mode import byte, inlined, int64, int64_at, kernel, signed64, uint32, uintp

__all__ = [
    "FULL", "NONE", "OK", "PROGRAM", "REFUSED", "SECOND", "byte", "distance", "int16", "int32", "int64_at",
    "signed64", "uint32", "uvarint",
]  # fmt: skip

SECOND = 1_000_000_000
"""In nanoseconds."""
NONE = -(1 << 63)
"""Stands for null among numbers."""
OK, REFUSED, FULL, PROGRAM, LEFT = 1, 0, -1, -2, -3
"""What functions return. FULL: a table has no room left, `run.want` says which. PROGRAM: the layout that
`run.key` and `run.version` name has to be loaded. LEFT: a connection of a part was not what it was taken for
(`kwsniff.kernel.left`). After each, the caller is called again as it was."""


@inlined
def int16(data: Any, pos: int) -> int:
    """Signed, two bytes."""
    value = (int64(data[uintp(pos)]) << 8) | int64(data[uintp(pos + 1)])
    return value - 0x10000 if value & 0x8000 else value


@inlined
def int32(data: Any, pos: int) -> int:
    """Signed, four bytes."""
    value = uint32(data, pos)
    return value - 0x100000000 if value & 0x80000000 else value


@kernel
def uvarint(data: Any, pos: int, end: int) -> tuple[int, int]:
    """UNSIGNED_VARINT (KIP-482) and the position behind it; the position is -1 if it does not end in time,
    -2 if it has more bits than its type."""
    value, shift = int64(0), int64(0)
    while pos < end and shift < 35:
        octet = int64(data[uintp(pos)])
        pos += 1
        value |= (octet & 0x7F) << shift
        if octet < 0x80:
            return (value, pos) if value <= 0xFFFFFFFF else (int64(0), int64(-2))
        shift += 7
    return int64(0), int64(-1) if shift < 35 else int64(-2)


@inlined
def distance(seq: int, origin: int) -> int:
    """From one sequence number to another, modulo 2³² and signed (RFC 1982)."""
    return ((seq - origin + 0x80000000) & 0xFFFFFFFF) - 0x80000000
