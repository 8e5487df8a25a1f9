"""What tasks count of events: statistics, findings, how far to trust the capture, and the page's figures.

Each group of rows is counted by a task, into a file of the staging directory; further tasks merge some files
at a time until there are few.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import uuid4

import pyarrow as pa

from kwsniff.findings import Findings
from kwsniff.html.gathered import Gathered
from kwsniff.lake.place import Place
from kwsniff.report.bounded import BoundedStore
from kwsniff.report.eventrows import EventBatch
from kwsniff.report.trust import TrustTotals
from kwsniff.spark.control import EMITTED, Work, batched, numbers, tasks
from kwsniff.table import EVENTS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXACT = 1_000_000
"""Values of a metric up to which percentiles are exact: calls, and topics that calls name."""
MERGED = 16
"""Statistics that one task merges."""


@dataclass(slots=True)
class Counted:
    """What was counted of events."""

    store: BoundedStore = field(default_factory=lambda: BoundedStore(limit=EXACT))
    trust: TrustTotals = field(default_factory=TrustTotals)
    findings: Findings = field(default_factory=Findings)
    gathered: Gathered = field(default_factory=Gathered)
    """For the page."""

    def add(self, batch: pa.RecordBatch, *, findings: bool = True) -> None:
        """Count rows (ROWS); findings take them in their order only."""
        events = EventBatch(batch.select(EVENTS.names))
        self.trust.add(events.rows)
        self.store.add(events)
        self.gathered.take(events)
        if findings:
            self.findings.take(events)

    def merge(self, other: Counted) -> None:
        """Take what another one counted, of rows that come after those of this one."""
        self.store.merge(other.store)
        self.trust.merge(other.trust)
        self.findings.merge(other.findings)
        self.gathered.merge(other.gathered)

    def save(self, place: Place) -> str:
        """Write it into a new file in a directory, piece by piece: all at once, it would be in memory twice.
        Gives the URL. Raises OSError."""
        file = place / uuid4().hex
        with file.create() as stream:
            pickle.dump(self, stream, pickle.HIGHEST_PROTOCOL)
        return file.url

    @staticmethod
    def load(url: str) -> Counted:
        """What `save` wrote. Raises OSError."""
        with Place(url).open() as stream:
            counted: Counted = pickle.load(stream)
            return counted


def merged(spark: SparkSession, staging: Place, urls: Sequence[str]) -> Counted:
    """One of all, which follow each other, by levels. Raises OSError, and what Spark raises."""
    files, level = list(urls), 0
    while len(files) > MERGED:
        level += 1
        shares = [files[first : first + MERGED] for first in range(0, len(files), MERGED)]
        emitted = tasks(spark, len(shares), _merging(shares, staging / f"counted-{level}"))
        files = in_turn(emitted)
    return _merged(files)


def in_turn(emitted: pa.Table) -> list[str]:
    """`key` of what tasks told, by the `split` that they told it of."""
    keys: list[str] = emitted.sort_by("split")["key"].to_pylist()
    return keys


def _merging(shares: list[list[str]], place: Place) -> Work:
    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in numbers(batches):
            url = _merged(shares[number]).save(place)
            yield from batched([{"kind": EMITTED, "split": number, "key": url}])

    return work


def _merged(urls: Iterable[str]) -> Counted:
    whole = Counted()
    for url in urls:
        whole.merge(Counted.load(url))
    return whole
