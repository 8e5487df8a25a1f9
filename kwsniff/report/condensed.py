"""Values in bounded memory: exact while they are few, then in buckets of a constant relative width.

Theory of operation. A value is kept with a key and a weight. When more than `limit` are kept, the values of
each key that fall into one bucket become one value in the middle of the bucket, with the sum of their
weights; the greatest of each key stays as it is. Buckets are logarithmic, 1 % wide: no value moves by more
than half of that. If that leaves too many, buckets become twice as wide, and are so from then on.

Invariants: weights add up to the values taken; ranks are exact, so a percentile is off by no more than
`error`; the greatest value of a key is exact.

The same idea as DDSketch (Masson, Rim, Lee: "DDSketch: a fast and fully-mergeable quantile sketch with
relative-error guarantees", VLDB 2019), with whole values while there is room for them.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from kwsniff.report.percentiles import Floats, weighted

Ints = npt.NDArray[np.int64]

LIMIT = 250_000
"""Values kept; 20 bytes each."""
WIDTH = math.log(1.01)
"""Width of a bucket, in the logarithm of the value."""
WIDEST = 10.0
TINY = 1e-3
"""What is smaller counts as zero; in microseconds, times have this resolution."""


class Condensed:
    """Values (not NaN) by key (integers from 0)."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._width = WIDTH
        self._rough = False
        self._keys: list[Ints] = []
        self._values: list[Floats] = []
        self._weights: list[Ints] = []
        self._rows = 0
        self._ordered = False
        """Whether what was added first is in the order of the values."""

    @property
    def error(self) -> float:
        """How far a value may be from the true one, as a part of it; 0 as long as all are kept."""
        return math.expm1(self._width / 2) if self._rough else 0.0

    def __len__(self) -> int:
        return self._rows

    def add(self, keys: npt.NDArray[np.integer], values: Floats) -> None:
        """Take values, each with its key; NaN are passed over."""
        known = ~np.isnan(values)
        self._keys.append(keys[known].astype(np.int64))
        self._values.append(values[known])
        self._weights.append(np.ones(int(known.sum()), np.int64))
        self._rows += int(known.sum())
        if self._rows > self._limit:
            self.condense()

    def merge(self, other: Condensed, numbers: Ints) -> None:
        """Take the values of another one; `numbers` has the key here of each of its keys."""
        self._keys += [numbers[keys] for keys in other._keys]
        self._values += other._values
        self._weights += other._weights
        self._rows += len(other)
        self._ordered = False
        self._rough = self._rough or other._rough
        self._width = max(self._width, other._width)
        if self._rows > self._limit:
            self.condense()

    def quantiles(self, codes: npt.NDArray[np.integer], groups: int) -> Floats:
        """QUANTILES (columns) of each group (rows); `codes` has the group of each key, negative for none."""
        self._join()
        return weighted(self._values[0], codes[self._keys[0]], self._weights[0], groups)

    def rekeyed(self, numbers: Ints) -> Condensed:
        """The same values under other keys: `numbers` has the new one of each."""
        self._join()
        other = Condensed(self._limit)
        other._width, other._rough, other._rows = self._width, self._rough, self._rows
        other._keys, other._values = [numbers[self._keys[0]]], list(self._values)
        other._weights, other._ordered = list(self._weights), True
        return other

    def _join(self) -> None:
        """Bring what was added together, in the order of the values."""
        if len(self._keys) == 1 and self._ordered:
            return
        values = np.concatenate([np.empty(0), *self._values])
        order = np.argsort(values)
        self._values = [values[order]]
        self._keys = [np.concatenate([np.empty(0, np.int64), *self._keys])[order]]
        self._weights = [np.concatenate([np.empty(0, np.int64), *self._weights])[order]]
        self._ordered = True

    def condense(self) -> None:
        """Take less room, now, and be off by up to `error`."""
        self._rough = True
        while True:
            self._join()
            self._merge()
            # Half full, so that the next time is some way off.
            if self._rows <= self._limit // 2 or self._width > WIDEST:
                return
            self._width *= 2

    def _merge(self) -> None:
        keys, values, weights = self._keys[0], self._values[0], self._weights[0]
        order = np.argsort(keys, kind="stable")
        keys, values, weights = keys[order], values[order], weights[order]
        bucket, middle = self._buckets(values)
        greatest = np.append(keys[1:] != keys[:-1], True)
        new = np.ones(len(keys), bool)
        new[1:] = (keys[1:] != keys[:-1]) | (bucket[1:] != bucket[:-1]) | greatest[1:]
        first = np.flatnonzero(new)
        last = np.append(first[1:], len(keys)) - 1
        # What is alone in its bucket stays as it is.
        merged = np.clip(middle[first], values[first], values[last])
        self._keys, self._values = [keys[first]], [merged]
        self._weights = [np.add.reduceat(weights, first)]
        self._rows = len(first)
        self._ordered = False

    def _buckets(self, values: Floats) -> tuple[Ints, Floats]:
        """The bucket of each value, in the order of the values, and the middle of it."""
        size = np.maximum(np.abs(values), TINY)
        step = np.floor(np.log(size / TINY) / self._width)
        zero = np.abs(values) < TINY
        sign = np.where(zero, 0.0, np.sign(values))
        middle = sign * TINY * np.exp((step + 0.5) * self._width)
        return (sign * (step + 1)).astype(np.int64), middle
