"""Message sets of magic 0 and 1, the record data of brokers and clients before 0.11 (KIP-32).

Theory of operation. A message is an offset, a length, a CRC-32, magic, attributes, in magic 1 a timestamp,
then key and value. A message whose attributes name a codec is a wrapper: its value decompresses to a message
set, whose messages may be wrappers again. Offsets inside a wrapper are absolute in magic 0; in magic 1 they
count from the first inner message, and the wrapper has the offset of the last one. So the inside has to be
walked once for its last offset before any message can be given its own.

Invariants. All wrappers inside one outer message share one allowance of decompressed bytes, or a few nested
ones could multiply the limits; nesting is bounded; every hop goes forward.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from kwsniff.config import Config
from kwsniff.spec.binary import DecodeError
from kwsniff.spec.codecs import Allowance

# Record data: the constants of its formats.
#
# The field `records` of Produce, Fetch, ShareFetch and FetchSnapshot holds batches one after the other, each
# starting with an offset (8 bytes) and the length of what follows (4 bytes). The byte 16 after the start is
# the magic in every format ever used, so one can hop from batch to batch:
#
# * magic 2 (KIP-98): a 61-byte header with the number of records and a CRC-32C of all after the CRC field;
# * magic 0 and 1 (KIP-32): one message each, with a CRC-32. A compressed message wraps a whole message set,
#   and only decompressing it tells how many messages: the count is then unknown, never guessed.
#
# A fetch response may end inside a batch: brokers cut by bytes, and the consumer asks again (protocol guide).

UNKNOWN_CODEC = "unknown"
CODEC_NAMES = ("none", "gzip", "snappy", "lz4", "zstd", UNKNOWN_CODEC, UNKNOWN_CODEC, UNKNOWN_CODEC)
"""By the three codec bits of the attributes."""

CODEC_MASK = 0x07
TIMESTAMP_TYPE_BIT, TRANSACTIONAL_BIT, CONTROL_BIT, DELETE_HORIZON_BIT = 0x08, 0x10, 0x20, 0x40

LOG_OVERHEAD = 12
"""Bytes of offset and length, which the length does not count."""
MAGIC_AT = 16
BATCH_HEADER = 61
CRC_FROM = 21
"""In a magic 2 batch: the CRC covers the bytes from here."""
MIN_RECORD = 7
"""Bytes of the smallest magic 2 record: seven one-byte fields."""
MIN_MESSAGE = (14, 22)
"""Bytes after the length of the smallest message of magic 0 and 1: null key, null value."""


def least_length(magic: int) -> int:
    """Smallest length (without offset and length fields) of a batch of a known magic."""
    return BATCH_HEADER - LOG_OVERHEAD if magic == 2 else MIN_MESSAGE[magic]


_unpack_header = Struct(">qiIbB").unpack_from
_unpack_entry = Struct(">qi").unpack_from
_unpack_int64 = Struct(">q").unpack_from
_unpack_int32 = Struct(">i").unpack_from
_KEY_AT = (18, 26)


class Record(NamedTuple):
    """One record (magic 2) or message (magic 0 and 1)."""

    offset: int
    timestamp: int | None
    """Milliseconds since 1970 UTC; None in magic 0, which has none."""
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    crc_ok: bool | None = None
    """Of a message's own CRC; None in magic 2, where the batch has it, and if not verified."""


class Header(NamedTuple):
    """The fixed part of a message."""

    offset: int
    crc: int
    magic: int
    codec: int
    timestamp: int | None
    log_append: bool


def header(buf: bytes, start: int) -> Header:
    """Read the fixed part of the message at `start`, which must be complete."""
    offset, _, crc, magic, attributes = _unpack_header(buf, start)
    timestamp = _unpack_int64(buf, start + 18)[0] if magic else None
    log_append = bool(magic and attributes & TIMESTAMP_TYPE_BIT)
    return Header(offset, crc, magic, attributes & CODEC_MASK, timestamp, log_append)


def records(buf: bytes, start: int, end: int, config: Config, allowance: Allowance) -> Iterator[Record]:
    """Yield the messages of one complete outer message of `buf`: itself, or what it wraps.

    Raises:
        DecodeError: `batch_malformed`, `nesting_limit`, or what `kwsniff.spec.codecs.decompress` raises.
    """
    offset = _unpack_int64(buf, start)[0]
    yield from _Unwrapper(config, allowance).unwrap(buf, start, end, offset, None, 0)


class _Unwrapper:
    __slots__ = ("allowance", "config")

    def __init__(self, config: Config, allowance: Allowance) -> None:
        self.config, self.allowance = config, allowance

    def unwrap(
        self, buf: bytes, start: int, end: int, offset: int, appended: int | None, depth: int
    ) -> Iterator[Record]:
        """`offset` is the message's own, `appended` the time that a wrapper around it has from the broker."""
        message = header(buf, start)
        key, pos = _bytes(buf, start + _KEY_AT[message.magic], end)
        value, pos = _bytes(buf, pos, end)
        if pos != end:
            raise DecodeError("batch_malformed")
        if message.codec == 0:
            crc_ok = None
            if self.config.verify_crc:
                crc_ok = crc32(memoryview(buf)[start + MAGIC_AT : end]) == message.crc
            timestamp = message.timestamp if appended is None or message.magic == 0 else appended
            yield Record(offset, timestamp, key, value, crc_ok=crc_ok)
            return
        if depth >= self.config.max_nesting:
            raise DecodeError("nesting_limit")
        if value is None:
            raise DecodeError("batch_malformed")
        inside = self.allowance.decompress(message.codec, value, legacy=True)
        first = _first_offset(inside, message.magic, offset)
        if appended is None and message.log_append:
            appended = message.timestamp
        for inner_offset, inner_start, inner_end in _entries(inside):
            yield from self.unwrap(inside, inner_start, inner_end, first + inner_offset, appended, depth + 1)


def _first_offset(inside: bytes, magic: int, offset: int) -> int:
    """What to add to the offsets inside a wrapper.

    Producers may leave the wrapper's offset 0, which would make offsets negative: theirs count from 0.
    """
    if magic == 0:
        return 0
    last = 0
    for entry in _entries(inside):
        last = entry[0]
    return max(offset - last, 0)


def _entries(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Offset, start and end of every message of a set, which must be whole."""
    pos, end = 0, len(data)
    while pos < end:
        if end - pos < LOG_OVERHEAD + MIN_MESSAGE[0]:
            raise DecodeError("batch_malformed")
        offset, length = _unpack_entry(data, pos)
        magic = data[pos + MAGIC_AT]
        stop = pos + LOG_OVERHEAD + length
        if magic > 1 or length < MIN_MESSAGE[magic] or stop > end:
            raise DecodeError("batch_malformed")
        yield offset, pos, stop
        pos = stop


def _bytes(buf: bytes, pos: int, end: int) -> tuple[bytes | None, int]:
    if pos + 4 > end:
        raise DecodeError("batch_malformed")
    size = _unpack_int32(buf, pos)[0]
    pos += 4
    if size == -1:
        return None, pos
    if size < 0 or pos + size > end:
        raise DecodeError("batch_malformed")
    return buf[pos : pos + size], pos + size
