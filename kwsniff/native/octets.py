"""Stretches of bytes: comparing and copying them, whether they are text, hashes and checksums.

Each is a kernel, and what Python has ready-made for interpreted kernels. Both do the same; only the hash
differs, which no result depends on. It is HalfSipHash-1-3 (Aumasson and Bernstein).
"""

from __future__ import annotations

import os
from typing import Any
from zlib import crc32 as zlib_crc32

from kwsniff.native.mode import COMPILING, byte, inlined, instead_of, int64, kernel, uintp


@inlined
def _rotated(word: int, by: int) -> int:
    return ((word << by) | (word >> (32 - by))) & 0xFFFFFFFF


@inlined
def _round(v0: int, v1: int, v2: int, v3: int) -> tuple[int, int, int, int]:
    v0 = (v0 + v1) & 0xFFFFFFFF
    v1 = _rotated(v1, 5) ^ v0
    v0 = _rotated(v0, 16)
    v2 = (v2 + v3) & 0xFFFFFFFF
    v3 = _rotated(v3, 8) ^ v2
    v0 = (v0 + v3) & 0xFFFFFFFF
    v3 = _rotated(v3, 7) ^ v0
    v2 = (v2 + v1) & 0xFFFFFFFF
    v1 = _rotated(v1, 13) ^ v2
    v2 = _rotated(v2, 16)
    return v0, v1, v2, v3


@inlined
def _little(data: Any, pos: int) -> int:
    """Four bytes, the first least significant."""
    return byte(data, pos) | byte(data, pos + 1) << 8 | byte(data, pos + 2) << 16 | byte(data, pos + 3) << 24


@kernel
def hash_of(data: Any, pos: int, size: int, kind: int, seed: int) -> int:
    """Keyed hash of `size` bytes, 32 bits."""
    low, high = seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF
    v0, v1, v2, v3 = low, high ^ kind, low ^ int64(0x6C796765), high ^ int64(0x74656462)
    whole = pos + (size & ~3)
    at = pos
    while at < whole:
        word = _little(data, at)
        v3 ^= word
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
        v0 ^= word
        at += 4
    word = (size & 0xFF) << 24
    shift = int64(0)
    while at < pos + size:
        word |= byte(data, at) << shift
        shift += 8
        at += 1
    v3 ^= word
    v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    v0 ^= word
    v2 ^= 0xFF
    v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    return (v1 ^ v3) & 0xFFFFFFFF


@kernel
def mix_of(a: int, b: int, c: int, seed: int) -> int:
    """Keyed hash of three numbers, 32 bits."""
    low, high = seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF
    v0, v1, v2, v3 = low, high, low ^ int64(0x6C796765), high ^ int64(0x74656462)
    for number in range(3):
        word = (a if number == 0 else b if number == 1 else c) & 0xFFFFFFFF
        v3 ^= word
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
        v0 ^= word
    v2 ^= 0xFF
    v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    return (v1 ^ v3) & 0xFFFFFFFF


@inlined
def _eight(data: Any, pos: int) -> int:
    """Eight bytes, the first least significant."""
    return _little(data, pos) | _little(data, pos + 4) << 32


@kernel
def same_bytes(one: Any, at: int, other: Any, pos: int, size: int) -> bool:
    """Whether two stretches of bytes are equal."""
    done = int64(0)
    while done + 8 <= size:
        if _eight(one, at + done) != _eight(other, pos + done):
            return False
        done += 8
    while done < size:
        if one[uintp(at + done)] != other[uintp(pos + done)]:
            return False
        done += 1
    return True


@kernel
def copy_bytes(source: Any, pos: int, size: int, target: Any, at: int) -> None:
    """Copy bytes, from the first on."""
    for index in range(uintp(size)):
        target[uintp(at) + index] = source[uintp(pos) + index]


@kernel
def not_text(data: Any, pos: int, end: int) -> int:
    """Position of the first character that is not UTF-8 (RFC 3629), -1 if all are."""
    while pos + 8 <= end and not _eight(data, pos) & -0x7F7F7F7F7F7F7F80:
        pos += 8
    while pos < end:
        first = byte(data, pos)
        if first < 0x80:
            pos += 1
            continue
        more, low, high = int64(1), int64(0x80), int64(0xBF)
        if first < 0xC2 or first > 0xF4:
            return pos
        if first >= 0xF0:
            more = int64(3)
            if first == 0xF0:
                low = int64(0x90)
            elif first == 0xF4:
                high = int64(0x8F)
        elif first >= 0xE0:
            more = int64(2)
            if first == 0xE0:
                low = int64(0xA0)
            elif first == 0xED:
                high = int64(0x9F)
        if end - pos <= more:
            return pos
        second = byte(data, pos + 1)
        if second < low or second > high:
            return pos
        if more > 1 and byte(data, pos + 2) & 0xC0 != 0x80:
            return pos
        if more > 2 and byte(data, pos + 3) & 0xC0 != 0x80:
            return pos
        pos += 1 + more
    return int64(-1)


# CRC-32C (Castagnoli, RFC 3720 B.4) of record batches and CRC-32 of old messages.
#
# Compiled for an x86-64 that has it, CRC-32C is the processor's own instruction; else both go by tables that
# take eight bytes at a time. Interpreted, the packages that Python has do it.


