"""Latencies counted in bins, so that percentiles of any number of calls take the same memory.

The bins grow by `RATIO` from one to the next, and a latency stands for the geometric middle of its bin. So
each value, and with it each percentile (by linear interpolation between the two nearest values, as in the
report), is at most `sqrt(RATIO) - 1`, 2.5 %, away from the exact one. Below `LEAST_US` there is one bin,
above `MOST_US` another.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

LEAST_US = 10.0
"""Shorter latencies are not told apart; they count as half of it."""
RATIO = 1.05
BINS = 355
MOST_US = LEAST_US * RATIO ** (BINS - 2)
"""About five minutes; longer ones count as this and the half of a bin."""
ERROR = math.sqrt(RATIO) - 1
"""How far a percentile may be from the exact one, as a part of it."""

QUANTILES = (0.5, 0.95, 0.99)

Ints = npt.NDArray[np.integer]
Floats = npt.NDArray[np.float64]

_MIDDLE = LEAST_US * RATIO ** (np.arange(BINS) - 0.5)
_MIDDLE[0] = LEAST_US / 2


def bins(latency_us: Floats) -> npt.NDArray[np.int64]:
    """The bin of each latency, none of which may be NaN."""
    place = np.floor(np.log(np.maximum(latency_us, LEAST_US / 2) / LEAST_US) / math.log(RATIO)) + 1
    numbers: npt.NDArray[np.int64] = np.clip(place, 0, BINS - 1).astype(np.int64)
    return numbers


def quantiles(counts: Ints) -> Floats:
    """QUANTILES (columns), in microseconds, of each row of `counts`, which has a column for each bin. NaN
    where a row counts nothing."""
    running = np.cumsum(counts, axis=1, dtype=np.int64)
    last = running[:, -1] - 1
    result = np.full((len(counts), len(QUANTILES)), np.nan)
    filled = last >= 0
    running, last = running[filled], last[filled]
    for column, quantile in enumerate(QUANTILES):
        place = quantile * last
        below = np.floor(place)
        low, high = _value(running, below), _value(running, np.minimum(below + 1, last))
        result[filled, column] = low + (high - low) * (place - below)
    return result


def _value(running: npt.NDArray[np.int64], rank: Floats) -> Floats:
    """The value at `rank` (from 0) of each row."""
    values: Floats = _MIDDLE[(running <= rank[:, None]).sum(axis=1)]
    return values
