"""Record data by its batch headers alone: records, codecs, first offset and what is wrong.

Theory of operation. The field `records` of Produce, Fetch, ShareFetch and FetchSnapshot holds batches one
after the other, each starting with an offset (8 bytes) and the length of what follows (4 bytes). The byte
16 after the start is the magic in every format ever used, so one can hop from batch to batch:

* magic 2 (KIP-98): a 61-byte header with the number of records and a CRC-32C of all after the CRC field;
* magic 0 and 1 (KIP-32): one message each, with a CRC-32. A compressed message wraps a whole message set,
  and only decompressing it tells how many messages: the count is then unknown, never guessed.

A fetch response may end inside a batch: brokers cut by bytes, and the consumer asks again (protocol guide).

Invariant: every hop goes forward by at least 26 bytes, and nothing beyond `end` is read.
"""

from __future__ import annotations

import os
from typing import Any

from kwsniff.engine.numbers import NONE, byte, int32, int64_at, uint32
from kwsniff.native import mode as native
from kwsniff.native.mode import COMPILING, int64, kernel, uintp

CUT_SHORT, CODEC_UNKNOWN, MALFORMED = 1, 2, 4
"""Bits of `damage`."""

_OVERHEAD = 12
"""Bytes of offset and length, which the length does not count."""
_MAGIC_AT = 16
_HEADER = 61
_CRC_FROM = 21
_MIN_RECORD = 7
"""Bytes of the smallest magic 2 record: seven one-byte fields."""
_UNKNOWN_CODEC = 5


@kernel
def with_codec(codecs: int, codec: int) -> int:
    """A list of codecs (four bits each, the first lowest, codec + 1) with one more if it is not in it."""
    shift = int64(0)
    while (codecs >> shift) & 15:
        if (codecs >> shift) & 15 == codec + 1:
            return codecs
        shift += 4
    return codecs | (codec + 1) << shift


@kernel
def _least(magic: int) -> int:
    """Smallest length of a batch or message: without key and value, or without records."""
    return 49 if magic == 2 else 22 if magic == 1 else 14


@kernel
def sum_up(data: Any, start: int, end: int, is_request: bool, verify: bool, row: Any) -> int:
    """Fill what `row` says of the record data `data[start:end]`; returns the offset of the first record, NONE
    if it is not known. Sums are of complete batches only."""
    count, codecs, base, mismatches, damage = int64(0), int64(0), int64(NONE), int64(0), int64(0)
    batches, unknown = int64(0), False
    pos = start
    while pos < end:
        left = end - pos
        if left <= _MAGIC_AT:
            if left >= _OVERHEAD and int32(data, pos + 8) < 14:
                damage, unknown = int64(MALFORMED), True
            elif is_request:
                damage |= CUT_SHORT
            break
        length, magic = int32(data, pos + 8), byte(data, pos + _MAGIC_AT)
        if magic > 2 or length < _least(magic):
            damage, unknown = int64(MALFORMED), True
            break
        stop = pos + _OVERHEAD + length
        if stop > end:
            if is_request:
                damage |= CUT_SHORT
            break
        codec = byte(data, pos + (_CRC_FROM + 1 if magic == 2 else 17)) & 7
        if magic == 2:
            records = int32(data, pos + _HEADER - 4)
            if records < 0 or (codec == 0 and records * _MIN_RECORD > stop - pos - _HEADER):
                damage, unknown = int64(MALFORMED), True
                break
            count += records
            if batches == 0:
                base = int64_at(data, pos)
            if verify and crc32c(data, pos + _CRC_FROM, stop) != uint32(data, pos + _MAGIC_AT + 1):
                mismatches += 1
        else:
            if codec:
                unknown = True
            else:
                count += 1
                if batches == 0:
                    base = int64_at(data, pos)
            if verify and crc32(data, pos + _MAGIC_AT, stop) != uint32(data, pos + _OVERHEAD):
                mismatches += 1
        if codec >= _UNKNOWN_CODEC:
            codec = int64(_UNKNOWN_CODEC)
            damage |= CODEC_UNKNOWN
        codecs = with_codec(codecs, codec)
        batches += 1
        pos = stop
    row.records = NONE if unknown else count
    row.bytes, row.codecs, row.mismatches, row.damage = end - start, codecs, mismatches, damage
    row.batches = batches
    return base


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
