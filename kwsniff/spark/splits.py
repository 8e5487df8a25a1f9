"""Captures to staged events on Spark in splits: each byte of the input is read by one task.

Theory of operation. What `kwsniff.split` describes, in four jobs: `_index` finds where large files can be cut
(a task a file); `decode` decodes the splits (a task each), which write their events into files of their own
and hand over what has to be stitched (edges); `stitch` brings the edges of each pair of endpoints together,
in the order of the splits, which is all that is shuffled; `again` decodes what a split had guessed wrong.
`corrections` then are what has to be put right in the files, or added to them (`kwsniff.spark.finish`).

Between the jobs lie Parquet files, so nothing is computed twice and a task that fails is simply run again.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from kwsniff.arrow import KINDS
from kwsniff.capture.source import CaptureFile, resolve
from kwsniff.config import MIB, Config
from kwsniff.lake.place import Place
from kwsniff.lake.tables import ROWS
from kwsniff.net.totals import CaptureTotals
from kwsniff.spark.control import (
    AGAIN,
    EDGE,
    EVENTS,
    NAMING,
    TOLD,
    WRONG,
    Kept,
    Row,
    Work,
    batched,
    numbers,
    packed,
    spark_schema,
    tasks,
    unbatched,
)
from kwsniff.spark.decode import RUN_BITS, positioned
from kwsniff.spark.staged import Staged, StagedFile
from kwsniff.split.again import Rerun
from kwsniff.split.decode import SplitDecoder
from kwsniff.split.edge import Edge
from kwsniff.split.engine import ORDER_BITS
from kwsniff.split.plan import SPLIT_BYTES, Split, joined, pieces
from kwsniff.split.reading import SplitReader, Told, independent
from kwsniff.split.stitch import Again, Stitched, Stitcher

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LEAST_SPLIT = 32 * MIB
"""Smaller splits would have more edges than they gain."""
MOST_SPLITS = 1 << 16
"""A position has room for the numbers of so many."""
STITCH_BYTES = 64 * MIB
"""Edges for one task to stitch, about."""
SORTED_BYTES = 16 * MIB
"""Events that wait to be handed over, about."""


def split_bytes(total: int, cores: int) -> int:
    """Size of splits: one for each core, within limits."""
    wanted = min(max(total // cores, LEAST_SPLIT), SPLIT_BYTES)
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
            for number in numbers(batches):
                found = pickle.dumps((large[number], pieces(large[number], config, size)))
                yield from batched([{"kind": TOLD, "data": found}])

        told = tasks(spark, len(large), work).toArrow()["data"].to_pylist()
        parts.update(map(pickle.loads, told))
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
        self, spark: SparkSession, splits: Sequence[Split], config: Config, place: Place, run: int
    ) -> None:
        """`run` puts the positions behind those of runs with a lower number."""
        self._spark, self._splits, self._config = spark, list(splits), config
        self._place, self._run = place, run
        self._edges = Kept(spark, place / "edges")
        self._stitched = Kept(spark, place / "stitched")
        self._again = Kept(spark, place / "again")
        self.totals = CaptureTotals()
        self.account = Account(len(splits))
        self.files: list[Staged] = []
        """The events of each split, as it knows them."""

    def decode(self) -> bool:
        """Decode all splits; False if they cannot be read apart, see `reading.independent`."""
        work = _decoding(self._splits, self._config, self._place / "events", self._run)
        self._edges.write(tasks(self._spark, len(self._splits), work))
        told = []
        for detail in self._edges.details(TOLD):
            said = json.loads(detail)
            told.append(Told.of(said["told"]))
            self.files.append(Staged(**said["file"]))
        for each in told:
            self.totals.merge(each.totals)
            self.account.edges += each.edges
            self.account.shuffled_bytes += each.edge_bytes
        self._clock = max(each.clock for each in told)
        self.files.sort(key=lambda file: file.split or 0)
        return independent(self._splits, told)

    def stitch(self, group_of: Sequence[int]) -> None:
        """Stitch what crosses splits, and decode again what was guessed wrong. What comes of a split is for
        the group that `group_of` has for it."""
        from pyspark.sql import functions as f

        account = self.account
        cores = self._spark.sparkContext.defaultParallelism
        edges = self._edges.rows().where(f.col("kind") == EDGE)
        parts = max(cores, account.shuffled_bytes // STITCH_BYTES + 1)
        in_order = edges.repartition(parts, "key").sortWithinPartitions("key", "split")
        groups = list(group_of)
        stitching = _stitching(self._config, self._clock, self._run, groups)
        self._stitched.write(in_order.mapInArrow(stitching, spark_schema()))
        reasons = self._stitched.details(AGAIN)
        if reasons:
            again = self._to_decode_again().repartition(min(cores, len(reasons)), "key")
            decoding = _decoding_again(self._splits, self._config, self._clock, self._run, groups)
            in_order = again.sortWithinPartitions("split", "kind")
            self._again.write(in_order.mapInArrow(decoding, spark_schema()))
            reasons += self._again.details(AGAIN)
        account.guesses = sum(map(int, self._stitched.details(TOLD)))
        account.wrong = len(reasons)
        account.reasons = {why: reasons.count(why) for why in sorted(set(reasons))}

    def _to_decode_again(self) -> DataFrame:
        """What is to be decoded again, with the edges behind."""
        from pyspark.sql import functions as f

        again = self._stitched.rows().where(f.col("kind") == AGAIN)
        since = again.select("key", f.col("split").alias("since"))
        edges = self._edges.rows().where(f.col("kind") == EDGE)
        later = edges.join(since, "key").where(f.col("split") > f.col("since"))
        return again.unionByName(later.select(*again.columns))

    def corrections(self) -> list[DataFrame]:
        """NAMING, WRONG and EVENTS; their `split` is the group that they are for."""
        from pyspark.sql import functions as f

        parts = [self._stitched, self._again] if self.account.wrong else [self._stitched]
        return [part.rows().where(f.col("kind").isin(NAMING, WRONG, EVENTS)) for part in parts]


# Tasks


def _decoding(splits: list[Split], config: Config, place: Place, run: int) -> Work:
    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in numbers(batches):
            yield from batched(_decoded(splits, number, config, place, run))

    return work


def _decoded(splits: list[Split], number: int, config: Config, place: Place, run: int) -> Iterator[Row]:
    """What one split comes to besides its events: edges, and what is told of its packets."""
    reader = SplitReader(splits, number, config)
    decoder = SplitDecoder(config, number, number == 0)
    with StagedFile(place / f"{number:06}.arrow") as file:
        for batch, keys in decoder.events(reader.segments()):
            if batch is not None:
                file.add(positioned(batch, keys, run))
    told = reader.told
    for edge in decoder.edges():
        data = edge.pack()
        told.edges += 1
        told.edge_bytes += len(data)
        yield {"kind": EDGE, "split": number, "key": edge.key, "data": data}
    told.clock = decoder.clock
    said = {"told": told.plain(), "file": asdict(file.told(number))}
    yield {"kind": TOLD, "split": number, "detail": json.dumps(said)}


def _stitching(config: Config, clock: int, run: int, group_of: list[int]) -> Work:
    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batched(_stitched(unbatched(batches), config, clock, _Sorter(run, group_of)))

    return work


def _stitched(rows: Iterable[Row], config: Config, clock: int, sorter: _Sorter) -> Iterator[Row]:
    stitcher = Stitcher(config, clock)
    guesses = 0
    for _, group in groupby(rows, key=lambda row: row["key"]):
        done = stitcher.stitch(Edge.unpack(row["data"]) for row in group)
        guesses += done.guesses
        yield from sorter.take(done)
    yield from sorter.finish()
    yield {"kind": TOLD, "detail": str(guesses)}


def _decoding_again(splits: list[Split], config: Config, clock: int, run: int, group_of: list[int]) -> Work:
    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        def read(number: int) -> Iterator[pa.RecordBatch]:
            return SplitReader(splits, number, config).segments()

        rerun = Rerun(read, config, clock)
        yield from batched(_decoded_again(unbatched(batches), rerun, _Sorter(run, group_of)))

    return work


def _decoded_again(rows: Iterable[Row], rerun: Rerun, sorter: _Sorter) -> Iterator[Row]:
    for split, group in groupby(rows, key=lambda row: row["split"]):
        data: dict[str, list[bytes]] = {AGAIN: [], EDGE: []}
        for row in group:
            data[row["kind"]].append(row["data"])
        for done in rerun.take(split, map(Again.unpack, data[AGAIN]), map(Edge.unpack, data[EDGE])):
            yield from sorter.take(done)
    for done in rerun.finish():
        yield from sorter.take(done)
    yield from sorter.finish()


class _Sorter:
    """Hands what came of endpoints over to the groups that it is for."""

    def __init__(self, run: int, group_of: list[int]) -> None:
        self._run, self._group_of = run, np.array(group_of)
        self._waiting: dict[int, list[pa.RecordBatch]] = {}
        self._bytes = 0

    def take(self, done: Stitched) -> Iterator[Row]:
        for naming in done.names:
            true = [naming.connection, naming.software_name, naming.software_version]
            group = int(self._group_of[naming.split])
            yield {"kind": NAMING, "split": group, "key": naming.provisional, "detail": json.dumps(true)}
        if done.again is not None:
            yield from self._again(done.again)
        for batch, keys in done.parts:
            if batch is not None:
                self._add(positioned(batch, keys, self._run))
        if self._bytes > SORTED_BYTES:
            yield from self.finish()

    def finish(self) -> Iterator[Row]:
        for group, batches in sorted(self._waiting.items()):
            whole = pa.Table.from_batches(batches, ROWS).combine_chunks().to_batches()
            yield from ({"kind": EVENTS, "split": group, "data": packed(batch)} for batch in whole)
        self._waiting, self._bytes = {}, 0

    def _again(self, again: Again) -> Iterator[Row]:
        what = {"key": again.key, "detail": again.why, "data": again.pack()}
        yield {"kind": AGAIN, "split": again.split, **what}
        group = int(self._group_of[again.split])
        for connection in again.wrong:
            yield {"kind": WRONG, "split": group, "key": connection}

    def _add(self, batch: pa.RecordBatch) -> None:
        orders = (batch["position"].to_numpy() & ((1 << RUN_BITS) - 1)) // KINDS
        groups = self._group_of[np.clip(orders >> ORDER_BITS, 0, len(self._group_of) - 1)]
        found = np.unique(groups).tolist()
        for group in found:
            own = batch.filter(pa.array(groups == group)) if len(found) > 1 else batch
            self._waiting.setdefault(group, []).append(own)
        self._bytes += batch.nbytes
