"""Record data by its batch headers alone: what a call report needs, without decompressing or copying.

Theory of operation. The field `records` of Produce, Fetch, ShareFetch and FetchSnapshot holds batches one
after the other, each starting with an offset (8 bytes) and the length of what follows (4 bytes). The byte
16 after the start is the magic in every format ever used, so one can hop from batch to batch:

* magic 2 (KIP-98): a 61-byte header with the number of records and a CRC-32C of all after the CRC field;
* magic 0 and 1 (KIP-32): one message each, with a CRC-32. A compressed message wraps a whole message set,
  and only decompressing it tells how many messages: the count is then unknown, never guessed.

A fetch response may end inside a batch: brokers cut by bytes, and the consumer asks again (protocol guide).

Invariants. Every hop goes forward by at least 26 bytes, nothing beyond `end` is read, nothing is raised:
what is wrong is told in the summary. The usual case, one magic 2 batch that fills the span, is first and
written for speed.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple
from zlib import crc32

from crc32c import crc32c

from kwsniff.spec.batches import (
    BATCH_HEADER,
    CODEC_MASK,
    CODEC_NAMES,
    CONTROL_BIT,
    CRC_FROM,
    LOG_OVERHEAD,
    MAGIC_AT,
    MIN_MESSAGE,
    MIN_RECORD,
    TRANSACTIONAL_BIT,
    UNKNOWN_CODEC,
    least_length,
)

_unpack_batch = Struct(">qi4xbIH12xq14xi").unpack_from
_unpack_entry = Struct(">qi").unpack_from
_unpack_message = Struct(">IbB").unpack_from
_unpack_timestamp = Struct(">q").unpack_from
_new = tuple.__new__
_COPY_UP_TO = 8192
"""A slice of bytes up to this size is copied in less time than a memoryview is made."""


class RecordsSummary(NamedTuple):
    """What the batch headers of one `records` field say."""

    records: int | None
    """Records in the complete batches, control records too; None if a compressed magic 0 or 1 wrapper
    is among them, or a header is malformed."""
    bytes: int
    """Size of the record data as sent, with a partial last batch."""
    codec: str | None
    """none, gzip, snappy, lz4, zstd, unknown; several joined by + in order of first appearance; None
    without a complete batch."""
    base_offset: int | None
    """Offset of the first record of the first batch; None if it is a compressed magic 0 or 1 wrapper
    (whose header holds the last offset) or there is no complete batch."""
    batches: int
    """Complete batches; in magic 0 and 1 every outer message is one."""
    partial: bool
    """The data ends inside a batch."""
    crc_mismatches: int
    """Batches whose CRC is not that of their bytes; 0 if not verified."""
    malformed: str | None
    """`batch_malformed` or `codec_unknown`, the first found. After `batch_malformed` nothing is read."""
    control: int
    """Control batches (transaction markers and the metadata log's own)."""
    transactional: bool
    """A batch belongs to a transaction."""
    magics: tuple[int, ...]
    """Magics in order of first appearance."""
    max_timestamp: int | None
    """Greatest timestamp, milliseconds since 1970 UTC; None if no batch holds one."""


_NOTHING = RecordsSummary(0, 0, None, None, 0, False, 0, None, 0, False, (), None)


def summarize(buf: bytes, start: int, end: int, *, verify_crc: bool = True) -> RecordsSummary:
    """Sum up the record data of `buf[start:end]` without reading any payload but for its CRC.

    Args:
        buf: a message or more, of which the record data is a part.
        start: its first byte.
        end: the byte after its last.
        verify_crc: compare the CRC of every complete batch with that of its bytes.
    """
    size = end - start
    if not size:
        return _NOTHING
    if size >= BATCH_HEADER and end <= len(buf):
        base_offset, length, magic, crc, attributes, max_timestamp, count = _unpack_batch(buf, start)
        if length + LOG_OVERHEAD == size and magic == 2 and attributes < CONTROL_BIT:
            codec = attributes & CODEC_MASK
            if count >= 0 and (0 < codec < 5 if codec else count * MIN_RECORD <= size - BATCH_HEADER):
                if not verify_crc:
                    mismatches = 0
                elif size <= _COPY_UP_TO:
                    mismatches = int(crc32c(buf[start + CRC_FROM : end]) != crc)
                else:
                    mismatches = int(crc32c(memoryview(buf)[start + CRC_FROM : end]) != crc)
                return _new(
                    RecordsSummary,
                    (
                        count,
                        size,
                        CODEC_NAMES[codec],
                        base_offset,
                        1,
                        False,
                        mismatches,
                        None,
                        0,
                        attributes >= TRANSACTIONAL_BIT,
                        (2,),
                        max_timestamp if max_timestamp >= 0 else None,
                    ),
                )
    return _Tally(buf, start, end, verify_crc).summary()


class _Tally:
    """Any other record data: several batches, old magics, control batches, damage, nothing at all."""

    __slots__ = (
        "base_offset",
        "batches",
        "buf",
        "codecs",
        "control",
        "end",
        "magics",
        "malformed",
        "max_timestamp",
        "mismatches",
        "partial",
        "records",
        "start",
        "transactional",
        "unknown_count",
        "verify_crc",
        "view",
    )

    def __init__(self, buf: bytes, start: int, end: int, verify_crc: bool) -> None:
        self.buf, self.start, self.end, self.verify_crc = buf, start, min(end, len(buf)), verify_crc
        self.view = memoryview(buf)
        self.records = self.batches = self.mismatches = self.control = 0
        self.partial = self.transactional = self.unknown_count = False
        self.base_offset: int | None = None
        self.malformed: str | None = None
        self.max_timestamp = -1
        self.codecs: list[str] = []
        self.magics: list[int] = []

    def summary(self) -> RecordsSummary:
        self._hop()
        return RecordsSummary(
            records=None if self.unknown_count else self.records,
            bytes=self.end - self.start,
            codec="+".join(self.codecs) or None,
            base_offset=self.base_offset,
            batches=self.batches,
            partial=self.partial,
            crc_mismatches=self.mismatches,
            malformed=self.malformed,
            control=self.control,
            transactional=self.transactional,
            magics=tuple(self.magics),
            max_timestamp=self.max_timestamp if self.max_timestamp >= 0 else None,
        )

    def _hop(self) -> None:
        pos, end, buf = self.start, self.end, self.buf
        while pos < end and self.malformed != "batch_malformed":
            if end - pos <= MAGIC_AT:
                self._cut_short(pos)
                return
            _, length = _unpack_entry(buf, pos)
            magic = buf[pos + MAGIC_AT]
            if magic > 2 or length < least_length(magic):
                self._contradiction()
            elif pos + LOG_OVERHEAD + length > end:
                self.partial = True
                return
            elif magic == 2:
                self._batch(pos, pos + LOG_OVERHEAD + length)
            else:
                self._message(pos, pos + LOG_OVERHEAD + length, magic)
            pos += LOG_OVERHEAD + length

    def _cut_short(self, pos: int) -> None:
        """Fewer bytes are left than any batch has: legal, unless the length says there are none to come."""
        self.partial = True
        if self.end - pos >= LOG_OVERHEAD and _unpack_entry(self.buf, pos)[1] < MIN_MESSAGE[0]:
            self.partial = False
            self._contradiction()

    def _contradiction(self) -> None:
        self.malformed = "batch_malformed"
        self.unknown_count = True

    def _batch(self, pos: int, end: int) -> None:
        base_offset, _, _, crc, attributes, max_timestamp, count = _unpack_batch(self.buf, pos)
        codec = attributes & CODEC_MASK
        if count < 0 or (codec == 0 and count * MIN_RECORD > end - pos - BATCH_HEADER):
            self._contradiction()
            return
        self._count(2, codec, max_timestamp)
        if self.batches == 1:
            self.base_offset = base_offset
        self.records += count
        self.transactional |= bool(attributes & TRANSACTIONAL_BIT)
        self.control += bool(attributes & CONTROL_BIT)
        if self.verify_crc:
            self.mismatches += crc32c(self.view[pos + CRC_FROM : end]) != crc

    def _message(self, pos: int, end: int, magic: int) -> None:
        crc, _, attributes = _unpack_message(self.buf, pos + LOG_OVERHEAD)
        codec = attributes & CODEC_MASK
        timestamp = _unpack_timestamp(self.buf, pos + 18)[0] if magic else -1
        # Producers leave the time of a wrapper 0, the broker fills it in.
        self._count(magic, codec, -1 if codec and timestamp == 0 else timestamp)
        if codec:
            self.unknown_count = True
        else:
            self.records += 1
            if self.batches == 1:
                self.base_offset = _unpack_timestamp(self.buf, pos)[0]
        if self.verify_crc:
            self.mismatches += crc32(self.view[pos + MAGIC_AT : end]) != crc

    def _count(self, magic: int, codec: int, timestamp: int) -> None:
        self.batches += 1
        name = CODEC_NAMES[codec]
        if name not in self.codecs:
            self.codecs.append(name)
        if name == UNKNOWN_CODEC and self.malformed is None:
            self.malformed = "codec_unknown"
        if magic not in self.magics:
            self.magics.append(magic)
        self.max_timestamp = max(self.max_timestamp, timestamp)
