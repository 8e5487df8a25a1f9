"""Captures to EVENTS on Spark, exactly as one process would give them.

Theory of operation. An event depends only on its own connection's segments. So every task reads all of the
input and follows its share of the connections, chosen by a hash of their ends:
no payload goes through the JVM or a shuffle. Reading and dissecting are repeated by every task; decoding,
which costs far more, is divided.

Each row has a `position`: sorted by it, rows are in the order of one process.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from kwsniff.capture.source import CaptureTotals, segments
from kwsniff.config import Config
from kwsniff.lake.place import Place
from kwsniff.lake.stored import ROWS
from kwsniff.pipeline import Ints, keyed
from kwsniff.spark.control import EMITTED, Work, batched, numbers, tasks
from kwsniff.spark.staged import Staged, StagedFile

if TYPE_CHECKING:
    from kwsniff.spark.control import Spark


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


# Captures to staged events on Spark, where every task reads everything.


class ShardRun:
    """One run of `shards` tasks that share the connections."""

    def __init__(
        self, spark: Spark, paths: Sequence[str], config: Config, place: Place, run: int, shards: int
    ) -> None:
        """Events go into files in `place`. `run` puts positions behind those of runs with a lower number."""
        self._spark, self._paths, self._config = spark, list(paths), config
        self._place, self._run, self._shards = place, run, shards
        self.totals = CaptureTotals()
        self.files: list[Staged] = []

    def decode(self) -> None:
        """Run the tasks. Raises what Spark raises."""
        work = _work(self._paths, self._config, self._place, self._run, self._shards)
        for emitted in tasks(self._spark, "decode shares of the connections", self._shards, work)[
            "detail"
        ].to_pylist():
            said = json.loads(emitted)
            self.files.append(Staged(**said["file"]))
            if "totals" in said:
                self.totals.merge(CaptureTotals(**said["totals"]))


def _work(paths: list[str], config: Config, place: Place, run: int, shards: int) -> Work:
    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for shard in numbers(batches):
            totals = CaptureTotals()
            with StagedFile(place / f"{shard:06}.arrow") as file:
                for batch in rows(paths, config, (shard, shards), totals, run):
                    file.add(batch)
            said = {"file": asdict(file.emitted())}
            if shard == 0:  # they all read the same packets
                said["totals"] = asdict(totals)
            yield from batched([{"kind": EMITTED, "split": shard, "detail": json.dumps(said)}])

    return work
