"""SEGMENTS, the Arrow table that `analyze` takes, and a batch of it as the columns that the engine works on.

No payload is copied on the way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kwsniff.rows.schema import documented

Ints = NDArray[np.int64]

FIN, SYN, RST, ACK = 1, 2, 4, 16
ZERO_WINDOW = 256
"""Added to the flags of a segment whose sender takes no more bytes for now."""
COPY = 512
"""Added to the flags of a segment that the capture holds twice, see `kwsniff.net.dissect`."""

SEGMENTS = pa.schema(
    [
        documented("capture", pa.string(), "capture file; the same in all rows of a batch"),
        documented("packet", pa.int64(), "number of the packet in its file, from 1"),
        documented("time", pa.int64(), "nanoseconds since 1970 UTC"),
        documented("src_hi", pa.int64(), "upper half of the source address as IPv6; IPv4 is ::ffff:a.b.c.d"),
        documented("src_lo", pa.int64(), "lower half"),
        documented("dst_hi", pa.int64(), "upper half of the destination address"),
        documented("dst_lo", pa.int64(), "lower half"),
        documented("src_port", pa.int32(), "TCP source port"),
        documented("dst_port", pa.int32(), "TCP destination port"),
        documented("seq", pa.int64(), "TCP sequence number of the first payload byte, or of the SYN"),
        documented("ack", pa.int64(), "TCP acknowledgement number"),
        documented(
            "flags",
            pa.int32(),
            "TCP flags: FIN 1, SYN 2, RST 4, PSH 8, ACK 16; 256: window of 0, 512: captured twice",
        ),
        documented("tsval", pa.int64(), "TCP timestamp of the sender (RFC 7323), -1 if there is none"),
        documented(
            "length", pa.int64(), "payload bytes on the wire; `payload` holds fewer if cut by snaplen"
        ),
        documented("payload", pa.binary_view(), "payload bytes captured"),
        documented("anomaly", pa.string(), "set in a row that is no segment but reports on a packet"),
        documented("detail", pa.string(), "of the anomaly"),
    ]
)
"""Types are those that Spark, pandas and DuckDB all hold without a cast."""


@dataclass(slots=True)
class SegmentColumns:
    """Segments in capture order; every column has one element a segment."""

    capture: str | None
    packet: Ints
    time: Ints
    src_hi: Ints
    src_lo: Ints
    dst_hi: Ints
    dst_lo: Ints
    src_port: Ints
    dst_port: Ints
    seq: Ints
    ack: Ints
    flags: Ints
    tsval: Ints
    """TCP timestamps, -1 where there is none."""
    length: Ints
    """Payload bytes on the wire."""
    captured: Ints
    """Payload bytes at hand."""
    buffer: Ints
    """Which of `buffers` holds them ..."""
    start: Ints
    """... and from where on."""
    buffers: list[memoryview]
    notes: list[tuple[int, str, str, int, int]]
    """Anomalies of packets: order (rows before it), code, detail, packet, time."""
    place: int | None = None
    """Where `buffers[1]` begins in the file `capture`, if that can be read at any place."""
    secrets: bytes = b""
    """A TLS key log (RFC 9850) for these segments and those that follow."""

    def __len__(self) -> int:
        return len(self.packet)


def segment_columns(batch: pa.RecordBatch) -> SegmentColumns:
    """The columns of a SEGMENTS batch without copying payloads; rows that are notes are set apart."""
    capture = batch.column("capture")[0].as_py() if len(batch) else None
    notes: list[tuple[int, str, str, int, int]] = []
    flagged = batch.column("anomaly")
    if flagged.null_count < len(flagged):
        notes = _notes(batch)
        # Arrow has no kernel that selects from views of binary data.
        place = batch.schema.get_field_index("payload")
        batch = batch.set_column(place, "payload", batch.column(place).cast(pa.large_binary()))
        batch = batch.filter(pc.is_null(flagged))
    payload = batch.column("payload")
    buffers, buffer, start, captured = _payload_places(payload)

    def ints(name: str) -> np.ndarray[Any, np.dtype[np.int64]]:
        return np.asarray(batch.column(name).to_numpy(zero_copy_only=False), np.int64)

    return SegmentColumns(
        capture=capture,
        packet=ints("packet"),
        time=ints("time"),
        src_hi=ints("src_hi"),
        src_lo=ints("src_lo"),
        dst_hi=ints("dst_hi"),
        dst_lo=ints("dst_lo"),
        src_port=ints("src_port"),
        dst_port=ints("dst_port"),
        seq=ints("seq"),
        ack=ints("ack"),
        flags=ints("flags"),
        tsval=ints("tsval"),
        length=ints("length"),
        captured=captured,
        buffer=buffer,
        start=start,
        buffers=buffers,
        notes=notes,
        secrets=secrets_told(batch) or b"",
    )


def _notes(batch: pa.RecordBatch) -> list[tuple[int, str, str, int, int]]:
    wanted = pc.is_valid(batch.column("anomaly"))
    rows = batch.select(["anomaly", "detail", "packet", "time"]).filter(wanted).to_pylist()
    segments_before = np.cumsum(~wanted.to_numpy(zero_copy_only=False))
    before = segments_before[np.flatnonzero(wanted.to_numpy(zero_copy_only=False))]
    return [
        (
            int(order), row["anomaly"], row["detail"] or "",
            -1 if row["packet"] is None else row["packet"], -1 if row["time"] is None else row["time"],
        )
        for order, row in zip(before, rows, strict=True)
    ]  # fmt: skip


def _payload_places(
    payload: pa.Array,
) -> tuple[list[memoryview], np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Buffers, and for each value which one holds it, from where on, and how long it is."""
    count = len(payload)
    if payload.type == pa.binary_view():
        raw = payload.buffers()
        buffers = [memoryview(raw[1]), *(memoryview(data) for data in raw[2:])]
        views = np.frombuffer(raw[1], np.int32, count * 4, payload.offset * 16).reshape(count, 4)
        length = views[:, 0].astype(np.int64)
        # Values of up to 12 bytes lie in the view itself, after its length (Arrow columnar format).
        inline = length <= 12
        places = (np.arange(count, dtype=np.int64) + payload.offset) * 16 + 4
        return (
            buffers,
            np.where(inline, 0, views[:, 2] + 1),
            np.where(inline, places, views[:, 3]),
            length,
        )
    kind = np.int64 if payload.type == pa.large_binary() else np.int32
    raw = payload.buffers()
    width = np.dtype(kind).itemsize
    offsets = np.frombuffer(raw[1], kind, count + 1, payload.offset * width).astype(np.int64)
    data = memoryview(raw[2]) if raw[2] is not None else memoryview(b"")
    return [data], np.zeros(count, np.int64), offsets[:-1], np.diff(offsets)


