"""Payload of heads, looked up in the files that it came from.

What a part hands over says where the payload of its heads lies, instead of holding it. It cannot where the
input is compressed or lies on other storage, nor of datagrams that came in fragments: that payload is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kwsniff.capture.error import CaptureError
from kwsniff.capture.place import scattered
from kwsniff.native.records import copied
from kwsniff.net.columns import SegmentColumns
from kwsniff.parts.part import BLOCK, EXTRA, STORED, PartSummary

Ints = NDArray[np.int64]
Rows = NDArray[Any]


def with_payload(summary: PartSummary) -> PartSummary:
    """A summary that holds all payload of its heads. Raises CaptureError."""
    edges, payload = _filled(summary.edges, summary.payload, summary.captures)
    spare, spare_payload = _filled(summary.spare, summary.spare_payload, summary.captures)
    return replace(summary, edges=edges, payload=payload, spare=spare, spare_payload=spare_payload)


def without_block(segments: SegmentColumns) -> SegmentColumns:
    """Segments without what can be read in their file again."""
    if segments.place is None or len(segments.buffers) <= BLOCK:
        return segments
    buffers = list(segments.buffers)
    buffers[BLOCK] = memoryview(b"")
    return replace(segments, buffers=buffers)


def with_block(segments: SegmentColumns) -> SegmentColumns:
    """What was left out by `without_block`, for these segments. Raises CaptureError."""
    place, path = segments.place, segments.capture
    if place is None or len(segments.buffers) <= BLOCK or len(segments.buffers[BLOCK]):
        return segments
    assert path is not None
    own = np.flatnonzero((segments.buffer == BLOCK) & (segments.captured > 0))
    sizes, start = segments.captured[own], segments.start.copy()
    start[own] = np.cumsum(sizes) - sizes
    data = bytearray(int(sizes.sum()))
    _read(path, place + segments.start[own], data, start[own], sizes)
    buffers = list(segments.buffers)
    buffers[BLOCK] = memoryview(data)
    return replace(segments, start=start, buffers=buffers, place=None)


def _filled(segments: Rows, payload: bytes, captures: list[str | None]) -> tuple[Rows, bytes]:
    stored = np.flatnonzero(segments["buffer"] == STORED)
    if not len(stored):
        return segments, payload
    made = copied(segments)
    places, sizes, files = (made[name][stored] for name in ("start", "captured", "file"))
    begins = len(payload) + np.cumsum(sizes) - sizes
    data = bytearray(len(payload) + int(sizes.sum()))
    data[: len(payload)] = payload
    for file in np.unique(files).tolist():
        path, own = captures[file], np.flatnonzero(files == file)
        assert path is not None
        # Neighbours in the file share pages of the system's cache.
        own = own[np.argsort(places[own], kind="stable")]
        _read(path, places[own], data, begins[own], sizes[own])
    made["start"][stored], made["buffer"][stored] = begins, EXTRA
    return made, bytes(data)


def _read(path: str, places: Ints, data: bytearray, begins: Ints, sizes: Ints) -> None:
    """Put stretches of a file where they begin in `data`."""
    if not scattered(path, places.tolist(), _views(data, begins, sizes)):
        raise CaptureError(f"{path}: the file is shorter than it was")


def _views(data: bytearray, begins: Ints, sizes: Ints) -> Iterator[memoryview]:
    whole = memoryview(data)
    for begin, end in zip(begins.tolist(), (begins + sizes).tolist(), strict=True):
        yield whole[begin:end]
