"""From SEGMENTS to EVENTS: one function, the same in one process and in Spark."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import closing

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kwsniff.config import Config
from kwsniff.engine.drained import Drained
from kwsniff.engine.engine import Engine
from kwsniff.net.segments import segment_columns, tells_time, time_told
from kwsniff.rows.prefetch import prefetched

Ints = NDArray[np.int64]
Part = tuple[pa.RecordBatch, Ints]
"""Events and the keys that order them."""


def analyze(
    segments: Iterable[pa.RecordBatch],
    config: Config,
    engine: Engine | None = None,
    *,
    prefetch: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Turn SEGMENTS batches in capture order into EVENTS batches.

    A batch holds segments of one capture file. Never raises for what the segments carry: damage becomes
    anomaly rows. The next batch is asked for when the events of the last one have been taken. `engine`, if
    given, is a new one of the same `config`, for those who want to know how it stands. With `prefetch` a
    thread of its own follows the connections, ahead of who takes the events.
    """
    analysis = Analysis(config, engine=engine)
    drained = analysis.drained(segments)
    if prefetch and analysis.engine.compiled:
        drained = prefetched(drained)
    with closing(drained):
        yield from map(analysis.engine.events, drained)


def keyed(
    segments: Iterable[pa.RecordBatch], config: Config, share: tuple[int, int] | None = None
) -> Iterator[Iterator[Part]]:
    """For each SEGMENTS batch, and once more at the end, the events it completes, in parts that are made one
    after the other, and keys that order them.

    With `share` (index, count) only one share of the connections is followed; the keys of all shares together
    give the order in which one process yields the events. Each batch's parts have to be taken before the
    next batch is asked for.
    """
    analysis = Analysis(config, share)
    for batch in segments:
        yield analysis.feed(batch)
    yield analysis.finish()


class Analysis:
    """A run of `analyze` that can be left between two batches: pickled then, it goes on where it was, in
    another process of the same version of kwsniff."""

    def __init__(
        self, config: Config, share: tuple[int, int] | None = None, engine: Engine | None = None
    ) -> None:
        """`share` as for `keyed`, `engine` as for `analyze`."""
        self.engine = engine or Engine(config, share)

    def drained(self, segments: Iterable[pa.RecordBatch]) -> Generator[Drained]:
        """What SEGMENTS batches in capture order and the end of the input tell, not made into events yet."""
        for batch in segments:
            if tells_time(batch):
                yield from self.engine.pass_time(time_told(batch))
            else:
                yield from self.engine.follow(segment_columns(batch))
        yield from self.engine.end()

    def feed(self, batch: pa.RecordBatch) -> Iterator[Part]:
        """The events that a SEGMENTS batch completes, in parts; all have to be taken."""
        return self._keyed(self.events(batch))

    def finish(self) -> Iterator[Part]:
        """The input is over: what is still open ends."""
        return self._keyed(self.engine.finish())

    def events(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The same as `feed` without keys."""
        if tells_time(batch):
            return self.engine.tick(time_told(batch))
        return self.engine.feed(segment_columns(batch))

    def _keyed(self, events: Iterator[pa.RecordBatch]) -> Iterator[Part]:
        for batch in events:
            yield batch, self.engine.keys
