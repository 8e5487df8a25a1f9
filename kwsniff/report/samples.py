"""Percentiles of latency and duration over any grouping of what the calls are keyed by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np
import numpy.typing as npt

from kwsniff.report.percentiles import QUANTILES, Floats, Sorted

Integers = npt.NDArray[np.integer]


class Samples(Protocol):
    """Latencies and durations, each with a key."""

    def percentiles(self, codes: Integers, groups: int) -> dict[str, Floats]:
        """Percentile columns of each group. `codes` has for each key twice its group, plus 1 if it waited;
        negative for keys in no group."""


class ExactSamples:
    """A value of each metric for every call, or for every pair of call and topic."""

    def __init__(self, key: Integers, metrics: Mapping[str, Floats], call: Integers | None = None) -> None:
        """`metrics` are values by call. `call`: the call of each sample, which is then used once; without it
        every call is one sample, and the sort is kept for the next table."""
        self._key = key
        self._metrics = metrics
        self._call = call
        self._sorted: dict[str, Sorted] = {}

    def percentiles(self, codes: Integers, groups: int) -> dict[str, Floats]:
        """See `Samples`."""
        own = codes.astype(np.int32)[self._key]
        found = {name: self._sort(name).quantiles(own, 2 * groups) for name in self._metrics}
        return percentile_columns(found)

    def _sort(self, metric: str) -> Sorted:
        if self._call is not None:
            return Sorted(self._metrics[metric][self._call])
        if metric not in self._sorted:
            self._sorted[metric] = Sorted(self._metrics[metric])
        return self._sorted[metric]


def percentile_columns(found: Mapping[str, Floats]) -> dict[str, Floats]:
    """Columns of the tables from the percentiles of `latency` and `duration`, whose rows are in turn those
    of the calls of a group that did not wait and of those that did."""
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
