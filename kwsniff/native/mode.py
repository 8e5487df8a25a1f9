"""Whether kernel functions are being compiled or interpreted.

Interpreted, which is how the package is imported, `kernel` and `inlined` leave functions as they are and the
integer types of numba are `int`. `kwsniff.engine.build` sets `COMPILING` before it imports the kernels;
then they make numba compile.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

COMPILING = os.environ.get("KWSNIFF_COMPILING") == "1"

if COMPILING:
    from numba import njit, types

    int64 = types.int64
    uintp = types.uintp
    # Without numba's run-time system nothing is counted or allocated; with the error model of NumPy nothing
    # raises.
    _OPTIONS: Any = {"nogil": True, "error_model": "numpy", "_nrt": False}

    def kernel(function: F) -> F:
        """Compile as a function of its own, which LLVM may put into its callers."""
        compiled: F = njit(**_OPTIONS)(function)
        return compiled

    def inlined(function: F) -> F:
        """Compile as a part of every caller: for what is shorter than a call."""
        compiled: F = njit(forceinline=True, **_OPTIONS)(function)
        return compiled

else:
    int64 = uintp = int

    def kernel(function: F) -> F:
        """Leave a function as it is."""
        return function

    inlined = kernel


def made(name: str, parameters: str, lines: Iterable[str], **names: Any) -> Any:
    """A kernel of these lines, which are written from what tables declare; `names` are those that it uses."""
    source = f"def {name}({parameters}):\n" + "".join(f"    {line}\n" for line in lines)
    exec(compile(source, f"<{name}>", "exec"), names)  # the source is our own
    return kernel(names[name])


# Big-endian numbers in byte arrays; nothing here checks bounds. What is read from a byte array is made a
# 64-bit integer at once: compiled, a `uint8` would wrap.


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


def instead_of(kernel: F, native: Callable[..., Any]) -> F:
    """The kernel when compiling, what Python has ready-made otherwise: for interpreted kernels that would go
    through bytes one by one. Both do the same, which the tests hold together."""
    return kernel if COMPILING else native  # type: ignore[return-value]
