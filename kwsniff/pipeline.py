"""The journey from SEGMENTS to EVENTS: one function, the same in one process and in Spark."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kwsniff.arrow import events_batch, segment_columns
from kwsniff.config import Config
from kwsniff.engine import Engine

Ints = NDArray[np.int64]


def analyze(segments: Iterable[pa.RecordBatch], config: Config) -> Iterator[pa.RecordBatch]:
    """Turn SEGMENTS batches in capture order into EVENTS batches.

    A batch holds segments of one capture file. Never raises for what the segments carry: damage becomes
    anomaly rows.
    """
    for batch, _ in keyed(segments, config):
        if batch is not None:
            yield batch


def keyed(
    segments: Iterable[pa.RecordBatch], config: Config, shard: tuple[int, int] | None = None
) -> Iterator[tuple[pa.RecordBatch | None, Ints]]:
    """For each SEGMENTS batch, and once more at the end, the events it completes, and keys that order them.

    With `shard` (index, count) only one share of the connections is followed; the keys of all shares together
    give the order in which one process yields the events.
    """
    engine = Engine(config, shard)
    for batch in segments:
        columns = segment_columns(batch)
        with _collector_paused():
            events = events_batch(engine.feed(columns), columns.capture, config)
        yield events
    yield events_batch(engine.finish(), None, config)


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
