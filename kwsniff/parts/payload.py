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
from kwsniff.parts.part import EXTRA, STORED, PartSummary

Ints = NDArray[np.int64]
Rows = NDArray[Any]


def with_payload(summary: PartSummary) -> PartSummary:
    """A summary that holds all payload of its heads. Raises CaptureError."""
    edges, payload = _filled(summary.edges, summary.payload, summary.captures)
    spare, spare_payload = _filled(summary.spare, summary.spare_payload, summary.captures)
    return replace(summary, edges=edges, payload=payload, spare=spare, spare_payload=spare_payload)


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
        if not scattered(path, places[own].tolist(), _views(data, begins[own], sizes[own])):
            raise CaptureError(f"{path}: the file is shorter than it was")
    made["start"][stored], made["buffer"][stored] = begins, EXTRA
    return made, bytes(data)


def _views(data: bytearray, begins: Ints, sizes: Ints) -> Iterator[memoryview]:
    whole = memoryview(data)
    for begin, end in zip(begins.tolist(), (begins + sizes).tolist(), strict=True):
        yield whole[begin:end]
