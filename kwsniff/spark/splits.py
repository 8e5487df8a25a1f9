"""Captures to EVENTS on Spark in splits: each byte of the input is read by one task.

Theory of operation. What `kwsniff.split` describes, in four jobs: `_index` finds where large files can be cut
(a task a file); `decode` decodes the splits (a task each) and writes their events, with what has to be
stitched (edges) as rows among them; `stitch` brings the edges of each pair of endpoints together, in the
order of the splits, which is all that is shuffled; `again` decodes what a split had guessed wrong. `settled`
then gives all events that are to be believed, under their true names.

Between the jobs lie Parquet files, so nothing is computed twice and a task that fails is simply run again.
Rows that are no events are told apart by `event`: EDGE, NAMING, WRONG, AGAIN and TOTALS.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kwsniff.capture.source import CaptureFile, resolve
from kwsniff.config import MIB, Config
from kwsniff.net.totals import CaptureTotals
from kwsniff.pipeline import Ints
from kwsniff.spark.decode import ROWS, RUN_BITS, TOTALS
from kwsniff.split.again import decode_again
from kwsniff.split.decode import SplitDecoder
from kwsniff.split.edge import Edge
from kwsniff.split.plan import SPLIT_BYTES, Split, joined, pieces
from kwsniff.split.reading import SplitReader, Told, independent
from kwsniff.split.settle import PROVISIONAL
from kwsniff.split.stitch import Again, Stitched, Stitcher

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EDGE, NAMING, WRONG, AGAIN = "edge", "naming", "wrong", "again"
NO_EVENTS = (EDGE, NAMING, WRONG, AGAIN, TOTALS)
STAGED = ROWS.append(pa.field("edge", pa.binary(), metadata={"doc": "a packed Edge or Again"}))

LEAST_SPLIT = 32 * MIB
"""Smaller splits would have more edges than they gain."""
MOST_SPLITS = 1 << 16
"""A position has room for the numbers of so many."""
STITCH_BYTES = 64 * MIB
"""Edges for one task to stitch, about."""
BATCH_BYTES = 8 * MIB
BROADCAST = 200_000
"""Names that are sent to all tasks, rather than joined by a shuffle."""

Work = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def split_bytes(total: int, cores: int) -> int:
    """Size of splits: three for each core, within limits."""
    wanted = min(max(total // (3 * cores), LEAST_SPLIT), SPLIT_BYTES)
    return max(wanted, -(-total // (MOST_SPLITS // 2)))


def make_plan(spark: SparkSession, paths: Sequence[str], config: Config, size: int | None) -> list[Split]:
    """The splits of the captures at `paths`; `size` is that of a split in bytes. Raises CaptureError."""
    files = resolve(paths)
    total = sum(file.size or 0 for file in files)
    size = size or split_bytes(total, spark.sparkContext.defaultParallelism)
    return joined(files, _index(spark, files, config, size), size)


def _index(spark: SparkSession, files: Sequence[CaptureFile], config: Config, size: int) -> list[list[Split]]:
    """The pieces of each file; large files are looked into, each by a task."""
    parts = {file.path: [Split(file.path)] for file in files}
    large = [file.path for file in files if (file.size or 0) > size]
    if large:

        def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    found = pickle.dumps((large[number], pieces(large[number], config, size)))
                    yield pa.RecordBatch.from_pydict({"pieces": pa.array([found], pa.binary())})

        tasks = spark.range(0, len(large), 1, len(large)).mapInArrow(work, "pieces binary")
        parts.update(pickle.loads(row) for row in tasks.toArrow()["pieces"].to_pylist())
    return [parts[file.path] for file in files]


@dataclass(slots=True)
class Account:
    """What a run in splits came to: for the manifest."""

    splits: int
    edges: int = 0
    shuffled_bytes: int = 0
    """Size of all edges: what was shuffled but for events."""
    guesses: int = 0
    """States that were guessed ..."""
    wrong: int = 0
    """... and how many pairs of endpoints were decoded again because a guess was wrong."""
    reasons: dict[str, int] = field(default_factory=dict)


class SplitRun:
    """One run over `splits`, with the files between its jobs in `place`."""

    def __init__(
        self, spark: SparkSession, splits: Sequence[Split], config: Config, place: Path, run: int
    ) -> None:
        """`run` puts the positions behind those of runs with a lower number."""
        self._spark, self._splits, self._config = spark, list(splits), config
        self._place, self._run = place, run
        self.totals = CaptureTotals()
        self.account = Account(len(splits))
        self._names = 0

    def decode(self) -> bool:
        """Decode all splits; False if they cannot be read apart, see `reading.independent`."""
        count = len(self._splits)
        tasks = self._spark.range(0, count, 1, count)
        self._write(
            tasks.mapInArrow(_decoding(self._splits, self._config, self._run), self._schema), "splits"
        )
        told = [Told.of(json.loads(each)) for each in self._rows("splits", TOTALS, "detail")]
        for each in told:
            self.totals.merge(each.totals)
            self.account.edges += each.edges
            self.account.shuffled_bytes += each.edge_bytes
        self._clock = max(each.clock for each in told)
        return independent(self._splits, told)

    def stitch(self) -> None:
        """Stitch what crosses splits, and decode again what was guessed wrong."""
        from pyspark.sql import functions as f

        account = self.account
        cores = self._spark.sparkContext.defaultParallelism
        edges = self._read("splits").where(f.col("event") == EDGE).select("connection", "position", "edge")
        parts = max(cores, account.shuffled_bytes // STITCH_BYTES + 1)
        in_order = edges.repartition(parts, "connection").sortWithinPartitions("connection", "position")
        work = _stitching(self._config, self._clock, self._run)
        self._write(in_order.mapInArrow(work, self._schema), "stitched")
        told = [json.loads(each) for each in self._rows("stitched", TOTALS, "detail")]
        account.guesses = sum(each["guesses"] for each in told)
        self._names = sum(each["names"] for each in told)
        self._decode_again(cores)

    def _decode_again(self, cores: int) -> None:
        from pyspark.sql import functions as f

        reasons = self._rows("stitched", AGAIN, "detail")
        account = self.account
        account.wrong = len(reasons)
        account.reasons = {why: reasons.count(why) for why in sorted(set(reasons))}
        if not reasons:
            return
        given = self._read("stitched").where(f.col("event") == AGAIN).select("connection", "edge")
        work = _decoding_again(self._splits, self._config, self._clock, self._run)
        parts = min(cores, len(reasons))
        self._write(given.repartition(parts, "connection").mapInArrow(work, self._schema), "again")

    def settled(self) -> DataFrame:
        """All events, with the columns of ROWS."""
        from pyspark.sql import functions as f

        stitched = self._read("stitched")
        guessed = f.coalesce(f.col("connection").startswith(PROVISIONAL), f.lit(False))
        found = self._read("splits").where(~f.col("event").isin(*NO_EVENTS))
        names = stitched.where(f.col("event") == NAMING).select(
            f.col("connection").alias("provisional"), f.col("detail").alias("true"),
            f.col("software_name").alias("name"), f.col("software_version").alias("version"),
        )  # fmt: skip
        if self._names < BROADCAST:
            names = f.broadcast(names)
        untold = (f.col("event") == "call") & f.col("software_name").isNull()
        named = (
            found.where(guessed)
            .join(names, f.col("connection") == f.col("provisional"), "inner")
            .withColumn("connection", f.col("true"))
            .withColumn(
                "software_version", f.when(untold, f.col("version")).otherwise(f.col("software_version"))
            )
            .withColumn("software_name", f.coalesce("software_name", f.when(untold, f.col("name"))))
        )
        plain = found.where(~guessed)
        parts = [named, stitched.where(~f.col("event").isin(*NO_EVENTS))]
        if self.account.wrong:
            wrong = stitched.where(f.col("event") == WRONG).select("connection").distinct()
            plain = plain.join(wrong, "connection", "left_anti")
            parts.append(self._read("again"))
        whole = plain.select(*ROWS.names)
        for part in parts:
            whole = whole.unionByName(part.select(*ROWS.names))
        return whole

    # Files between the jobs

    @property
    def _schema(self) -> Any:
        from pyspark.sql.pandas.types import from_arrow_schema

        return from_arrow_schema(STAGED)

    def _write(self, frame: DataFrame, name: str) -> None:
        frame.write.parquet((self._place / name).as_uri())

    def _read(self, name: str) -> DataFrame:
        return self._spark.read.schema(self._schema).parquet((self._place / name).as_uri())

    def _rows(self, name: str, event: str, column: str) -> list[Any]:
        """One column of the rows that are no events; found by tasks, for there may be very many others."""
        from pyspark.sql import functions as f

        found = self._read(name).where(f.col("event") == event).select(column)
        values: list[Any] = found.toArrow()[column].to_pylist()
        return values


# Tasks


def _decoding(splits: list[Split], config: Config, run: int) -> Work:
    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from _decoded(splits, number, config, run)

    return work


def _decoded(splits: list[Split], number: int, config: Config, run: int) -> Iterator[pa.RecordBatch]:
    """What one split comes to: events, edges, and what is told of its packets."""
    reader = SplitReader(splits, number, config)
    decoder = SplitDecoder(config, number, number == 0)
    for batch, keys in decoder.events(reader.segments()):
        if batch is not None:
            yield _positioned(batch, keys, run)
    told = reader.told
    yield from _others(_edges(decoder.edges(), told))
    told.clock = decoder.clock
    yield _row({"event": TOTALS, "detail": json.dumps(told.plain()), "position": -1})


def _edges(edges: Iterable[Edge], told: Told) -> Iterator[dict[str, Any]]:
    for edge in edges:
        packed = edge.pack()
        told.edges += 1
        told.edge_bytes += len(packed)
        yield {"event": EDGE, "connection": edge.key, "position": told.split, "edge": packed}


def _stitching(config: Config, clock: int, run: int) -> Work:
    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        stitcher = Stitcher(config, clock)
        rows = (
            row
            for batch in batches
            for row in zip(batch["connection"].to_pylist(), batch["edge"], strict=True)
        )
        guesses = names = 0
        for _, group in groupby(rows, key=lambda row: row[0]):
            done = stitcher.stitch(Edge.unpack(edge.as_py()) for _, edge in group)
            guesses += done.guesses
            names += len(done.names)
            for batch, keys in done.parts:
                if batch is not None:
                    yield _positioned(batch, keys, run)
            yield from _others(_found(done))
        yield _row({"event": TOTALS, "detail": json.dumps({"guesses": guesses, "names": names})})

    return work


def _found(done: Stitched) -> Iterator[dict[str, Any]]:
    for naming in done.names:
        yield {
            "event": NAMING, "connection": naming.provisional, "detail": naming.connection,
            "software_name": naming.software_name, "software_version": naming.software_version,
        }  # fmt: skip
    again = done.again
    if again is not None:
        key = ",".join(map(str, again.endpoints))
        yield {"event": AGAIN, "connection": key, "detail": again.why, "edge": again.pack()}
        yield from ({"event": WRONG, "connection": connection} for connection in again.wrong)


def _decoding_again(splits: list[Split], config: Config, clock: int, run: int) -> Work:
    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        given = [Again.unpack(edge.as_py()) for batch in batches for edge in batch["edge"]]
        if not given:
            return

        def read(number: int) -> Iterator[pa.RecordBatch]:
            return SplitReader(splits, number, config).segments()

        for batch, keys in decode_again(given, read, config, clock):
            if batch is not None:
                yield _positioned(batch, keys, run)

    return work


def _positioned(batch: pa.RecordBatch, keys: Ints, run: int) -> pa.RecordBatch:
    positions = pa.array(keys + (run << RUN_BITS))
    none = pa.nulls(len(batch), pa.binary())
    return pa.RecordBatch.from_arrays([*batch.columns, positions, none], schema=STAGED)


def _row(given: dict[str, Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([given], STAGED)


def _others(rows: Iterable[dict[str, Any]]) -> Iterator[pa.RecordBatch]:
    """Rows that are no events, in batches of a sensible size."""
    waiting: list[dict[str, Any]] = []
    size = 0
    for row in rows:
        waiting.append(row)
        size += len(row.get("edge") or b"") + 200
        if size > BATCH_BYTES:
            yield pa.RecordBatch.from_pylist(waiting, STAGED)
            waiting, size = [], 0
    if waiting:
        yield pa.RecordBatch.from_pylist(waiting, STAGED)
