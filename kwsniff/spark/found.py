"""The findings of a stream: those of all batches so far, made anew by each.

What the rules counted is kept in a file for each batch, beside what else the stream keeps. A batch that is
done again begins with that of the batch before it.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from kwsniff.findings import Findings
from kwsniff.lake.place import Place
from kwsniff.report.topics import FIXED, fill
from kwsniff.spark.control import EMITTED, Work, batched, numbers, tasks
from kwsniff.spark.staged import Staged, merged, stored
from kwsniff.table import EVENTS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(slots=True)
class Found:
    """What the findings of a stream are made of."""

    findings: Findings = field(default_factory=Findings)

    def take(self, batch: pa.RecordBatch, names: Mapping[str, str]) -> None:
        """Take rows (ROWS) that come after all taken before."""
        self.findings.take(fill(batch, names).select(EVENTS.names))


def found(
    spark: SparkSession,
    own: Path,
    before: int,
    batch: int,
    staged: Sequence[Staged],
    names: Mapping[str, str],
) -> Findings:
    """The findings behind batch number `batch`, which comes after number `before`. Raises OSError, and what
    Spark raises."""
    last = _place(own, before)
    held = last.read_bytes() if before >= 0 else pickle.dumps(Found())
    finding = _finding(held, list(staged), {**names, **FIXED})
    emitted = tasks(spark, "make findings", 1, finding)["data"].to_pylist()
    Place(str(_place(own, batch))).replace(emitted[0])
    for file in own.glob("findings-*"):
        if file not in (last, _place(own, batch)):
            with suppress(OSError):
                file.unlink()
    made: Found = pickle.loads(emitted[0])
    return made.findings


def _place(own: Path, batch: int) -> Path:
    return own / f"findings-{batch:09}"


def _finding(held: bytes, staged: list[Staged], names: Mapping[str, str]) -> Work:
    """One task takes all rows of a batch, in their order."""

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in numbers(batches):
            kept: Found = pickle.loads(held)
            for rows in merged([stored(file.path) for file in staged]):
                kept.take(rows, names)
            yield from batched([{"kind": EMITTED, "data": pickle.dumps(kept, pickle.HIGHEST_PROTOCOL)}])

    return work
