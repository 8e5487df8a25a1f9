"""Whether kernel functions are being compiled or interpreted.

Interpreted, which is how the package is imported, `kernel` and `inlined` leave functions as they are and the
integer types of numba are `int`. `kwsniff.engine.build` sets `COMPILING` before it imports the kernels;
then they make numba compile.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any, TypeVar
from zlib import crc32 as zlib_crc32

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


# Big-endian numbers in byte arrays; nothing here checks bounds.


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


# What Python has ready-made, for interpreted kernels that would go through bytes one by one.
#
# Compiled, `instead_of` leaves the kernel as it is. Both do the same, which the tests hold together; only the
# hash differs, which no result depends on.


def instead_of(kernel: F, native: Callable[..., Any]) -> F:
    """The kernel when compiling, what Python has otherwise."""
    return kernel if COMPILING else native  # type: ignore[return-value]


def hashed(data: Any, pos: int, size: int, kind: int, seed: int) -> int:
    """Python's own hash, which is keyed anew in each process."""
    return hash((bytes(data[pos : pos + size]), kind, seed)) & 0xFFFFFFFF


def mixed(a: int, b: int, c: int, seed: int) -> int:
    """The same of three numbers."""
    return hash((a, b, c, seed)) & 0xFFFFFFFF


def same(one: Any, at: int, other: Any, pos: int, size: int) -> bool:
    """Whether two stretches of bytes are equal."""
    return bool(one[at : at + size] == other[pos : pos + size])


def copy(source: Any, pos: int, size: int, target: Any, at: int) -> None:
    """Copy bytes."""
    target[at : at + size] = source[pos : pos + size]


def is_text(data: Any, pos: int, end: int) -> int:
    """Position of the first byte that is not UTF-8, -1 if all are."""
    try:
        str(memoryview(data)[pos:end], "utf-8")
    except UnicodeDecodeError as error:
        return pos + error.start
    return -1


def crc32(data: Any, start: int, end: int) -> int:
    """CRC-32 of `data[start:end]`."""
    return zlib_crc32(memoryview(data)[start:end])


def crc32c(data: Any, start: int, end: int) -> int:
    """CRC-32C of `data[start:end]`."""
    from crc32c import crc32c as package_crc32c

    return int(package_crc32c(memoryview(data)[start:end]))
