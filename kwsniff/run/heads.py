"""The edges of a part in their order, while some are taken out and others put in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kwsniff.capture.error import CaptureError
from kwsniff.capture.place import scattered
from kwsniff.engine.intake import AT_ONCE
from kwsniff.engine.tables import BEGINS, GO_ON, SWEEP, UNTIL
from kwsniff.native.rowcopies import copied, joined, picked
from kwsniff.net.segments import SegmentColumns
from kwsniff.run.part import BLOCK, COPIED, EDGE, ENDS, EXTRA, STORED, PartSummary, endpoints_of

# Payload of heads, looked up in the files that it came from.
#
# What a part hands over says where the payload of its heads lies, instead of holding it. It cannot where the
# input is compressed or lies on other storage, nor of datagrams that came in fragments: that payload is kept.


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
    whole = memoryview(data)
    views = (whole[at:end] for at, end in zip(begins.tolist(), (begins + sizes).tolist(), strict=True))
    if not scattered(path, places.tolist(), views):
        raise CaptureError(f"{path}: the file is shorter than it was")


Ints = NDArray[np.int64]
Rows = NDArray[Any]


class Heads:
    """The edges of a part, some thousands at a time: what comes of one that is refused moves no others."""

    def __init__(self, edges: Rows) -> None:
        self._rows, self._keys = edges, _keys(edges)
        self._gone = np.zeros(len(edges), np.bool_)
        self._names: NDArray[Any] | None = None
        self._at = 0
        self._more: list[Rows] = []
        """Further ones."""

    def next(self) -> Rows:
        """The next ones in their order, none at the end."""
        made = self._rows[:0]
        while not len(made) and (self._at < len(self._rows) or self._more):
            first, self._at = self._at, min(self._at + AT_ONCE, len(self._rows))
            parts = [self._rows[first : self._at][~self._gone[first : self._at]]]
            if self._more:
                parts.append(self._before(int(self._keys[self._at]) if self._at < len(self._keys) else None))
            made = _in_order(parts)
        return made

    def _before(self, key: int | None) -> Rows:
        """Take the further ones before a place, or all."""
        more = _in_order(self._more)
        count = len(more) if key is None else int(np.searchsorted(_keys(more), key))
        self._more = [more[count:]] if count < len(more) else []
        return more[:count]

    def give_back(self, rows: Rows) -> None:
        """Have these taken too, each at its place."""
        if len(rows):
            self._more.append(rows)

    def drop(self, name: bytes) -> None:
        """Take no edge of these endpoints."""
        if self._names is None:
            self._names = endpoints_of(self._rows)
        rest = slice(self._at, None)
        self._gone[rest] |= (self._names[rest] == name) & _is_edge(self._rows[rest])
        more = [rows[~((endpoints_of(rows) == name) & _is_edge(rows))] for rows in self._more]
        self._more = [rows for rows in more if len(rows)]


def _is_edge(rows: Rows) -> NDArray[np.bool_]:
    """Whether rows are segments of heads, and no times at which silent connections were looked for."""
    found: NDArray[np.bool_] = np.isin(rows["stop"], (GO_ON, UNTIL, BEGINS))
    return found


def _keys(rows: Rows) -> Ints:
    """What orders edges: times at which silent connections were looked for come before segments."""
    keys: Ints = 2 * rows["order"] + (rows["stop"] != SWEEP)
    return keys


def _in_order(parts: list[Rows]) -> Rows:
    """Edges in their order."""
    if len(parts) == 1:
        return parts[0]
    every = joined(parts)
    # Each part is in order, of which a stable sort makes use.
    return picked(every, np.argsort(_keys(every), kind="stable"))


def edges_of(segments: SegmentColumns, orders: Ints, file: int, payload: bytearray) -> Rows:
    """Segments as edges; their bytes are added to `payload`."""
    made = np.zeros(len(segments), EDGE)
    for name in COPIED:
        made[name] = getattr(segments, name)
    made["order"], made["left"], made["file"], made["buffer"] = orders, -1, file, EXTRA
    for at in range(len(segments)):
        start, size = int(segments.start[at]), int(segments.captured[at])
        made["start"][at] = len(payload)
        if size:
            payload += segments.buffers[int(segments.buffer[at])][start : start + size]
    return made


# Segments of some connections, looked up again in a range of the input.

COLUMNS = tuple(
    each.name
    for each in fields(SegmentColumns)
    if each.name not in ("capture", "buffers", "notes", "place", "secrets")
)
WORDS, A_PORT, B_PORT = 6, 2, 5
"""Numbers that `endpoints_of` makes a name of: address and port of each end."""
Placed = tuple[SegmentColumns, Ints]
"""Segments, and their places in the input."""


def placed(segments: Iterable[SegmentColumns], order: int) -> Iterator[Placed]:
    """Segments from `order` on."""
    for each in segments:
        yield each, order + np.arange(len(each))
        order += len(each)


def chosen(segments: SegmentColumns, rows: Ints) -> SegmentColumns:
    """Some of these segments."""
    return replace(
        segments, notes=[], secrets=b"", **{name: getattr(segments, name)[rows] for name in COLUMNS}
    )


def of_endpoints(segments: Iterable[Placed], endpoints: set[bytes], after: int) -> Iterator[Placed]:
    """Of these segments those of some endpoints behind the place `after`."""
    names = np.array(sorted(endpoints))
    # Few segments have such ports, and numbers are compared far sooner than names.
    words = np.frombuffer(b"".join(name[: 8 * WORDS] for name in endpoints), np.int64).reshape(-1, WORDS)
    ports = words[:, A_PORT] + words[:, B_PORT]
    for each, orders in segments:
        near = np.flatnonzero(np.isin(each.src_port + each.dst_port, ports) & (orders > after))
        rows = np.zeros(len(near), EDGE)
        for name in ENDS:
            rows[name] = getattr(each, name)[near]
        keep = near[np.isin(endpoints_of(rows), names)]
        if len(keep):
            yield chosen(each, keep), orders[keep]
