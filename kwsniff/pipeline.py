"""The journey from SEGMENTS to EVENTS: one function, the same in one process and in Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from kwsniff.arrow import events_batch, segment_columns
from kwsniff.config import Config
from kwsniff.engine import Engine


def analyze(segments: Iterable[pa.RecordBatch], config: Config) -> Iterator[pa.RecordBatch]:
    """Turn SEGMENTS batches in capture order into EVENTS batches.

    A batch holds segments of one capture file. Never raises for what the segments carry: damage becomes
    anomaly rows.
    """
    engine = Engine(config)
    for batch in segments:
        columns = segment_columns(batch)
        events = events_batch(engine.feed(columns), columns.capture, config.full)
        if events is not None:
            yield events
    events = events_batch(engine.finish(), None, config.full)
    if events is not None:
        yield events
