"""Ranges of the input that were decoded on their own, put together in their order."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from kwsniff.net.columns import SegmentColumns
from kwsniff.parts.join import Joiner
from kwsniff.parts.part import EDGE, ENDS, Emitted, PartSummary, endpoints_of
from kwsniff.parts.weave import woven

Ints = NDArray[np.int64]
COLUMNS = tuple(
    each.name for each in fields(SegmentColumns) if each.name not in ("capture", "buffers", "notes", "share")
)


@dataclass(slots=True)
class Decoded:
    """A part, and what came of it."""

    segments: list[SegmentColumns]
    order: int
    """Place of its first segment."""
    emitted: deque[Emitted]
    summary: PartSummary

    def rows(self) -> Iterator[Emitted]:
        """What was told; each batch is dropped when the next is asked for."""
        while self.emitted:
            yield self.emitted.popleft()

    def again(self, endpoints: set[bytes], after: int) -> Iterator[tuple[SegmentColumns, Ints]]:
        """The segments of some endpoints behind a place in the input, and their places."""
        return of_endpoints(self.segments, self.order, endpoints, after)


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


def joined(joiner: Joiner, part: Decoded) -> Iterator[Emitted]:
    """The rows of the next part, as one run has them."""
    rows = part.rows()
    if part.order == 0:
        joiner.first(part.summary)
        yield from rows
    elif joiner.fits(part.summary):
        yield from woven(rows, joiner.join(part.summary, part.again))
    else:
        for _ in rows:  # they are not to be believed
            pass
        yield from joiner.whole(part.segments, part.order)
