"""SEGMENTS to EVENTS by the engine over objects, for splits and processes until they use the other."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kwsniff.arrow import events_batch
from kwsniff.config import Config
from kwsniff.engine import Engine, Events
from kwsniff.pace import Pace
from kwsniff.pipeline import NOW, Part
from kwsniff.segments import segment_columns

Ints = NDArray[np.int64]


def keyed(
    segments: Iterable[pa.RecordBatch],
    config: Config,
    shard: tuple[int, int] | None = None,
    engine: Engine | None = None,
) -> Iterator[Iterator[Part]]:
    """For each SEGMENTS batch, and once more at the end, the events it completes, in parts that are made one
    after the other, and keys that order them.

    With `shard` (index, count) only one share of the connections is followed; the keys of all shares together
    give the order in which one process yields the events. Each batch's parts have to be taken before the
    next batch is asked for.
    """
    analysis = Analysis(config, shard, engine)
    for batch in segments:
        yield analysis.feed(batch)
    yield iter([analysis.finish()])


class Analysis:
    """A run of `analyze` that can be left between two batches: pickled then, it goes on where it was, in
    another process of the same version of kwsniff."""

    def __init__(
        self, config: Config, shard: tuple[int, int] | None = None, engine: Engine | None = None
    ) -> None:
        """`shard` and `engine` as for `keyed`."""
        self._config = config
        self._engine = engine or Engine(config, shard)
        self._pace = Pace(config)

    def feed(self, batch: pa.RecordBatch) -> Iterator[Part]:
        """The events that a SEGMENTS batch completes, in parts; all have to be taken."""
        engine, pace = self._engine, self._pace
        if not len(batch) and batch.schema.metadata and NOW in batch.schema.metadata:
            yield events_batch(engine.tick(int(batch.schema.metadata[NOW])), None, self._config)
            return
        for part in pace.slices(batch):
            opened, load = engine.opened, engine.load
            columns = segment_columns(part)
            with _collector_paused():
                events = engine.feed(columns)
                # Counted as if all were objects, so that slices, and with them the place of late events, are
                # the same with kernels and without.
                brought = 3 * (engine.opened - opened) + max(engine.load - load, 0)
                pace.learn(_weight(events) + brought, engine.load)
                made = events_batch(events, columns.capture, self._config)
            del events
            yield made

    def finish(self) -> Part:
        """The input is over: what is still open ends."""
        return events_batch(self._engine.finish(), None, self._config)


def _weight(events: Events) -> int:
    """How much events take, about: a partition may take as much as a call."""
    calls = len(events.calls) + sum(map(len, events.blocks))
    partitions = sum([len(call.partitions) for call in events.calls if call.partitions])
    partitions += sum([len(block.rows) for block in events.blocks])
    return calls + partitions + len(events.anomalies) + 3 * len(events.ends)


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Without garbage collection: a block makes a million objects and no cycles, and looking for cycles among
    them takes a fifth of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
