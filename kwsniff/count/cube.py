"""Sums and extremes of calls per combination of keys.

A cube numbers the combinations in the order in which they come, and adds measures call by call into arrays
with a place for each of them. So it holds a row for each combination and nothing of the calls, and sums do
not depend on how calls came in batches.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Measures = Mapping[str, npt.NDArray[Any]]
"""A column of values for each of MEASURES."""

PARTS = (
    *("request_transfer_us", "queued_us", "throttled_us", "waited_us", "broker_us", "response_transfer_us"),
)
"""Parts that the time of a call falls into; they add up to its duration."""
LEAST = "broker_least_us"
"""What of `broker_us` is certain."""
SUMS = (
    *("calls", "request_bytes", "response_bytes", "records", "record_bytes"),
    *("error_codes", "throttled_calls", "throttle_ms", "duration_us", "parted_calls", *PARTS, LEAST),
)
"""`parted_calls`: calls whose parts are known."""
MAXES = ("last_us", "in_flight_max", "throttle_max_ms", "overrun_us")
MINS = ("first_us",)
MEASURES = (*SUMS, *MAXES, *MINS)
NEVER = np.iinfo(np.int64).max
"""`first_us` of a call whose time is not known."""

_FOLDS = dict.fromkeys(SUMS, np.add) | dict.fromkeys(MAXES, np.fmax) | dict.fromkeys(MINS, np.minimum)
_REAL = frozenset(("duration_us", "overrun_us", *PARTS, LEAST))
_ROWS = 64


def _nothing(name: str, size: int) -> npt.NDArray[Any]:
    """The measure of `size` combinations that have no calls."""
    kind = np.float64 if name in _REAL else np.int64
    if name in SUMS:
        return np.zeros(size, kind)
    if name in _REAL:
        return np.full(size, np.nan)
    return np.full(size, NEVER if name in MINS else -NEVER, kind)


def _take(totals: Measures, group: Ints, measures: Measures) -> None:
    """Add calls to the totals; `group` has the place of each."""
    if not len(group):
        return
    counts = np.bincount(group, minlength=len(totals["calls"]))
    for name in MEASURES:
        total, values = totals[name], measures[name]
        if not is_steady(values):
            _FOLDS[name].at(total, group, values)
        elif name not in SUMS:
            there = np.flatnonzero(counts)
            total[there] = _FOLDS[name](total[there], values[0])
        elif name not in _REAL:
            total += counts * values[0]
        elif values[0]:  # most are nothing for most batches; else one after the other, as they are rounded
            np.add.at(total, group, values)


def folded(measures: Measures, group: Ints, size: int) -> dict[str, npt.NDArray[Any]]:
    """MEASURES summed (or their extremes) by group, of which there are `size`."""
    totals = {name: _nothing(name, size) for name in MEASURES}
    _take(totals, group, measures)
    return totals


class Cube:
    """Measures summed (or their extremes) per combination of keys; a combination is a row."""

    def __init__(self) -> None:
        self.kinds: dict[tuple[int, ...], int] = {}
        """The row of each combination."""
        self._totals = {name: _nothing(name, _ROWS) for name in MEASURES}

    def __len__(self) -> int:
        return len(self.kinds)

    def row(self, kind: tuple[int, ...]) -> int:
        """The row of a combination, a new one if there is none yet."""
        return self.kinds.setdefault(kind, len(self.kinds))

    def add(self, rows: Ints, measures: Measures) -> None:
        """Add calls, each to its row."""
        room = len(self._totals["calls"])
        if room < len(self.kinds):
            more = max(2 * room, len(self.kinds)) - room
            self._totals = {
                name: np.concatenate([total, _nothing(name, more)]) for name, total in self._totals.items()
            }
        _take(self._totals, rows, measures)

    def keys(self, names: tuple[str, ...]) -> dict[str, Ints]:
        """The combinations in the order of their rows, a column for each part."""
        columns = np.array(list(self.kinds), np.int64).reshape(len(self.kinds), len(names))
        return {name: columns[:, place] for place, name in enumerate(names)}

    def measures(self) -> dict[str, npt.NDArray[Any]]:
        """MEASURES in the order of the rows."""
        return {name: total[: len(self.kinds)] for name, total in self._totals.items()}


def steady(measures: Measures) -> dict[str, npt.NDArray[Any]]:
    """The same, but that those which are one value throughout take room for one, and little time."""
    return {name: _steady(values) for name, values in measures.items()}


def is_steady(values: npt.NDArray[Any]) -> bool:
    """Whether this is one value that stands for all."""
    return values.strides == (0,)


def _steady(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if not len(values) or is_steady(values):
        return values
    first = values[:1]
    same = values == first if first == first else np.isnan(values)
    return np.broadcast_to(first[0], values.shape) if same.all() else values


def chosen(measures: Measures, rows: Ints) -> dict[str, npt.NDArray[Any]]:
    """The measures of some calls; those of `steady` stay so."""
    return {
        name: np.broadcast_to(values[0], rows.shape) if is_steady(values) else values[rows]
        for name, values in measures.items()
    }


def taken(columns: Mapping[str, Any], rows: Any) -> dict[str, Any]:
    """Some rows of columns."""
    return {name: column[rows] for name, column in columns.items()}


def joined(parts: list[Any], kind: Any) -> Any:
    """The arrays of `parts` as one, taken out of the list so that both are in memory only briefly."""
    whole = np.concatenate(parts) if parts else np.array([], dtype=kind)
    parts.clear()
    return whole
