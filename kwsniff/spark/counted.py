"""What tasks count of events: statistics, findings, how far to trust the capture, and the page's figures.

Each group of rows is counted by a task, into a file of the staging directory; further tasks merge some files
at a time until there are few.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING
from uuid import uuid4

import pyarrow as pa

from kwsniff.html import Pass
from kwsniff.lake.place import Place
from kwsniff.spark.control import EMITTED, Work, batched, numbers, tasks

if TYPE_CHECKING:
    from kwsniff.spark.control import Spark

EXACT = 1_000_000
"""Values of a metric up to which percentiles are exact: calls, and topics that calls name."""
MERGED = 16
"""Statistics that one task merges."""


class Counted(Pass):
    """What was counted of events."""

    def __init__(self) -> None:
        super().__init__(EXACT)

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


def merged(spark: Spark, staging: Place, urls: Sequence[str]) -> Counted:
    """One of all, which follow each other, by levels. Raises OSError, and what Spark raises."""
    files, level = list(urls), 0
    while len(files) > MERGED:
        level += 1
        shares = [files[first : first + MERGED] for first in range(0, len(files), MERGED)]
        emitted = tasks(
            spark, "merge statistics", len(shares), _merging(shares, staging / f"counted-{level}")
        )
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
