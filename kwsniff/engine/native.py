"""What Python has ready-made, for interpreted kernels that would go through bytes one by one.

Compiled, `instead_of` leaves the kernel as it is. Both do the same, which the tests hold together; only the
hash differs, which no result depends on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar
from zlib import crc32 as zlib_crc32

from kwsniff.native.mode import COMPILING

F = TypeVar("F", bound=Callable[..., Any])


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
