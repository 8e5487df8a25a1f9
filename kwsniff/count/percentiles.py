"""Percentiles: exact ones of all values, those of values that are condensed when there are too many, and
those of counts by bucket.

Exact ones are by linear interpolation between the two nearest values, as `pandas` and `numpy.percentile` do
by default.

The values are sorted once; for every grouping a stable sort by group number, which NumPy does in linear time
for 16-bit numbers, then puts each group's values side by side in order. Five tables over the same calls so
cost one sort, where `DataFrameGroupBy.quantile` sorts again for each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from kwsniff.count.codes import OTHERS, Keys
from kwsniff.count.keyed import Key, Keyed, Measure
from kwsniff.count.tally import grouped, named
from kwsniff.rows.columns import Floats, Ints, Mask

QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999, "max": 1.0}

Codes = npt.NDArray[np.integer]


class Sorted:
    """Values and their ascending order, without NaN. The order takes 4 bytes a value."""

    def __init__(self, values: Floats) -> None:
        known = len(values) - int(np.isnan(values).sum())
        order = np.argsort(values)[:known]  # NaN sorts last
        self.order = order.astype(np.uint32) if len(values) < 1 << 32 else order
        self.values = values

    def quantiles(self, codes: Codes, groups: int) -> Floats:
        """QUANTILES (columns) of each group (rows). `codes` holds the group of each original value, negative
        for values in no group. A group without values has NaN."""
        ordered, codes = self.values[self.order], codes[self.order]
        if len(codes) and codes.min() < 0:
            inside = codes >= 0
            ordered, codes = ordered[inside], codes[inside]
        if groups <= 1 << 16:
            codes = codes.astype(np.uint16)
        values = ordered[np.argsort(codes, kind="stable")]
        counts = np.bincount(codes, minlength=groups)
        first = np.cumsum(counts) - counts
        return _ranked(counts, QUANTILES.values(), lambda group, rank: values[first[group] + rank])


def weighted(ordered: Floats, codes: Codes, weights: Ints, groups: int) -> Floats:
    """The same from ascending values each of which stands for as many as it weighs."""
    inside = np.flatnonzero(codes >= 0)
    near = codes[inside].astype(np.uint16) if groups <= 1 << 16 else codes[inside]
    order = inside[np.argsort(near, kind="stable")]
    values, codes = ordered[order], codes[order]
    until = np.cumsum(weights[order])
    counts = np.zeros(groups, np.int64)
    np.add.at(counts, codes, weights[order])
    first = np.cumsum(counts) - counts

    def value(group: Mask, rank: Ints) -> Floats:
        return values[np.searchsorted(until, first[group] + rank, side="right")]

    return _ranked(counts, QUANTILES.values(), value)


def _ranked(
    counts: Ints, parts: Collection[float], value: Callable[[Mask, Ints], Floats], interpolated: bool = True
) -> Floats:
    """The values that these parts (columns) of so many (rows) do not exceed, by linear interpolation between
    the two nearest or else the lower of them; NaN where there are none. `value` gives that of a rank, counted
    from 0, in each of the rows chosen."""
    result = np.full((len(counts), len(parts)), np.nan)
    filled = counts > 0
    last = counts[filled] - 1
    for column, part in enumerate(parts):
        place = part * last
        below = np.floor(place).astype(np.int64)
        low = result[filled, column] = value(filled, below)
        if interpolated:
            high = value(filled, np.minimum(below + 1, last))
            result[filled, column] = low + (high - low) * (place - below)
    return result


# Percentiles of latency and duration over any grouping of what the calls are keyed by.


class Exact:
    """Values, each with a key (integers from 0)."""

    def __init__(self, key: Codes, values: Floats, call: Codes | None = None) -> None:
        """`values` are those of calls. `call`: the call of each key, which is then used once; without it each
        call has a key, and the sort is kept for the next table."""
        self._key, self._values, self._call = key, values, call
        self._sorted: Sorted | None = None

    def quantiles(self, codes: Codes, groups: int) -> Floats:
        """QUANTILES (columns) of each group (rows); `codes` has the group of each key, negative for none."""
        own = codes.astype(np.int32)[self._key]
        if self._call is not None:
            return Sorted(self._values[self._call]).quantiles(own, groups)
        if self._sorted is None:
            self._sorted = Sorted(self._values)
        return self._sorted.quantiles(own, groups)


def percentiles(samples: Samples, codes: Codes, groups: int) -> dict[str, Floats]:
    """Percentile columns of each group, of `latency` and `duration`. `codes` has for each key twice its
    group, plus 1 if it waited; negative for keys in no group."""
    found = {name: values.quantiles(codes, 2 * groups) for name, values in samples.items()}
    parts = {
        "latency": found["latency"][::2],
        "duration": found["duration"][::2],
        "waited": found["latency"][1::2],
    }
    return {
        f"{prefix}_{name}_us": figures[:, place]
        for prefix, figures in parts.items()
        for place, name in enumerate(QUANTILES)
    }


# Values in bounded memory: exact while they are few, then in buckets of a constant relative width.
#
# Theory of operation. A value is kept with a key and a weight. When more than `limit` are kept, the values of
# each key that fall into one bucket become one value in the middle of the bucket, with the sum of their
# weights; the greatest of each key stays as it is. Buckets are logarithmic, 1 % wide: no value moves by more
# than half of that. If that leaves too many, buckets become twice as wide, and are so from then on.
#
# Invariants: weights add up to the values taken; ranks are exact, so a percentile is off by no more than
# `error`; the greatest value of a key is exact.
#
# The same idea as DDSketch (Masson, Rim, Lee: "DDSketch: a fast and fully-mergeable quantile sketch with
# relative-error guarantees", VLDB 2019), with whole values while there is room for them.


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

    def add(self, keys: Codes, values: Floats) -> None:
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

    def quantiles(self, codes: Codes, groups: int) -> Floats:
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


Samples = Mapping[str, Exact | Condensed]
"""Values by metric."""


# Distributions of times in bounded memory: buckets 5 % wide, so that a percentile is right within 2.5 %.

STEP = math.log(1.05)
BUCKETS = 460
"""From a microsecond to an hour and a half."""
ERROR = math.expm1(STEP / 2)
"""How far a percentile may be from the exact one, as a part of it."""
COUNTS = Measure(np.add, np.int64, 0, BUCKETS)
MAX_KEYS = 300
"""Keys told apart; the others are one."""

_MIDDLE = np.exp((np.arange(BUCKETS) + 0.5) * STEP)
_MIDDLE[0] = 0.0  # at most about one


def buckets(values: Floats) -> Ints:
    """The bucket of each value in microseconds, none of which is NaN."""
    place = np.log(np.maximum(values, 1.0)) / STEP
    found: Ints = np.minimum(place, BUCKETS - 1).astype(np.int64)
    return found


def quantiles(counts: Any, parts: Sequence[float], *, interpolated: bool = True) -> Floats:
    """The values in microseconds that these parts of the values (columns) do not exceed, of each row of
    counts, by linear interpolation between the two nearest or else the lower of them; NaN where a row counts
    nothing."""
    running = np.cumsum(counts, axis=1, dtype=np.int64)
    filled = running[running[:, -1] > 0]

    def value(_: Mask, rank: Ints) -> Floats:
        found: Floats = _MIDDLE[(filled <= rank[:, None]).sum(axis=1)]
        return found

    return _ranked(running[:, -1], parts, value, interpolated)


def quantile(counts: Ints, part: float) -> float:
    """The value that `part` of those of one row do not exceed, not interpolated."""
    return float(quantiles(counts[None], (part,), interpolated=False)[0, 0])


class Histogram:
    """Values in microseconds by key."""

    def __init__(self) -> None:
        self._table = Keyed({"counts": COUNTS}, MAX_KEYS, _others)

    @property
    def counts(self) -> dict[Key, Ints]:
        """A row of buckets for each key."""
        return dict(zip(self._table.rows, self._table.columns()["counts"], strict=True))

    def add(self, keys: Keys, values: Floats) -> None:
        """Take values with their keys, row by row; NaN are passed over."""
        known = np.flatnonzero(~np.isnan(values))
        if len(known):
            picked = [key.at(known) for key in keys]
            group, firsts = grouped(picked)
            rows = self._table.numbers(named(picked, firsts))
            self._table.add(rows[group], {"counts": buckets(values[known])})

    def merge(self, other: Histogram) -> None:
        """Take what another one counted."""
        self._table.merge(other._table)


def _others(key: Key) -> Key:
    return tuple(OTHERS for _ in key)
