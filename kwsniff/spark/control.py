"""What tasks tell Spark: few rows, narrow ones, beside the events that they write themselves.

An event that went through the JVM would be taken apart into its sixty fields and put together again, each
time, for longer than it took to decode. So what has to be brought to another task goes as bytes, and in files
beside the results: a shuffle would copy them into the JVM, to disk, and through two more Python workers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa

from kwsniff.lake.place import Place
from kwsniff.tuning import trimmed

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    Spark = SparkSession | SparkContext

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
STAGE_NAME = "callSite.short"
"""Spark's property for it."""

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
    trimmed()
    for batch in batches:
        yield from batch.column(0).to_pylist()


def context_of(spark: Spark) -> SparkContext:
    """What runs tasks; a session is more, which queries need."""
    from pyspark import SparkContext

    return spark if isinstance(spark, SparkContext) else spark.sparkContext


def described(spark: Spark) -> Callable[[], None]:
    """Gives the jobs of the thread that calls it the description of those of this one."""
    context, name = context_of(spark), "spark.job.description"
    text = context.getLocalProperty(name)
    return lambda: context.setLocalProperty(name, text) if text else None


def tasks(spark: Spark, name: str, count: int, work: Work) -> pa.Table:
    """What a task for each number below `count` yields; on Spark's page they are called `name`. Raises what
    Spark raises.

    These are no DataFrames: a query's plan, and the code that is made for it, would take seconds of a first
    run, and a tenth of one for each job after that.
    """

    def run(given: Iterable[int]) -> Iterator[pa.RecordBatch]:
        return work(pa.RecordBatch.from_pydict({"id": [number]}) for number in given)

    context = context_of(spark)
    parts = context.parallelize(range(count), max(count, 1))
    context.setLocalProperty(STAGE_NAME, name)
    try:  # `collect` would give the stage its own name, and the line of this file
        return pa.Table.from_batches(context.runJob(parts, run), CONTROL)
    finally:
        context.setLocalProperty(STAGE_NAME, None)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows of one `split` in a file that a task wrote: these batches of it."""

    path: str
    first: int
    count: int


class KeptInput:
    """CONTROL rows between two jobs, in files that tasks write: so nothing is computed twice."""

    def __init__(self, spark: Spark, place: Place) -> None:
        self._spark, self._place = spark, place
        self._pieces: dict[int | None, list[Piece]] = {}

    def write(self, name: str, count: int, work: Work) -> None:
        """Run `count` tasks. Rows of the same `split` should follow each other. Raises what Spark raises."""
        emitted = tasks(self._spark, name, count, _keeping(self._place, work))
        said = zip(emitted["key"].to_pylist(), emitted["detail"].to_pylist(), strict=True)
        for path, detail in sorted(said):
            for split, first, number in json.loads(detail):
                self._pieces.setdefault(split, []).append(Piece(path, first, number))

    def pieces(self, split: int | None) -> list[Piece]:
        """Where the rows of a `split` lie, in the order of the tasks that wrote them."""
        return self._pieces.get(split, [])

    def details(self) -> list[str]:
        """`detail` of the rows that are of no `split`, in the order of the tasks that wrote them."""
        return [row["detail"] for row in rows_of(self.pieces(None))]


def _keeping(place: Place, work: Work) -> Work:
    """Writes the rows of each task to a file of its own, and tells it."""

    def keep(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in numbers(batches):
            given = pa.RecordBatch.from_pydict({"id": [number]})
            file = place / f"{number:06}-{uuid4().hex[:12]}.arrow"
            pieces = _write(file, work([given]))
            yield from batched([{"kind": EMITTED, "key": file.url, "detail": json.dumps(pieces)}])

    return keep


def _write(file: Place, batches: Iterable[pa.RecordBatch]) -> list[tuple[int | None, int, int]]:
    """Each `split` that was written, the number of its first batch, and how many they are."""
    pieces: list[tuple[int | None, int, int]] = []
    count = 0
    with file.create() as stream, pa.ipc.new_file(stream, CONTROL) as writer:
        for batch in batches:
            for split, rows in _by_split(batch):
                writer.write_batch(rows)
                if pieces and pieces[-1][0] == split:
                    pieces[-1] = (split, pieces[-1][1], pieces[-1][2] + 1)
                else:
                    pieces.append((split, count, 1))
                count += 1
    return pieces


def _by_split(batch: pa.RecordBatch) -> Iterator[tuple[int | None, pa.RecordBatch]]:
    """The rows of a batch, those of the same `split` that follow each other together."""
    first = 0
    for split, rows in groupby(batch["split"].to_pylist()):
        count = len(list(rows))
        yield split, batch.slice(first, count)
        first += count


def rows_of(pieces: Iterable[Piece]) -> Iterator[Row]:
    """The rows of some pieces. Raises OSError."""
    for piece in pieces:
        with Place(piece.path).open() as stream:
            file = pa.ipc.open_file(stream)
            yield from unbatched(map(file.get_batch, range(piece.first, piece.first + piece.count)))
