"""Captures to EVENTS on Spark, exactly as one process would give them.

Theory of operation. An event depends only on its own connection's segments. So every task reads all of the
input and follows its share of the connections, chosen by a hash of their ends (as `kwsniff.parallel` does):
no payload goes through the JVM or a shuffle. Reading and dissecting are repeated by every task; decoding,
which costs far more, is divided.

Each row has a `position`: sorted by it, rows are in the order of one process. One task also tells what it
counted of packets, in one row more (event `totals`), so that a task run twice counts once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import pyarrow as pa

from kwsniff.capture.source import CaptureTotals, segments
from kwsniff.config import Config
from kwsniff.pipeline import Ints, keyed
from kwsniff.table import EVENTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOTALS = "totals"
"""The event of the row that holds a run's CaptureTotals as JSON in `detail`."""

POSITION = pa.field("position", pa.int64(), metadata={"doc": "sorts rows into the order of one process"})
ROWS = pa.schema([*EVENTS, POSITION])

RUN_BITS, BLOCK_BITS = 52, 32
"""Bits of a position below the number of the run and below the number of the block."""


def decoded(
    spark: SparkSession, paths: Sequence[str], config: Config, *, shards: int | None = None, run: int = 0
) -> DataFrame:
    """Events of `paths` in `shards` tasks (default: Spark's parallelism), with the columns of `ROWS`.

    `run` puts the positions behind those of runs with a lower number.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    count = shards or spark.sparkContext.defaultParallelism
    tasks = spark.range(0, count, 1, count)
    return tasks.mapInArrow(_task(list(paths), config, count, run), from_arrow_schema(ROWS))


def _task(
    paths: Sequence[str], config: Config, count: int, run: int
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for shard in batch.column(0).to_pylist():
                yield from rows(paths, config, (shard, count), run)

    return work


def rows(
    paths: Sequence[str], config: Config, shard: tuple[int, int], run: int = 0
) -> Iterator[pa.RecordBatch]:
    """What one task yields: the events of its share of the connections. Raises CaptureError."""
    totals = CaptureTotals()
    for block, parts in enumerate(keyed(segments(paths, config, totals), config, shard)):
        for batch, keys in parts:
            if batch is not None:
                yield _positioned(batch, keys + ((run << RUN_BITS) + (block << BLOCK_BITS)))
    if shard[0] == 0:
        yield _totals_row(totals)


def _positioned(batch: pa.RecordBatch, positions: Ints) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([*batch.columns, pa.array(positions)], schema=ROWS)


def _totals_row(totals: CaptureTotals) -> pa.RecordBatch:
    given = {"event": TOTALS, "detail": json.dumps(asdict(totals)), "position": -1}
    arrays = [pa.array([given.get(field.name)], field.type) for field in ROWS]
    return pa.RecordBatch.from_arrays(arrays, schema=ROWS)
