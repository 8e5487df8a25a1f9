"""Exact percentiles of groups, by linear interpolation between the two nearest values, as `pandas` and
`numpy.percentile` do by default.

The values are sorted once; for every grouping a stable sort by group number, which NumPy does in linear time
for 16-bit numbers, then puts each group's values side by side in order. Five tables over the same calls so
cost one sort, where `DataFrameGroupBy.quantile` sorts again for each.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999, "max": 1.0}

Floats = npt.NDArray[np.float64]
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
        return grouped(self.values[self.order], codes[self.order], groups)


def grouped(ordered: Floats, codes: Codes, groups: int) -> Floats:
    """QUANTILES of each group, from ascending values and the group of each (negative: none)."""
    if len(codes) and codes.min() < 0:
        inside = codes >= 0
        ordered, codes = ordered[inside], codes[inside]
    if groups <= 1 << 16:
        codes = codes.astype(np.uint16)
    values = ordered[np.argsort(codes, kind="stable")]
    counts = np.bincount(codes, minlength=groups)
    first = np.cumsum(counts) - counts
    return _interpolated(counts, lambda group, rank: values[first[group] + rank])


def weighted(ordered: Floats, codes: Codes, weights: npt.NDArray[np.int64], groups: int) -> Floats:
    """The same from ascending values each of which stands for as many as it weighs."""
    inside = np.flatnonzero(codes >= 0)
    near = codes[inside].astype(np.uint16) if groups <= 1 << 16 else codes[inside]
    order = inside[np.argsort(near, kind="stable")]
    values, codes = ordered[order], codes[order]
    until = np.cumsum(weights[order])
    counts = np.zeros(groups, np.int64)
    np.add.at(counts, codes, weights[order])
    first = np.cumsum(counts) - counts
    return _interpolated(
        counts, lambda group, rank: values[np.searchsorted(until, first[group] + rank, side="right")]
    )


Ranked = Callable[[npt.NDArray[np.bool_], npt.NDArray[np.int64]], Floats]
"""The value of a rank, counted from 0, in each of the groups chosen."""


def _interpolated(counts: npt.NDArray[np.int64], ranked: Ranked) -> Floats:
    result = np.full((len(counts), len(QUANTILES)), np.nan)
    filled = counts > 0
    last = counts[filled] - 1
    for column, quantile in enumerate(QUANTILES.values()):
        place = quantile * last
        below = np.floor(place).astype(np.int64)
        low, high = ranked(filled, below), ranked(filled, np.minimum(below + 1, last))
        result[filled, column] = low + (high - low) * (place - below)
    return result
