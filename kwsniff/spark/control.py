"""What tasks tell Spark: few rows, narrow ones, beside the events that they write themselves.

An event that went through the JVM would be taken apart into its sixty fields and put together again, each
time, for longer than it took to decode. So what has to be brought to another task goes as bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc

from kwsniff.lake.place import Place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

JOINED, EVENTS, EMITTED = "joined", "events", "told"
"""Kinds of rows: what joining a split told of its rows; rows (STAGED) that it could not tell; JSON."""
STORED = "stored"
"""Files of tables, as JSON."""

CONTROL = pa.schema(
    [
        pa.field("kind", pa.string(), nullable=False),
        pa.field("split", pa.int64()),
        pa.field("key", pa.string()),
        pa.field("detail", pa.string()),
        pa.field("data", pa.binary()),
    ]
)
BATCH_BYTES = 8 << 20

Row = dict[str, Any]
Work = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def batched(rows: Iterable[Row]) -> Iterator[pa.RecordBatch]:
    """Rows in batches of a sensible size."""
    waiting: list[Row] = []
    size = 0
    for row in rows:
        waiting.append(row)
        size += len(row.get("data") or b"") + 200
        if size > BATCH_BYTES:
            yield pa.RecordBatch.from_pylist(waiting, CONTROL)
            waiting, size = [], 0
    if waiting:
        yield pa.RecordBatch.from_pylist(waiting, CONTROL)


def unbatched(batches: Iterable[pa.RecordBatch]) -> Iterator[Row]:
    """The rows of batches, one at a time: their bytes may be many."""
    for batch in batches:
        for index in range(batch.num_rows):
            yield {name: batch[name][index].as_py() for name in batch.schema.names}


def numbers(batches: Iterable[pa.RecordBatch]) -> Iterator[int]:
    """The numbers that a task was given, see `tasks`."""
    for batch in batches:
        yield from batch.column(0).to_pylist()


def tasks(spark: SparkSession, count: int, work: Work) -> DataFrame:
    """A task for each number below `count`; they yield CONTROL."""
    return spark.range(0, count, 1, max(count, 1)).mapInArrow(work, spark_schema())


def spark_schema() -> Any:
    """CONTROL as Spark's."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(CONTROL)


class KeptInput:
    """CONTROL rows between two jobs, in files that tasks write: so nothing is computed twice."""

    def __init__(self, spark: SparkSession, place: Place) -> None:
        self._spark, self._place = spark, place
        self._files: list[str] = []

    def write(self, frame: DataFrame) -> None:
        """Run the job. Raises what Spark raises."""
        emitted = frame.mapInArrow(_keeping(self._place), spark_schema()).toArrow()
        files = zip(emitted["split"].to_pylist(), emitted["key"].to_pylist(), strict=True)
        self._files = [path for _, path in sorted(files)]

    def rows(self) -> DataFrame:
        """All of them, as Spark has them."""
        files = self._files

        def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for number in numbers(batches):
                yield from _kept(files[number])

        return tasks(self._spark, len(files), read)

    def column(self, name: str, kind: str) -> list[Any]:
        """A column of the rows of a kind that are few, in the order of the tasks that wrote them."""
        return [
            value
            for path in self._files
            for batch in _kept(path)
            for value in batch.filter(pc.equal(batch["kind"], kind))[name].to_pylist()
        ]

    def details(self, kind: str) -> list[str]:
        """`detail` of such rows."""
        return self.column("detail", kind)


def _keeping(place: Place) -> Work:
    """Writes the rows of a task to a file of its own, and tells it."""

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        number = context.partitionId() if context is not None else 0
        file = place / f"{number:06}-{uuid4().hex[:12]}.arrow"
        first = next((batch for batch in batches if batch.num_rows), None)
        if first is None:
            return
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with file.create() as stream, pa.ipc.new_file(stream, CONTROL, options=options) as writer:
            for batch in chain([first], batches):
                writer.write_batch(batch.cast(CONTROL))
        yield from batched([{"kind": EMITTED, "split": number, "key": file.url}])

    return work


def _kept(path: str) -> Iterator[pa.RecordBatch]:
    with Place(path).open() as stream:
        file = pa.ipc.open_file(stream)
        for index in range(file.num_record_batches):
            yield file.get_batch(index)
