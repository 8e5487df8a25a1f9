"""Record data by its batch headers, compiled: the usual cases of `kwsniff.wire.records`.

Anything else (magic 0 and 1, several codecs, damage, a wrong CRC) is refused, and left to that module.
"""

from __future__ import annotations

from kwsniff.engine.bulk.checksum import crc32c
from kwsniff.engine.bulk.kernel import kernel
from kwsniff.engine.bulk.numbers import NONE, Bytes, int16, int32, int64
from kwsniff.wire.records import BATCH_HEADER, CODEC_MASK, CRC_FROM, LOG_OVERHEAD, MAGIC_AT, MIN_RECORD

NO_CODEC = -1
KNOWN_CODECS = 5


@kernel
def sums(buf: Bytes, start: int, end: int, may_be_cut: bool, verify: bool) -> tuple[bool, int, int, int]:
    """Whether all is usual; then the number of records, the codec and the base offset.

    A fetch response `may_be_cut` inside a batch. Codec and base offset are of the complete batches only.
    """
    records, codec, base = 0, NO_CODEC, NONE
    pos = start
    while pos < end:
        if end - pos < LOG_OVERHEAD:
            return may_be_cut, records, codec, base
        length = int32(buf, pos + 8)
        if length < BATCH_HEADER - LOG_OVERHEAD:
            return False, 0, NO_CODEC, NONE
        if end - pos <= MAGIC_AT:
            return may_be_cut, records, codec, base
        if buf[pos + MAGIC_AT] != 2:
            return False, 0, NO_CODEC, NONE
        stop = pos + LOG_OVERHEAD + length
        if stop > end:
            return may_be_cut, records, codec, base
        count = int32(buf, pos + BATCH_HEADER - 4)
        found = int16(buf, pos + CRC_FROM) & CODEC_MASK
        if count < 0 or found >= KNOWN_CODECS or (codec != NO_CODEC and found != codec):
            return False, 0, NO_CODEC, NONE
        if found == 0 and count * MIN_RECORD > stop - pos - BATCH_HEADER:
            return False, 0, NO_CODEC, NONE
        if verify and crc32c(buf, pos + CRC_FROM, stop) != int32(buf, pos + MAGIC_AT + 1) & 0xFFFFFFFF:
            return False, 0, NO_CODEC, NONE
        if codec == NO_CODEC:
            base = int64(buf, pos)
        codec = found
        records += count
        pos = stop
    return True, records, codec, base