def _table(polynomial: int) -> list[int]:
    """Slicing by eight: entry 256 * i + b is the effect of byte b that is followed by i zero bytes."""
    entries = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ polynomial if value & 1 else value >> 1
        entries.append(value)
    for at in range(256, 8 * 256):
        entries.append((entries[at - 256] >> 8) ^ entries[entries[at - 256] & 0xFF])
    return entries


_CASTAGNOLI, _IEEE = _table(0x82F63B78), _table(0xEDB88320)

if COMPILING:
    import llvmlite.binding as llvm
    import numpy as np
    from llvmlite import ir
    from numba import types
    from numba.extending import intrinsic

    _CASTAGNOLI, _IEEE = np.array(_CASTAGNOLI, np.int64), np.array(_IEEE, np.int64)
    _NAME = "llvm.x86.sse42.crc32.64.64"

    @intrinsic  # type: ignore[untyped-decorator]
    def _instruction(context: Any, crc: Any, word: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            kind = ir.FunctionType(ir.IntType(64), [ir.IntType(64), ir.IntType(64)])
            function = builder.module.globals.get(_NAME)
            return builder.call(function or ir.Function(builder.module, kind, name=_NAME), args)

        return types.int64(types.int64, types.int64), generate

    @kernel
    def by_instruction(data: Any, start: int, end: int) -> int:
        """CRC-32C eight bytes at a time."""
        crc, pos = int64(0xFFFFFFFF), start
        while pos + 8 <= end:
            crc = _instruction(crc, _eight(data, pos))
            pos += 8
        while pos < end:
            crc = (crc >> 8) ^ _CASTAGNOLI[(crc ^ byte(data, pos)) & 0xFF]
            pos += 1
        return crc ^ 0xFFFFFFFF

    def _has_instruction() -> bool:
        """Whether the processor that is compiled for has SSE 4.2: this machine's, if nothing else is said."""
        said = os.environ.get("KWSNIFF_CRC32C")
        if said:
            return said == "instruction"
        features = llvm.get_host_cpu_features()
        return llvm.get_process_triple().startswith("x86_64") and bool(features.get("sse4.2", False))


@kernel
def _by_table(table: Any, data: Any, start: int, end: int) -> int:
    crc, pos = int64(0xFFFFFFFF), start
    while pos + 8 <= end:
        crc ^= _little(data, pos)
        crc = (
            table[uintp(0x700 + (crc & 0xFF))]
            ^ table[uintp(0x600 + (crc >> 8 & 0xFF))]
            ^ table[uintp(0x500 + (crc >> 16 & 0xFF))]
            ^ table[uintp(0x400 + (crc >> 24))]
            ^ table[uintp(0x300 + byte(data, pos + 4))]
            ^ table[uintp(0x200 + byte(data, pos + 5))]
            ^ table[uintp(0x100 + byte(data, pos + 6))]
            ^ table[uintp(byte(data, pos + 7))]
        )
        pos += 8
    while pos < end:
        crc = (crc >> 8) ^ table[uintp((crc ^ byte(data, pos)) & 0xFF)]
        pos += 1
    return crc ^ 0xFFFFFFFF


@kernel
def crc32c_by_table(data: Any, start: int, end: int) -> int:
    """CRC-32C of `data[start:end]`."""
    return _by_table(_CASTAGNOLI, data, start, end)


@kernel
def crc32_by_table(data: Any, start: int, end: int) -> int:
    """CRC-32 of `data[start:end]`."""
    return _by_table(_IEEE, data, start, end)


# The same by what Python has.


def hash_by_python(data: Any, pos: int, size: int, kind: int, seed: int) -> int:
    """Python's own hash, which is keyed anew in each process."""
    return hash((bytes(data[pos : pos + size]), kind, seed)) & 0xFFFFFFFF


def mix_by_python(a: int, b: int, c: int, seed: int) -> int:
    """The same of three numbers."""
    return hash((a, b, c, seed)) & 0xFFFFFFFF


def same_by_python(one: Any, at: int, other: Any, pos: int, size: int) -> bool:
    """Whether two stretches of bytes are equal."""
    return bool(one[at : at + size] == other[pos : pos + size])


def copy_by_python(source: Any, pos: int, size: int, target: Any, at: int) -> None:
    """Copy bytes."""
    target[at : at + size] = source[pos : pos + size]


def text_by_python(data: Any, pos: int, end: int) -> int:
    """Position of the first byte that is not UTF-8, -1 if all are."""
    try:
        str(memoryview(data)[pos:end], "utf-8")
    except UnicodeDecodeError as error:
        return pos + error.start
    return -1


def crc32_by_python(data: Any, start: int, end: int) -> int:
    """CRC-32 of `data[start:end]`."""
    return zlib_crc32(memoryview(data)[start:end])


def crc32c_by_python(data: Any, start: int, end: int) -> int:
    """CRC-32C of `data[start:end]`."""
    from crc32c import crc32c as package_crc32c

    return int(package_crc32c(memoryview(data)[start:end]))


hashed = instead_of(hash_of, hash_by_python)
mixed = instead_of(mix_of, mix_by_python)
same = instead_of(same_bytes, same_by_python)
copy = instead_of(copy_bytes, copy_by_python)
invalid_at = instead_of(not_text, text_by_python)
crc32 = instead_of(crc32_by_table, crc32_by_python)
crc32c = instead_of(by_instruction if COMPILING and _has_instruction() else crc32c_by_table, crc32c_by_python)
