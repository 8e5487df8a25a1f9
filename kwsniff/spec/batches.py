"""Record data: batches one by one, with their headers; and, when asked, the records inside.

The field `records` of Produce, Fetch, ShareFetch and FetchSnapshot holds batches one after the other, each
starting with an offset (8 bytes) and the length of what follows (4 bytes). The byte 16 after the start is
the magic in every format ever used, so one can hop from batch to batch:

* magic 2 (KIP-98): a 61-byte header with the number of records and a CRC-32C of all after the CRC field;
* magic 0 and 1 (KIP-32): one message each, with a CRC-32. A compressed message wraps a whole message set,
  and only decompressing it tells how many messages: the count is then unknown, never guessed.

A fetch response may end inside a batch: brokers cut by bytes, and the consumer asks again (protocol guide).

`batches` makes the same hops as `kwsniff.engine.steps`, but tells of each batch apart. `records`
decompresses one batch within the limits of the configuration and yields what is in it; it raises at the first
contradiction, after it has given all that came before. A batch with a wrong CRC is decoded all the same: the
CRC is reported, and a passive reader has no better copy to ask for.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from crc32c import crc32c

from kwsniff.config import Config
from kwsniff.spec.binary import DecodeError, varint, varlong
from kwsniff.spec.codecs import Allowance

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


CREATE_TIME, LOG_APPEND_TIME = "create", "log_append"

MAX_HEADERS = 100_000
"""Of one record: no producer sends as many, and each takes far more memory than its two bytes."""

_unpack_entry = Struct(">qi").unpack_from
unpack_header = Struct(">qiibIHiqqqhii").unpack_from
_unpack_message = Struct(">qiIbB").unpack_from
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


class Batch(NamedTuple):
    """One batch of magic 2, or one outer message of magic 0 or 1. None: the format has no such field."""

    start: int
    """Position of its first byte in the buffer."""
    end: int
    magic: int | None = None
    """None if the data ends before it."""
    base_offset: int | None = None
    """Offset of the first record; None for a compressed wrapper, where only the inside tells."""
    last_offset: int | None = None
    """Offset of the last record; of a compressed wrapper as it states it, which in requests is often 0."""
    codec: int = 0
    """The codec bits of the attributes."""
    crc_ok: bool | None = None
    """None if not verified."""
    record_count: int | None = None
    """Records by the header; None for a compressed wrapper."""
    timestamp_type: str | None = None
    """`create` (the producer's clock) or `log_append` (the broker's, then `max_timestamp` is that of all)."""
    base_timestamp: int | None = None
    """Milliseconds since 1970 UTC; the delete horizon if `delete_horizon` (KIP-534)."""
    max_timestamp: int | None = None
    leader_epoch: int | None = None
    producer_id: int | None = None
    producer_epoch: int | None = None
    base_sequence: int | None = None
    transactional: bool = False
    control: bool = False
    delete_horizon: bool = False
    partial: bool = False
    """The data ends inside the batch; only magic and first offset were read."""
    problem: str | None = None
    """`batch_malformed` or `codec_unknown`. After `batch_malformed` no batch follows."""

    @property
    def size(self) -> int:
        """Bytes as sent, with offset and length fields."""
        return self.end - self.start

    @property
    def codec_name(self) -> str:
        return CODEC_NAMES[self.codec]


def batches(buf: bytes, start: int, end: int, config: Config) -> Iterator[Batch]:
    """Yield the batches of the record data `buf[start:end]`; the last may be partial or malformed."""
    end = min(end, len(buf))
    while start < end:
        batch = _batch_at(buf, start, end, config.verify_crc)
        yield batch
        if batch.partial or batch.problem == "batch_malformed":
            return
        start = batch.end


def _batch_at(buf: bytes, start: int, end: int, verify_crc: bool) -> Batch:
    left = end - start
    if left < LOG_OVERHEAD:
        return Batch(start, end, partial=True)
    offset, length = _unpack_entry(buf, start)
    magic = buf[start + MAGIC_AT] if left > MAGIC_AT else None
    if (magic is not None and magic > 2) or length < least_length(magic or 0):
        return Batch(start, end, magic, problem="batch_malformed")
    if length + LOG_OVERHEAD > left:
        return Batch(start, end, magic, offset, partial=True)
    end = start + LOG_OVERHEAD + length
    return _batch(buf, start, end, verify_crc) if magic == 2 else _message(buf, start, end, verify_crc)


def _batch(buf: bytes, start: int, end: int, verify_crc: bool) -> Batch:
    (
        base_offset, _, leader_epoch, _, crc, attributes, last_offset_delta, base_timestamp, max_timestamp,
        producer_id, producer_epoch, base_sequence, count,
    ) = unpack_header(buf, start)  # fmt: skip
    codec = attributes & CODEC_MASK
    room = end - start - BATCH_HEADER
    malformed = count < 0 or (codec == 0 and count * MIN_RECORD > room)
    return Batch(
        start=start,
        end=end,
        magic=2,
        base_offset=base_offset,
        last_offset=base_offset + last_offset_delta,
        codec=codec,
        crc_ok=crc32c(memoryview(buf)[start + CRC_FROM : end]) == crc if verify_crc else None,
        record_count=count,
        timestamp_type=LOG_APPEND_TIME if attributes & TIMESTAMP_TYPE_BIT else CREATE_TIME,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        transactional=bool(attributes & TRANSACTIONAL_BIT),
        control=bool(attributes & CONTROL_BIT),
        delete_horizon=bool(attributes & DELETE_HORIZON_BIT),
        problem="batch_malformed" if malformed else _codec_problem(codec),
    )


def _message(buf: bytes, start: int, end: int, verify_crc: bool) -> Batch:
    message = _Message.at(buf, start)
    wrapper = message.codec != 0
    kind = LOG_APPEND_TIME if message.log_append else CREATE_TIME
    return Batch(
        start=start,
        end=end,
        magic=message.magic,
        base_offset=None if wrapper else message.offset,
        last_offset=message.offset,
        codec=message.codec,
        crc_ok=crc32(memoryview(buf)[start + MAGIC_AT : end]) == message.crc if verify_crc else None,
        record_count=None if wrapper else 1,
        timestamp_type=None if message.timestamp is None else kind,
        base_timestamp=None if wrapper else message.timestamp,
        max_timestamp=message.timestamp,
        problem=_codec_problem(message.codec),
    )


def _codec_problem(codec: int) -> str | None:
    return "codec_unknown" if codec > 4 else None


def records(buf: bytes, batch: Batch, config: Config, allowance: Allowance | None = None) -> Iterator[Record]:
    """Yield the records of a complete batch of `buf`, decompressed within `allowance`.

    Without an allowance the batch has that of `config` for itself.

    Raises:
        DecodeError: `batch_malformed`, `trailing_bytes`, `varint_too_long`, `nesting_limit`, or what
            `kwsniff.spec.codecs.decompress` raises. `path` names the record, such as ``records[3]``.
    """
    if batch.partial or batch.problem is not None:
        raise DecodeError(batch.problem or "batch_malformed")
    if allowance is None:
        allowance = Allowance(config.max_decompressed_bytes, config.max_decompression_ratio)
    if batch.magic != 2:
        offset = _unpack_int64(buf, batch.start)[0]
        yield from _Unwrapper(config, allowance).unwrap(buf, batch.start, batch.end, offset, None, 0)
        return
    payload = allowance.decompress(batch.codec, memoryview(buf)[batch.start + BATCH_HEADER : batch.end])
    yield from _records(payload, batch)


def _records(data: bytes, batch: Batch) -> Iterator[Record]:
    count, pos, end = batch.record_count or 0, 0, len(data)
    if count * MIN_RECORD > end:
        raise DecodeError("batch_malformed")
    base_offset, base_timestamp = batch.base_offset or 0, batch.base_timestamp or 0
    appended = batch.max_timestamp if batch.timestamp_type == LOG_APPEND_TIME else None
    for index in range(count):
        try:
            length, pos = varint(data, pos, end)
            stop = pos + length
            if length < MIN_RECORD - 1 or stop > end:
                raise DecodeError("batch_malformed")
            # One byte of attributes is skipped: none is defined (KIP-98).
            timestamp, pos = varlong(data, pos + 1, stop)
            offset, pos = _short(data, pos, stop)
            key, pos = _bytes(data, pos, stop)
            value, pos = _bytes(data, pos, stop)
            headers, pos = _headers(data, pos, stop)
            if pos != stop:
                raise DecodeError("batch_malformed")
        except DecodeError as error:
            # A field that leaves its record is damage of the batch, not of the message around it.
            code = "batch_malformed" if error.code == "truncated_body" else error.code
            raise DecodeError(code, f"records[{index}]") from None
        timestamp = base_timestamp + timestamp if appended is None else appended
        yield Record(base_offset + offset, timestamp, key, value, headers)
    if pos != end:
        raise DecodeError("trailing_bytes", f"records[{count}]")


def _short(data: bytes, pos: int, end: int) -> tuple[int, int]:
    """A varint, nearly always of one byte."""
    if pos < end and (byte := data[pos]) < 0x80:
        return (byte >> 1) ^ -(byte & 1), pos + 1
    return varint(data, pos, end)


def _bytes(data: bytes, pos: int, end: int) -> tuple[bytes | None, int]:
    size, pos = _short(data, pos, end)
    if size < 0:
        if size != -1:
            raise DecodeError("batch_malformed")
        return None, pos
    stop = pos + size
    if stop > end:
        raise DecodeError("batch_malformed")
    return data[pos:stop], stop


def _headers(data: bytes, pos: int, end: int) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    """Name and value pairs; names may repeat (KIP-82)."""
    count, pos = _short(data, pos, end)
    if count == 0:
        return (), pos
    if not 0 < count <= min((end - pos) // 2, MAX_HEADERS):
        raise DecodeError("batch_malformed")
    headers = []
    for _ in range(count):
        name, pos = _bytes(data, pos, end)
        if name is None:
            raise DecodeError("batch_malformed")
        value, pos = _bytes(data, pos, end)
        headers.append((name.decode("utf-8", "replace"), value))
    return tuple(headers), pos


# Message sets of magic 0 and 1, the record data of brokers and clients before 0.11 (KIP-32).
#
# A message is an offset, a length, a CRC-32, magic, attributes, in magic 1 a timestamp, then key and value. A
# message whose attributes name a codec is a wrapper: its value decompresses to a message set, whose messages
# may be wrappers again. Offsets inside a wrapper are absolute in magic 0; in magic 1 they count from the
# first inner message, and the wrapper has the offset of the last one. So the inside has to be walked once for
# its last offset before any message can be given its own.
#
# Invariants. All wrappers inside one outer message share one allowance of decompressed bytes, or a few nested
# ones could multiply the limits; nesting is bounded; every hop goes forward.


class _Message(NamedTuple):
    """The fixed part of a message."""

    offset: int
    crc: int
    magic: int
    codec: int
    timestamp: int | None
    log_append: bool

    @classmethod
    def at(cls, buf: bytes, start: int) -> _Message:
        """Of the message at `start`, which must be complete."""
        offset, _, crc, magic, attributes = _unpack_message(buf, start)
        timestamp = _unpack_int64(buf, start + 18)[0] if magic else None
        log_append = bool(magic and attributes & TIMESTAMP_TYPE_BIT)
        return cls(offset, crc, magic, attributes & CODEC_MASK, timestamp, log_append)


class _Unwrapper:
    __slots__ = ("allowance", "config")

    def __init__(self, config: Config, allowance: Allowance) -> None:
        self.config, self.allowance = config, allowance

    def unwrap(
        self, buf: bytes, start: int, end: int, offset: int, appended: int | None, depth: int
    ) -> Iterator[Record]:
        """`offset` is the message's own, `appended` the time that a wrapper around it has from the broker."""
        message = _Message.at(buf, start)
        key, pos = _long_bytes(buf, start + _KEY_AT[message.magic], end)
        value, pos = _long_bytes(buf, pos, end)
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


def _long_bytes(buf: bytes, pos: int, end: int) -> tuple[bytes | None, int]:
    if pos + 4 > end:
        raise DecodeError("batch_malformed")
    size = _unpack_int32(buf, pos)[0]
    pos += 4
    if size == -1:
        return None, pos
    if size < 0 or pos + size > end:
        raise DecodeError("batch_malformed")
    return buf[pos : pos + size], pos + size
