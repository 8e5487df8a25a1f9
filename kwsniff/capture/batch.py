"""SEGMENTS batches from dissected blocks; payloads are views of the capture's own buffer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kwsniff.net import runner as machine
from kwsniff.net.dissect import Dissected
from kwsniff.net.packets import Bytes, Integers, Mask, Note
from kwsniff.net.segments import SEGMENTS
from kwsniff.rows.arrays import column, validity

ENDS = ("src_hi", "src_lo", "dst_hi", "dst_lo", "src_port", "dst_port")


def segment_batch(dissected: Dissected) -> pa.RecordBatch:
    """All rows of a block: its segments, and its notes in front of the packet they name."""
    found, block = dissected.segments, dissected.block
    columns: dict[str, Any] = {
        "packet": block.number[found.row],
        "time": block.time_ns[found.row],
        **{name: getattr(found, name) for name in (*ENDS, "seq", "ack", "flags", "tsval", "length")},
    }
    views = machine.views(found, dissected.buffer, dissected.buffers)
    if dissected.notes:
        return _with_notes(block.capture, columns, views, dissected.buffers, dissected.notes)
    size = len(found)
    nothing = {name: pa.nulls(size, pa.string()) for name in ("anomaly", "detail")}
    return _batch(block.capture, columns, None, _payload(views, dissected.buffers, None), nothing)


def note_batch(capture: str, notes: list[Note]) -> pa.RecordBatch:
    """Rows for notes that belong to no block."""
    none = np.empty(0, np.int64)
    columns = {field.name: none for field in SEGMENTS if pa.types.is_integer(field.type)}
    return _with_notes(capture, columns, np.empty((0, 4), np.int32), [], notes)


def between(batch: pa.RecordBatch, ports: pa.Array) -> pa.RecordBatch:
    """The segments of connections with an end on one of these ports, without notes. Payloads stay where they
    are: Arrow itself cannot pick binary views."""
    ends = (pc.is_in(batch[name], value_set=ports) for name in ("src_port", "dst_port"))
    rows = pc.indices_nonzero(pc.and_(pc.or_(*ends), batch["anomaly"].is_null()))
    payload = batch["payload"]
    _, views, *data = payload.buffers()
    all_views = np.frombuffer(views, np.int32).reshape(-1, 4)[payload.offset :]
    picked = _payload(all_views[rows.to_numpy()], data, None)
    columns = [picked if name == "payload" else batch[name].take(rows) for name in batch.schema.names]
    return pa.RecordBatch.from_arrays(columns, schema=SEGMENTS)


def _batch(
    capture: str, columns: dict[str, Any], is_note: Mask | None, payload: pa.Array, texts: dict[str, pa.Array]
) -> pa.RecordBatch:
    arrays = []
    for field in SEGMENTS:
        if field.name == "capture":
            arrays.append(_repeated(capture, len(payload)))
        elif field.name == "payload":
            arrays.append(payload)
        elif field.name in texts:
            arrays.append(texts[field.name])
        else:
            null = None if field.name == "packet" else is_note
            arrays.append(column(columns[field.name], field.type, null))
    return pa.RecordBatch.from_arrays(arrays, schema=SEGMENTS)


def _repeated(text: str, size: int) -> pa.Array:
    """A column of one text, from buffers: `pyarrow.scalar` would import pandas to see whether it is its."""
    data = text.encode(errors="replace")
    one = [None, pa.py_buffer(np.array([0, len(data)], np.int32)), pa.py_buffer(data)]
    return pa.repeat(pa.Array.from_buffers(pa.string(), 1, one)[0], size)


def _with_notes(
    capture: str,
    columns: dict[str, Any],
    views: NDArray[np.int32],
    buffers: list[Bytes],
    notes: list[Note],
) -> pa.RecordBatch:
    size = len(views)
    packets = np.concatenate([np.array([note.packet for note in notes], np.int64), columns["packet"]])
    order = np.argsort(packets, kind="stable")
    source = np.where(order < len(notes), -1, order - len(notes))
    is_note = source < 0
    times = [note.time_ns for note in notes]
    merged = {name: _picked(values, source) for name, values in columns.items()}
    merged["packet"] = packets[order]
    payload = _payload(_picked(views, source), buffers, is_note)
    codes = [note.code for note in notes] + [None] * size
    details = [note.detail for note in notes] + [None] * size
    texts = {
        "anomaly": pa.array(codes, pa.string()).take(pa.array(order)),
        "detail": pa.array(details, pa.string()).take(pa.array(order)),
        "time": pa.array(times + columns["time"].tolist(), pa.int64()).take(pa.array(order)),
    }
    return _batch(capture, merged, is_note, payload, texts)


def _picked(values: NDArray[Any], source: Integers) -> NDArray[Any]:
    """Rows of `values`, and zeros where `source` is -1."""
    padded = np.concatenate([values, np.zeros((1, *values.shape[1:]), values.dtype)])
    return padded[source]


def _payload(views: NDArray[np.int32], buffers: list[Bytes], is_note: Mask | None) -> pa.Array:
    parts = [
        validity(is_note),
        pa.py_buffer(np.ascontiguousarray(views)),
        *(pa.py_buffer(data) for data in buffers),
    ]
    return pa.Array.from_buffers(pa.binary_view(), len(views), parts)
