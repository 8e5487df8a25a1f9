"""Sums for every combination of label values that occurs, as Prometheus wants them: only ever growing.

Invariant: there are never more than `limit` combinations and as many as the kept labels have; a row whose
combination finds no room counts under `other`, so that totals over all series stay whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kwsniff.report.codes import combined
from kwsniff.report.text import printable

# Values of a metric's labels: from the wire, so made safe to show, and never more than a set number.
#
# The first values seen keep their names; what comes when there is no room left is counted under `other`. A
# metric's cost for Prometheus is its number of series, and a client may call itself something new with every
# connection.

Ints = NDArray[np.int64]

OTHER = "other"
MAX_LENGTH = 200
"""Characters of a value; a client id may have 32767, a topic 249."""


def cleaned(value: str | None) -> str:
    """As a label shows it: unprintable characters as escapes, shortened; empty if there is none."""
    text = printable((value or "")[: MAX_LENGTH + 1])
    return text if len(text) <= MAX_LENGTH else text[: MAX_LENGTH - 1] + "…"


class Names:
    """Numbers the values of one label. 0 is `OTHER`.

    Values are told apart as they are shown: two series of the same labels would make Prometheus refuse all.
    """

    def __init__(self, limit: int, unnamed: str = "") -> None:
        """`unnamed` stands for null."""
        self._limit = limit
        self._unnamed = unnamed
        self.values = [OTHER]
        self._numbers = {OTHER: 0}
        self.overflowed = 0
        """Elements that were not given a number of their own."""

    def encode(self, column: pa.Array) -> Ints:
        """The number of each element (texts)."""
        encoded = column.dictionary_encode(null_encoding="encode")
        indices: Ints = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        found = [self._number(value) for value in encoded.dictionary.to_pylist()]
        numbers = np.array(found, dtype=np.int64)[indices] if found else indices
        self.overflowed += int((numbers < 0).sum())
        return np.maximum(numbers, 0)

    def __len__(self) -> int:
        return len(self.values)

    def _number(self, value: str | None) -> int:
        """Negative if there is no room for it."""
        text = cleaned(value) or self._unnamed
        number = self._numbers.get(text)
        if number is None and len(self.values) <= self._limit:
            number = self._numbers[text] = len(self.values)
            self.values.append(text)
        return -1 if number is None else number


def addresses(hosts: pa.Array, ports: pa.Array) -> pa.Array:
    """`host:port` of each row, an IPv6 address in brackets; null without host or port."""
    bracketed = pc.binary_join_element_wise("[", hosts, "]", "")
    shown = pc.if_else(pc.match_substring(hosts, ":"), bracketed, hosts)
    return pc.binary_join_element_wise(shown, ports.cast(pa.string()), ":")


Floats = NDArray[np.float64]

MAX_SERIES = 1000

BUCKETS_US = (
    *(100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000),
    *(1_000_000, 2_500_000, 5_000_000, 10_000_000, 30_000_000),
)
"""Upper bounds of the latency buckets, inclusive: a broker answers from its page cache in a fraction of a
millisecond, and clients give up after 30 seconds (`request.timeout.ms`)."""


class Series:
    """One row of sums for each combination of label values."""

    def __init__(self, labels: Mapping[str, Names], kept: str, sums: Sequence[str], limit: int = MAX_SERIES):
        """`kept` is the label that stays where the others become `other` for lack of room."""
        self.labels = tuple(labels)
        self.sums = tuple(sums)
        self._names = list(labels.values())
        self._kept = self.labels.index(kept)
        self._limit = limit
        self._numbers: dict[tuple[int, ...], int] = {}
        self._table: Floats = np.zeros((16, len(self.sums)))
        self.overflowed = 0
        """Rows counted under `other` because there were too many combinations."""

    def add(self, keys: Sequence[Ints], measures: Mapping[str, Floats | Ints]) -> Ints:
        """Add rows with their label values by number; returns the series of each row."""
        codes, examples = combined(list(keys), [len(names) for names in self._names])
        kinds = zip(*(column[examples].tolist() for column in keys), strict=True)
        counts = np.bincount(codes, minlength=len(examples))
        numbers = [self._number(kind, int(count)) for kind, count in zip(kinds, counts, strict=True)]
        series: Ints = np.array(numbers, dtype=np.int64)[codes] if numbers else codes
        self._grow()
        grouped = pa.table({"series": series, **measures}).group_by("series", use_threads=False)
        totals = grouped.aggregate([(name, "sum") for name in self.sums])
        rows = totals["series"].to_numpy()
        for place, name in enumerate(self.sums):
            self._table[rows, place] += totals[f"{name}_sum"].to_numpy()
        return series

    def __len__(self) -> int:
        return len(self._numbers)

    def snapshot(self) -> tuple[list[list[str]], Floats]:
        """Label values of each series and its sums, as of now."""
        values = [names.values for names in self._names]
        labels = [[of[n] for of, n in zip(values, kind, strict=True)] for kind in self._numbers]
        return labels, self._table[: len(labels)].copy()

    def _number(self, kind: tuple[int, ...], rows: int) -> int:
        number = self._numbers.get(kind)
        if number is None and len(self._numbers) >= self._limit:
            self.overflowed += rows
            kind = tuple(value if at == self._kept else 0 for at, value in enumerate(kind))
        return self._numbers.setdefault(kind, len(self._numbers)) if number is None else number

    def _grow(self) -> None:
        while len(self._numbers) > len(self._table):
            self._table = np.concatenate([self._table, np.zeros_like(self._table)])


class HistogramSeries:
    """Latencies by bucket for the rows of a `Series`."""

    def __init__(self) -> None:
        self._counts: NDArray[np.int64] = np.zeros((16, len(BUCKETS_US) + 1), np.int64)
        self._seconds: Floats = np.zeros(16)

    def add(self, series: Ints, latency_us: Floats) -> None:
        """Add one latency (microseconds) for each row, whose series is given."""
        while len(series) and series.max() >= len(self._counts):
            self._counts = np.concatenate([self._counts, np.zeros_like(self._counts)])
            self._seconds = np.concatenate([self._seconds, np.zeros_like(self._seconds)])
        bucket = np.searchsorted(BUCKETS_US, latency_us, side="left")
        np.add.at(self._counts, (series, bucket), 1)
        np.add.at(self._seconds, series, latency_us / 1e6)

    def snapshot(self, size: int) -> tuple[NDArray[np.int64], Floats]:
        """For the first `size` series: cumulative counts up to each bound and in all, and the sum."""
        missing = max(size - len(self._counts), 0)
        counts = np.pad(self._counts, ((0, missing), (0, 0)))[:size]
        return np.cumsum(counts, axis=1), np.pad(self._seconds, (0, missing))[:size]
