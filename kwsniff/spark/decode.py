"""Captures to EVENTS on Spark, exactly as one process would give them.

Theory of operation. An event depends only on its own connection's segments. So every task reads all of the
input and follows its share of the connections, chosen by a hash of their ends:
no payload goes through the JVM or a shuffle. Reading and dissecting are repeated by every task; decoding,
which costs far more, is divided.

Each row has a `position`: sorted by it, rows are in the order of one process.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from kwsniff.capture.source import CaptureTotals, segments
from kwsniff.config import Config
from kwsniff.lake.stored import ROWS
from kwsniff.pipeline import Ints, keyed

TOTALS = "totals"
"""The event of a row that holds CaptureTotals as JSON in `detail`."""

RUN_BITS = 52
"""Bits of a position below the number of the run."""


def rows(
    paths: Sequence[str], config: Config, shard: tuple[int, int], totals: CaptureTotals, run: int = 0
) -> Iterator[pa.RecordBatch]:
    """What one task makes: the events of its share of the connections, with the columns of `ROWS`.

    `run` puts the positions behind those of runs with a lower number; `totals` is filled. Raises
    CaptureError.
    """
    for parts in keyed(segments(paths, config, totals), config, shard):
        for batch, keys in parts:
            yield positioned(batch, keys, run)


def positioned(batch: pa.RecordBatch, keys: Ints, run: int) -> pa.RecordBatch:
    """EVENTS with the keys that order them, behind those of earlier runs."""
    return pa.RecordBatch.from_arrays([*batch.columns, pa.array(keys + (run << RUN_BITS))], schema=ROWS)


def ascending(positions: Ints, last: int) -> Ints:
    """The same, but later ones where one is not behind the one before, or the first not behind `last`: rows
    that one packet settled stay in their order."""
    steps = np.arange(len(positions))
    made: Ints = np.maximum.accumulate(np.maximum(positions - steps, last + 1)) + steps
    return made
