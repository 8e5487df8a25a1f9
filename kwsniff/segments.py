"""A SEGMENTS batch as the columns that the engine works on.

Nothing here decides anything, and no payload is copied.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kwsniff.net.columns import SegmentColumns


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
