"""The offline run in several threads: ranges of the input decoded side by side and put together in order.

Theory of operation. One thread reads and dissects, as always; what it yields is cut into parts. Some
threads decode a part each, mostly in compiled code, which lets the others run. The reader of the events
joins the parts in their order. At most one part more than there are threads is held, so memory does not
grow with the input. Nor with what the input becomes: a part whose rows find no room (millions of tiny frames
may lie in it) drops them, and is decoded when its turn comes, while its rows are read.
"""

from __future__ import annotations

import secrets
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, fields, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kwsniff.ahead import ahead
from kwsniff.capture.source import CaptureError, CaptureTotals, Progress, segments
from kwsniff.config import MIB, Config
from kwsniff.net.columns import SegmentColumns
from kwsniff.parts.join import Joiner
from kwsniff.parts.part import EDGE, ENDS, ORDER_BITS, PartEngine, Summary, Told, endpoints_of
from kwsniff.parts.weave import woven
from kwsniff.segments import segment_columns

Ints = NDArray[np.int64]
PART_BYTES = 32 * MIB
"""Size of a part, about. At each cut connections are followed twice for a while."""
SEGMENT_BYTES = 100
"""What is charged for a segment besides its payload."""
TOLD_BYTES = 128 * MIB
"""Bytes of rows that wait for their turn, of all parts."""
COLUMNS = tuple(
    each.name for each in fields(SegmentColumns) if each.name not in ("capture", "buffers", "notes", "share")
)


@dataclass(slots=True)
class Room:
    """For the rows of parts that wait for their turn, in bytes."""

    left: int
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, size: int) -> bool:
        """Whether there was room for so many bytes."""
        with self._lock:
            if size > self.left:
                return False
            self.left -= size
            return True

    def give(self, size: int) -> None:
        """So many are free again."""
        with self._lock:
            self.left += size


@dataclass(slots=True)
class Decoded:
    """A part, and what came of it."""

    segments: list[SegmentColumns]
    order: int
    """Place of its first segment."""
    told: deque[Told]
    summary: Summary | None
    """None: there was no room for its rows."""
    room: Room | None = None

    def rows(self) -> Iterator[Told]:
        """What was told; each batch is dropped when the next is asked for."""
        while self.told:
            size = self.told[0].batch.nbytes
            yield self.told.popleft()
            if self.room is not None:
                self.room.give(size)

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


def events(
    paths: Sequence[str], config: Config, jobs: int, totals: CaptureTotals, progress: Progress | None = None
) -> Iterator[pa.RecordBatch]:
    """EVENTS batches as `kwsniff.offline.events` yields them, the same rows in the same order; `jobs` parts
    are decoded at a time.

    Raises:
        CaptureError: an input is unreadable, or became so on the way; what came before was yielded.
    """
    return side_by_side(segments(paths, config, totals, progress), config, jobs)


def side_by_side(
    batches: Iterable[pa.RecordBatch], config: Config, jobs: int, size: int = PART_BYTES
) -> Iterator[pa.RecordBatch]:
    """The same of SEGMENTS batches, in parts of about `size` bytes."""
    seed, room = secrets.randbits(62), Room(TOLD_BYTES)
    joiner = Joiner(config, seed)
    groups = ahead(grouped(batches, size))
    pool = ThreadPoolExecutor(jobs, "part")
    waiting: deque[Future[Decoded]] = deque()
    ended: list[CaptureError] | None = None
    number = 0
    try:
        while True:
            while ended is None and len(waiting) <= jobs:
                try:
                    group = next(groups)
                except StopIteration:
                    ended = []
                except CaptureError as error:
                    ended = [error]
                else:
                    waiting.append(pool.submit(decoded, group, config, seed, number, room))
                    number += 1
            if not waiting:
                break
            for told in joined(joiner, waiting.popleft().result()):
                yield told.batch
        if ended:
            raise ended[0]
        for told in joiner.finish():
            yield told.batch
    finally:
        pool.shutdown(cancel_futures=True)
        groups.close()  # type: ignore[attr-defined]


def grouped(batches: Iterable[pa.RecordBatch], size: int) -> Iterator[list[pa.RecordBatch]]:
    """Batches that follow each other, as parts of about so many bytes. What breaks off the input is raised
    behind the last part."""
    group: list[pa.RecordBatch] = []
    held = 0
    try:
        for batch in batches:
            group.append(batch)
            length = batch["length"].to_numpy(zero_copy_only=False)
            held += int(np.nansum(length)) + SEGMENT_BYTES * len(batch)
            if held >= size:
                yield group
                group, held = [], 0
    except CaptureError:
        if group:
            yield group
        raise
    if group:
        yield group


def decoded(group: Sequence[pa.RecordBatch], config: Config, seed: int, number: int, room: Room) -> Decoded:
    """Decode part `number`."""
    columns = [segment_columns(batch) for batch in group]
    order = number << ORDER_BITS
    engine = PartEngine(config, seed, order, first=number == 0)
    told: deque[Told] = deque()
    for each in engine.part(columns):
        if not room.take(each.batch.nbytes):
            room.give(sum(each.batch.nbytes for each in told))
            return Decoded(columns, order, deque(), None)
        told.append(each)
    return Decoded(columns, order, told, engine.summary(), room)


def joined(joiner: Joiner, part: Decoded) -> Iterator[Told]:
    """The rows of the next part, as one run has them."""
    rows = part.rows()
    if part.summary is not None and part.order == 0:
        joiner.first(part.summary)
        yield from rows
    elif part.summary is not None and joiner.fits(part.summary):
        yield from woven(rows, joiner.join(part.summary, part.again))
    else:
        for _ in rows:  # they are not to be believed
            pass
        yield from joiner.whole(part.segments, part.order)
