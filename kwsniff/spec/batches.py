"""Record batches one by one, with their headers; and, when asked, the records inside.

`batches` reads the same bytes as `kwsniff.engine.steps` and makes the same hops, but tells of each batch
apart. `records` decompresses one batch within the limits of the configuration and yields what is in
it; it raises at the first contradiction, after it has given all that came before.

A batch with a wrong CRC is decoded all the same: the CRC is reported, and a passive reader has no better
copy to ask for.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from crc32c import crc32c

from kwsniff.config import Config
from kwsniff.spec import messageset
from kwsniff.spec.binary import DecodeError, varint, varlong
from kwsniff.spec.codecs import Allowance
from kwsniff.spec.messageset import (
    BATCH_HEADER,
    CODEC_MASK,
    CODEC_NAMES,
    CONTROL_BIT,
    CRC_FROM,
    DELETE_HORIZON_BIT,
    LOG_OVERHEAD,
    MAGIC_AT,
    MIN_RECORD,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    Record,
    least_length,
)

CREATE_TIME, LOG_APPEND_TIME = "create", "log_append"

MAX_HEADERS = 100_000
"""Of one record: no producer sends as many, and each takes far more memory than its two bytes."""

_unpack_entry = Struct(">qi").unpack_from
unpack_header = Struct(">qiibIHiqqqhii").unpack_from


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
        base_offset,
        _,
        leader_epoch,
        _,
        crc,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    ) = unpack_header(buf, start)
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
    message = messageset.header(buf, start)
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
        yield from messageset.records(buf, batch.start, batch.end, config, allowance)
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
            raise DecodeError(_record_code(error.code), f"records[{index}]") from None
        timestamp = base_timestamp + timestamp if appended is None else appended
        yield Record(base_offset + offset, timestamp, key, value, headers)
    if pos != end:
        raise DecodeError("trailing_bytes", f"records[{count}]")


def _record_code(code: str) -> str:
    """A field that leaves its record is damage of the batch, not of the message around it."""
    return "batch_malformed" if code == "truncated_body" else code


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
