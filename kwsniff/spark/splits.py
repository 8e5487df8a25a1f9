"""Captures to staged events on Spark in splits: each byte of the input is read by one task.

Theory of operation. What `kwsniff.parts` describes, in three jobs: `_index` finds where large files can be
cut (a task a file); `decode` decodes the splits (a task each), which write their events into files of their
own, and their summaries; `join` takes the summaries one after the other, in one task, since the state behind
a split is needed for the next one. `corrections` then are what has to be put right in the files, or added to
them (`kwsniff.spark.finish`).

Between the jobs lie files, so nothing is computed twice and a task that fails is simply run again.
"""

from __future__ import annotations

import json
import pickle
import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING
from uuid import uuid4

import pyarrow as pa

from kwsniff.capture.source import CaptureFile, resolve
from kwsniff.config import MIB, Config
from kwsniff.lake.place import Place
from kwsniff.net.totals import CaptureTotals
from kwsniff.parts.part import ORDER_BITS, PartEngine, PartSummary
from kwsniff.parts.plan import SPLIT_BYTES, Split, joined, pieces
from kwsniff.parts.reading import SplitNotes, SplitReader, independent
from kwsniff.spark.control import EMITTED, KeptInput, Piece, Work, batched, numbers, tasks
from kwsniff.spark.joining import Count, Joining, placed
from kwsniff.spark.packing import packed_summary
from kwsniff.spark.staged import STAGED, Staged, StagedFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LEAST_SPLIT = 32 * MIB
"""Smaller splits would have more edges than they gain."""
MOST_SPLITS = 1 << 15
"""A position has room for the numbers of so many."""


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
                yield from batched([{"kind": EMITTED, "data": found}])

        emitted = tasks(spark, len(large), work).toArrow()["data"].to_pylist()
        parts.update(map(pickle.loads, emitted))
    return [parts[file.path] for file in files]


@dataclass(slots=True)
class Account:
    """What a run in splits came to: for the manifest."""

    splits: int
    summary_bytes: int = 0
    """Size of all summaries ..."""
    shuffled_bytes: int = 0
    """... and with what joining told: what went from task to task but for events."""
    again: int = 0
    """Pairs of endpoints that were decoded again in a split."""
    splits_again: int = 0
    """Splits that were read again for them."""
    whole: int = 0
    """Splits that were decoded again as a whole."""


class SplitRun:
    """One run over `splits`, with the files between its jobs in `place`."""

    def __init__(
        self, spark: SparkSession, splits: Sequence[Split], config: Config, place: Place, run: int
    ) -> None:
        """`run` puts the positions behind those of runs with a lower number."""
        self._spark, self._splits, self._config = spark, list(splits), config
        self._place, self._run = place, run
        self._seed = secrets.randbits(62)
        self._summaries: list[str] = []
        self._joined = KeptInput(spark, place / "joined")
        self.totals = CaptureTotals()
        self.account = Account(len(splits))
        self.files: list[Staged] = []
        """The events of each split, as it knows them."""

    def decode(self) -> bool:
        """Decode all splits; False if they cannot be read apart, see `reading.independent`."""
        work = _decoding(self._splits, self._config, self._place, self._run, self._seed)
        details = tasks(self._spark, len(self._splits), work).toArrow()["detail"].to_pylist()
        said = sorted(map(json.loads, details), key=lambda each: each["file"]["split"])
        emitted = [SplitNotes.of(each["told"]) for each in said]
        for each in emitted:
            self.totals.merge(each.totals)
        self.files = [Staged(**each["file"]) for each in said]
        self._summaries = [each["summary"] for each in said]
        self.account.summary_bytes = sum(each["bytes"] for each in said)
        return independent(self._splits, emitted)

    def join(self, group_of: Sequence[int]) -> None:
        """Put the splits together. What comes of a split is for the group that `group_of` has for it."""
        work = _joining(
            self._splits, self._summaries, self._config, self._seed, self._run, list(group_of)
        )  # fmt: skip
        self._joined.write(1, work)
        (emitted,) = self._joined.details()
        count = Count(**json.loads(emitted))
        account = self.account
        account.again, account.splits_again, account.whole = count.again, count.splits_again, count.whole
        account.shuffled_bytes = account.summary_bytes + count.shuffled_bytes

    def corrections(self, groups: int) -> list[list[Piece]]:
        """Where JOINED and EVENTS for each of so many groups lie; their `key` is the number of the split."""
        return [self._joined.pieces(group) for group in range(groups)]


# Tasks


def _decoding(splits: list[Split], config: Config, place: Place, run: int, seed: int) -> Work:
    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in numbers(batches):
            reader = SplitReader(splits, number, config)
            with StagedFile(place / "events" / f"{number:06}.arrow", STAGED) as file:
                summary = _decoded(reader, file, number, config, run, seed)
            data = packed_summary(summary)
            kept = place / "summaries" / f"{number:06}-{uuid4().hex[:12]}"
            kept.replace(data)
            said = {
                "told": reader.emitted.plain(), "file": asdict(file.emitted(number)), "summary": kept.url,
                "bytes": len(data),
            }  # fmt: skip
            yield from batched([{"kind": EMITTED, "split": number, "detail": json.dumps(said)}])

    return work


def _decoded(
    reader: SplitReader, file: StagedFile, number: int, config: Config, run: int, seed: int
) -> PartSummary:
    """Decode one split: its events into the file."""
    engine = PartEngine(config, seed, number << ORDER_BITS, first=number == 0)
    for emitted in engine.part(reader.columns()):
        file.add(placed(emitted, run))
    return engine.summary()


def _joining(
    splits: list[Split], summaries: list[str], config: Config, seed: int, run: int, group_of: list[int]
) -> Work:
    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in numbers(batches):
            yield from batched(Joining(splits, summaries, config, seed, run).rows(group_of))

    return work
