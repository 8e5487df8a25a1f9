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

from typing import Any

from kwsniff.kernel.checksum import crc32, crc32c
from kwsniff.kernel.mode import int64, kernel
from kwsniff.kernel.numbers import NONE, byte, int32, int64_at, uint32

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
