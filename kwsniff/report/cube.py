"""Sums and extremes of calls per combination of keys.

A cube takes measures call by call (in frames of many) and folds them, so that it never holds many more rows
than there are combinations of its keys.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

Ints = npt.NDArray[np.int64]

PARTS = (
    *("request_transfer_us", "queued_us", "throttled_us", "waited_us", "broker_us", "response_transfer_us"),
)
"""Parts that the time of a call falls into; they add up to its duration."""
SUMS = (
    *("calls", "request_bytes", "response_bytes", "records", "record_bytes"),
    *("error_codes", "throttled_calls", "throttle_ms", "duration_us", "parted_calls", *PARTS),
)
"""`parted_calls`: calls whose parts are known."""
MAXES = ("last_us", "in_flight_max", "throttle_max_ms", "overrun_us")
MINS = ("first_us",)
MEASURES = (*SUMS, *MAXES, *MINS)
NEVER = np.iinfo(np.int64).max
"""`first_us` of a call whose time is not known."""

PENDING_ROWS = 100_000


class Cube:
    """Measures summed (or their extremes) per combination of keys; folds as it grows."""

    def __init__(self) -> None:
        self._parts: list[pd.DataFrame] = []
        self.rows = 0
        """As of now, combinations that repeat counted several times until they are folded."""
        self._limit = PENDING_ROWS

    def add(self, keys: dict[str, Ints], measures: pd.DataFrame) -> None:
        part = _folded(measures.assign(**keys), list(keys))
        self._parts.append(part)
        self.rows += len(part)
        if self.rows > self._limit:
            self._parts = [self.result(list(keys))]
            self.rows = len(self._parts[0])
            self._limit = PENDING_ROWS + 2 * self.rows

    def result(self, keys: list[str]) -> pd.DataFrame:
        """One row for each combination of keys, with all MEASURES."""
        if not self._parts:
            return pd.DataFrame({name: pd.Series(dtype=np.int64) for name in (*keys, *MEASURES)})
        return _folded(pd.concat(self._parts, ignore_index=True), keys)


def folded(frame: pd.DataFrame, keys: Any) -> pd.DataFrame:
    """MEASURES of `frame` grouped by `keys` (column names, or an array parallel to the rows)."""
    groups = frame.groupby(keys, sort=False)
    parts = [groups[list(SUMS)].sum(), groups[list(MAXES)].max(), groups[list(MINS)].min()]
    return pd.concat(parts, axis=1)


def _folded(frame: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    return folded(frame, keys).reset_index()


def joined(parts: list[Any], kind: Any) -> Any:
    """The arrays of `parts` as one, taken out of the list so that both are in memory only briefly."""
    whole = np.concatenate(parts) if parts else np.array([], dtype=kind)
    parts.clear()
    return whole
