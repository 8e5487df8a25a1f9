"""Distributions of times by key in bounded memory: buckets 5 % wide, so that a percentile is right within
2.5 %."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from kwsniff.count.codes import OTHERS
from kwsniff.count.eventrows import Floats, Ints, Keys
from kwsniff.count.tally import Key, grouped

WIDTH = math.log(1.05)
BUCKETS = 460
"""From a microsecond to an hour and a half."""
LIMIT = 300
"""Keys told apart; the others are one."""


class Histogram:
    """Values in microseconds; `counts` has a row of buckets for each key."""

    def __init__(self) -> None:
        self.counts: dict[Key, Ints] = {}

    def add(self, keys: Keys, values: Floats) -> None:
        """Take values with their keys, row by row; NaN are passed over."""
        known = np.flatnonzero(~np.isnan(values))
        if not len(known):
            return
        picked = [key.at(known) for key in keys]
        group, firsts = grouped(picked)
        columns = [each for key in picked for each in key.named(key.codes[firsts].tolist())]
        with np.errstate(divide="ignore"):
            bucket = np.clip(np.log(np.maximum(values[known], 1.0)) / WIDTH, 0, BUCKETS - 1).astype(np.int64)
        kept, numbers = self._told_apart(zip(*columns, strict=True))
        table = np.bincount(numbers[group] * BUCKETS + bucket, minlength=len(kept) * BUCKETS)
        for key, row in zip(kept, table.reshape(-1, BUCKETS), strict=True):
            self._put(key, row)

    def merge(self, other: Histogram) -> None:
        """Take what another one counted."""
        for key, counts in other.counts.items():
            self._put(key, counts)

    def _told_apart(self, names: Iterable[Key]) -> tuple[list[Key], Ints]:
        """The keys under which values of these names count, and for each name which one. A row of buckets for
        each of 30,000 names would take a hundred megabytes."""
        kept: dict[Key, int] = {}
        numbers, room = [], LIMIT - len(self.counts)
        for name in names:
            is_new = name not in self.counts and name not in kept
            key = tuple(OTHERS for _ in name) if is_new and room <= 0 else name
            room -= is_new
            numbers.append(kept.setdefault(key, len(kept)))
        return list(kept), np.array(numbers, np.int64)

    def _put(self, key: Key, counts: Ints) -> None:
        if key not in self.counts and len(self.counts) >= LIMIT:
            key = tuple(OTHERS for _ in key)
        known = self.counts.get(key)
        self.counts[key] = counts.copy() if known is None else known + counts


def quantile(counts: Ints, part: float) -> float:
    """The value in microseconds that `part` of the values do not exceed; 0 if it is at most about one."""
    rank = part * (counts.sum() - 1)
    bucket = int(np.searchsorted(np.cumsum(counts), rank, side="right"))
    return math.exp((min(bucket, BUCKETS - 1) + 0.5) * WIDTH) if bucket else 0.0
