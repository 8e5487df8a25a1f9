"""Distributions of times in bounded memory: buckets 5 % wide, so that a percentile is right within 2.5 %."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from kwsniff.count.codes import OTHERS
from kwsniff.count.eventrows import Floats, Ints, Keys
from kwsniff.count.keyed import Key, Keyed, Measure
from kwsniff.count.tally import grouped, named

WIDTH = math.log(1.05)
BUCKETS = 460
"""From a microsecond to an hour and a half."""
ERROR = math.expm1(WIDTH / 2)
"""How far a percentile may be from the exact one, as a part of it."""
COUNTS = Measure(np.add, np.int64, 0, BUCKETS)
LIMIT = 300
"""Keys told apart; the others are one."""

_MIDDLE = np.exp((np.arange(BUCKETS) + 0.5) * WIDTH)
_MIDDLE[0] = 0.0  # at most about one


def buckets(values: Floats) -> Ints:
    """The bucket of each value in microseconds, none of which is NaN."""
    place = np.log(np.maximum(values, 1.0)) / WIDTH
    found: Ints = np.minimum(place, BUCKETS - 1).astype(np.int64)
    return found


def quantiles(counts: Any, parts: Sequence[float]) -> Floats:
    """The values in microseconds that these parts of the values (columns) do not exceed, of each row of
    counts, by linear interpolation between the two nearest; NaN where a row counts nothing."""
    running = np.cumsum(counts, axis=1, dtype=np.int64)
    found = np.full((len(running), len(parts)), np.nan)
    filled = running[:, -1] > 0
    running = running[filled]
    last = running[:, -1] - 1
    for column, part in enumerate(parts):
        place = part * last
        below = np.floor(place)
        low, high = _value(running, below), _value(running, np.minimum(below + 1, last))
        found[filled, column] = low + (high - low) * (place - below)
    return found


def _value(running: Ints, rank: Floats) -> Floats:
    """The value of a rank (from 0) of each row."""
    found: Floats = _MIDDLE[(running <= rank[:, None]).sum(axis=1)]
    return found


def quantile(counts: Ints, part: float) -> float:
    """The value of one row that `part` of the values do not exceed, without interpolation."""
    rank = np.floor(part * (counts.sum(keepdims=True) - 1))
    return float(_value(np.cumsum(counts)[None], rank)[0])


class Histogram:
    """Values in microseconds by key."""

    def __init__(self) -> None:
        self._table = Keyed({"counts": COUNTS}, LIMIT, _others)

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
