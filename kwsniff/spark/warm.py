"""What a stream does before its first batch, beside Spark's own beginning: all that would be done there for
the first time.

Spark starts a process of Python for each thing that it asks a data source, and Java reads the code of a query
when it first runs. A batch after that takes a second; the first took several, while packets waited.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from threading import Thread
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import datasource

from kwsniff.config import Config
from kwsniff.spark.control import numbers, tasks
from kwsniff.spark.followed import Kept

if TYPE_CHECKING:
    from pyspark.sql import DataFrameReader, SparkSession

OF_TASKS = "kwsniff.spark.stream"
"""Imports all that tasks of a batch need."""


class NothingReader(datasource.DataSourceReader):
    """Reads no rows, in as many tasks as a batch has."""

    def __init__(self, count: int) -> None:
        self._count = count

    def partitions(self) -> list[datasource.InputPartition]:
        return [datasource.InputPartition(number) for number in range(self._count)]

    def read(self, partition: datasource.InputPartition) -> Iterator[pa.RecordBatch]:
        _load()
        yield from ()


def warm(spark: SparkSession, nothing: DataFrameReader, count: int) -> list[Thread]:
    """Begin to run queries as a batch does, over `nothing`, in `count` tasks; gives the threads that do."""

    def ours() -> object:
        return tasks(spark, "start", count, _nothing)

    def source() -> object:
        return nothing.load().select("position", "detail").toArrow()

    threads = [Thread(target=_run, args=(query,), daemon=True) for query in (ours, source)]
    for each in threads:
        each.start()
    return threads


def _run(query: Callable[[], object]) -> None:
    with suppress(Exception):  # the stream is being stopped, or will fail by the same itself
        query()


def _nothing(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in numbers(batches):
        _load()
    yield from ()


def _load() -> None:
    """What workers make once."""
    importlib.import_module(OF_TASKS)
    for _ in Kept.fresh(Config(), (0, 1)).analysis.finish():
        """Nothing comes of it."""
