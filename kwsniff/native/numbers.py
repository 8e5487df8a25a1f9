"""Big-endian numbers in byte arrays; nothing here checks bounds.

What is read from a byte array is made a 64-bit integer at once: compiled, a `uint8` would wrap.
"""

from __future__ import annotations

from typing import Any

from kwsniff.native.mode import inlined, int64, uintp


@inlined
def byte(data: Any, pos: int) -> int:
    """One byte, 0 to 255."""
    return int64(data[uintp(pos)])


@inlined
def uint16(data: Any, pos: int) -> int:
    """Unsigned, two bytes."""
    return (int64(data[uintp(pos)]) << 8) | int64(data[uintp(pos + 1)])


@inlined
def uint32(data: Any, pos: int) -> int:
    """Unsigned, four bytes."""
    return (
        (int64(data[uintp(pos)]) << 24)
        | (int64(data[uintp(pos + 1)]) << 16)
        | (int64(data[uintp(pos + 2)]) << 8)
        | int64(data[uintp(pos + 3)])
    )


@inlined
def signed64(high: int, low: int) -> int:
    """Two unsigned halves of 32 bits as one signed number."""
    return ((high - 0x100000000 if high & 0x80000000 else high) << 32) | low


@inlined
def int64_at(data: Any, pos: int) -> int:
    """Signed, eight bytes."""
    return signed64(uint32(data, pos), uint32(data, pos + 4))
