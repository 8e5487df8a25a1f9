"""Ranges of the input that were decoded on their own, put together in their order, all in this process."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from kwsniff.net.segments import SegmentColumns
from kwsniff.run.heads import of_endpoints, placed
from kwsniff.run.join import Ints, Joiner
from kwsniff.run.part import Emitted, PartSummary
from kwsniff.run.weave import woven


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
        return of_endpoints(placed(self.segments, self.order), endpoints, after)


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
