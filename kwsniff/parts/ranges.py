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


def of_endpoints(
    segments: Iterable[SegmentColumns], order: int, endpoints: set[bytes], after: int
) -> Iterator[tuple[SegmentColumns, Ints]]:
    """Of segments from `order` on, those of some endpoints behind the place `after`; and their places."""
    names = np.array(sorted(endpoints))
    for each in segments:
        orders = order + np.arange(len(each))
        order += len(each)
        rows = np.zeros(len(each), EDGE)
        for name in ENDS:
            rows[name] = getattr(each, name)
        keep = np.isin(endpoints_of(rows), names) & (orders > after)
        if keep.any():
            chosen = {name: getattr(each, name)[keep] for name in COLUMNS}
            yield replace(each, notes=[], **chosen), orders[keep]
