"""CRC-32C (Castagnoli, RFC 3720 B.4) for compiled kernels: by the processor's instruction where there is one.

The package `crc32c`, which the exact path uses, cannot be called from compiled code without a Python call
for each batch.
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from kwsniff.engine.bulk.kernel import kernel

Bytes = NDArray[np.uint8]

_INSTRUCTION = "llvm.x86.sse42.crc32.64.64"
_POLYNOMIAL = 0x82F63B78


def _has_instruction() -> bool:
    features = llvm.get_host_cpu_features()
    return llvm.get_process_triple().startswith("x86_64") and bool(features.get("sse4.2", False))


def _table() -> NDArray[np.uint32]:
    """Slicing by eight: row i is the effect of a byte that is followed by i zero bytes."""
    first = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        first = np.where(first & 1, (first >> 1) ^ np.uint32(_POLYNOMIAL), first >> 1).astype(np.uint32)
    rows = [first]
    for _ in range(7):
        rows.append((rows[-1] >> np.uint32(8)) ^ first[rows[-1] & 0xFF])
    return np.stack(rows)


_TABLE = _table()


@intrinsic  # type: ignore[untyped-decorator]
def _instruction(context: Any, crc: Any, word: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = ir.FunctionType(ir.IntType(64), [ir.IntType(64), ir.IntType(64)])
        function = builder.module.globals.get(_INSTRUCTION)
        return builder.call(function or ir.Function(builder.module, kind, name=_INSTRUCTION), args)

    return types.uint64(types.uint64, types.uint64), generate


@kernel
def _word(buf: Bytes, pos: int) -> Any:
    """Eight bytes, the first least significant."""
    value = types.uint64(0)
    for index in range(8):
        value |= types.uint64(buf[pos + index]) << types.uint64(8 * index)
    return value


@kernel
def _by_instruction(buf: Bytes, start: int, end: int) -> int:
    crc = types.uint64(0xFFFFFFFF)
    stop = end - (end - start) % 8
    for word in buf[start:stop].view(np.uint64):
        crc = _instruction(crc, word)
    return _tail(buf, stop, end, types.uint32(crc))


@kernel
def by_table(buf: Bytes, start: int, end: int) -> int:
    crc = types.uint32(0xFFFFFFFF)
    pos = start
    while pos + 8 <= end:
        word = _word(buf, pos) ^ types.uint64(crc)
        crc = types.uint32(0)
        for index in range(8):
            crc ^= _TABLE[7 - index, types.int64((word >> types.uint64(8 * index)) & types.uint64(0xFF))]
        pos += 8
    return _tail(buf, pos, end, crc)


@kernel
def _tail(buf: Bytes, pos: int, end: int, crc: int) -> Any:
    for at in range(pos, end):
        crc = (crc >> types.uint32(8)) ^ _TABLE[0, types.int64((crc ^ buf[at]) & types.uint32(0xFF))]
    return types.int64(crc ^ types.uint32(0xFFFFFFFF))


crc32c = _by_instruction if _has_instruction() else by_table
"""Takes a byte array, start and end; returns the checksum as a non-negative number."""
