"""Segments of some connections, looked up again in a range of the input."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields, replace

import numpy as np
from numpy.typing import NDArray

from kwsniff.net.columns import SegmentColumns
from kwsniff.parts.part import EDGE, ENDS, endpoints_of

Ints = NDArray[np.int64]
COLUMNS = tuple(
    each.name
    for each in fields(SegmentColumns)
    if each.name not in ("capture", "buffers", "notes", "share", "place")
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


def picked(segments: SegmentColumns, rows: Ints) -> SegmentColumns:
    """Some of these segments."""
    return replace(segments, notes=[], **{name: getattr(segments, name)[rows] for name in COLUMNS})


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
            yield picked(each, keep), orders[keep]
