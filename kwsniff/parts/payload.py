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
from kwsniff.capture.place import ranges
from kwsniff.parts.part import EXTRA, STORED, PartSummary

Ints = NDArray[np.int64]
Rows = NDArray[Any]
GAP = 1 << 12
"""Bytes between two wanted places that are rather read than passed over: a page of the system's cache."""
AT_ONCE = 8 << 20
"""Bytes that are read at a time, about."""


def with_payload(summary: PartSummary) -> PartSummary:
    """A summary that holds all payload of its heads. Raises CaptureError."""
    edges, payload = _filled(summary.edges, summary.payload, summary.captures)
    spare, spare_payload = _filled(summary.spare, summary.spare_payload, summary.captures)
    return replace(summary, edges=edges, payload=payload, spare=spare, spare_payload=spare_payload)


def _filled(segments: Rows, payload: bytes, captures: list[str | None]) -> tuple[Rows, bytes]:
    stored = np.flatnonzero(segments["buffer"] == STORED)
    if not len(stored):
        return segments, payload
    made = segments.copy()
    sizes = made["captured"][stored]
    begins = len(payload) + np.cumsum(sizes) - sizes
    data = bytearray(len(payload) + int(sizes.sum()))
    data[: len(payload)] = payload
    for file in np.unique(made["file"][stored]).tolist():
        own = made["file"][stored] == file
        path = captures[file]
        assert path is not None
        _copy(path, made["start"][stored][own], sizes[own], begins[own], memoryview(data))
    made["start"][stored], made["buffer"][stored] = begins, EXTRA
    return made, bytes(data)


def _copy(path: str, places: Ints, sizes: Ints, begins: Ints, into: memoryview) -> None:
    """Copy stretches of a file to where they begin in `into`."""
    order = np.argsort(places, kind="stable")
    places, sizes, begins = places[order], sizes[order], begins[order]
    groups = list(_groups(places, sizes))
    wanted = [
        (int(places[first]), int((places[first:end] + sizes[first:end]).max())) for first, end in groups
    ]
    for (first, end), (start, stop), data in zip(groups, wanted, ranges(path, wanted), strict=True):
        if len(data) < stop - start:
            raise CaptureError(f"{path}: the file is shorter than it was")
        view = memoryview(data)
        rows = (each[first:end].tolist() for each in (places - start, sizes, begins))
        for at, size, to in zip(*rows, strict=True):
            into[to : to + size] = view[at : at + size]


def _groups(places: Ints, sizes: Ints) -> Iterator[tuple[int, int]]:
    """Stretches that are read at once: from which on, and up to which. Places ascend."""
    ends = np.maximum.accumulate(places + sizes)
    first = 0
    for at in range(1, len(places)):
        if places[at] - ends[at - 1] > GAP or ends[at] - places[first] > AT_ONCE:
            yield first, at
            first = at
    yield first, len(places)