# Batches without segments, which say something between those that have some.

NOW = b"kwsniff.now"
"""In the metadata of an empty SEGMENTS batch: the time it tells."""
SECRETS = b"kwsniff.secrets"
"""Likewise: the secrets it tells."""


def at_time(now: int) -> pa.RecordBatch:
    """An empty SEGMENTS batch which says that all segments before `now` (nanoseconds since 1970) have come.

    A source that goes on for ever sends one about once a second, so that what waits for time to pass (a hole
    to be given up, a request to be answered, a silent connection to end) is drained while nothing else comes.
    """
    return _empty(NOW, str(now).encode())


def with_secrets(secrets: bytes) -> pa.RecordBatch:
    """An empty SEGMENTS batch that brings lines of a TLS key log (RFC 9850) for segments that follow."""
    return _empty(SECRETS, secrets)


def _empty(key: bytes, value: bytes) -> pa.RecordBatch:
    schema = SEGMENTS.with_metadata({key: value})
    return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)


def secrets_told(batch: pa.RecordBatch) -> bytes | None:
    """What `with_secrets` was given, None for any other batch."""
    if len(batch) or not batch.schema.metadata:
        return None
    told: bytes | None = batch.schema.metadata.get(SECRETS)
    return told


def tells_time(batch: pa.RecordBatch) -> bool:
    return bool(not len(batch) and batch.schema.metadata and NOW in batch.schema.metadata)


def time_told(batch: pa.RecordBatch) -> int:
    return int(batch.schema.metadata[NOW])
