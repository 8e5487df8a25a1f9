"""CRC-32C (Castagnoli, RFC 3720 B.4) of record batches and CRC-32 of old messages.

Compiled for an x86-64 that has it, CRC-32C is the processor's own instruction; else both go by tables that
take eight bytes at a time. Interpreted, the packages that Python has do it.
"""

from __future__ import annotations

import os
from typing import Any

from kwsniff.kernel import native
from kwsniff.kernel.mode import COMPILING, int64, kernel, uintp
from kwsniff.kernel.numbers import byte


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
            low = byte(data, pos) | byte(data, pos + 1) << 8 | byte(data, pos + 2) << 16
            low |= byte(data, pos + 3) << 24 | byte(data, pos + 4) << 32 | byte(data, pos + 5) << 40
            low |= byte(data, pos + 6) << 48 | byte(data, pos + 7) << 56
            crc = _instruction(crc, low)
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
        crc ^= byte(data, pos) | byte(data, pos + 1) << 8
        crc ^= byte(data, pos + 2) << 16 | byte(data, pos + 3) << 24
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


crc32c = native.instead_of(
    by_instruction if COMPILING and _has_instruction() else crc32c_by_table, native.crc32c
)
crc32 = native.instead_of(crc32_by_table, native.crc32)
