"""Captures to staged events on Spark, where every task reads everything (see `kwsniff.spark.decode`)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import pyarrow as pa

from kwsniff.capture.source import CaptureTotals
from kwsniff.config import Config
from kwsniff.lake.place import Place
from kwsniff.spark.control import EMITTED, Work, batched, numbers, tasks
from kwsniff.spark.decode import rows
from kwsniff.spark.staged import Staged, StagedFile

if TYPE_CHECKING:
    from kwsniff.spark.control import Spark


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
