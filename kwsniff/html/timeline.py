"""What happened when: calls counted in slots of time, in memory that does not grow with the input.

Theory of operation. A slot is as wide as one of `WIDTHS`, each of which divides the next, and begins at a
multiple of its width since 1970. Slots without a call are not kept, so that hours between two captures cost
nothing. When there are more than `LIMIT`, slots are joined to those of the next width.

Invariants: the counts over all slots are those over all calls; taking and merging in any order gives the
same slots for the same width.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from kwsniff.report.arrays import Ints
from kwsniff.report.codes import occurring
from kwsniff.report.rows import Rows

MS, S, MIN, H, DAY = 1_000, 1_000_000, 60_000_000, 3_600_000_000, 86_400_000_000
WIDTHS = (
    *(MS, 2 * MS, 10 * MS, 20 * MS, 100 * MS, 200 * MS, S, 2 * S, 10 * S, 30 * S, MIN, 5 * MIN, 10 * MIN),
    *(30 * MIN, H, 2 * H, 4 * H, 12 * H, DAY, 7 * DAY, 70 * DAY, 700 * DAY, 7000 * DAY),
)
"""Widths of slots in microseconds."""
LIMIT = 900
COUNTED = ("calls", "errors", "throttled", "throttle_ms", "unanswered")
NEEDED = frozenset(("time", "error_code", "throttle_ms", "status"))
DRAWN = 640
"""Slots of a drawing."""
MOST_GAPS = 12


class Stretch(NamedTuple):
    """Time in which nothing was seen, in microseconds since 1970."""

    first: int
    last: int


class Timeline:
    """Counts by slot."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._width = 0
        self._slots: dict[int, Ints] = {}

    @property
    def width_us(self) -> int:
        """Width of a slot in microseconds."""
        return WIDTHS[self._width]

    def take(self, calls: Rows) -> None:
        """Take calls of EVENTS."""
        times = calls.ints("time", -1)
        known = times >= 0
        if not known.any():
            return
        throttle = calls.ints("throttle_ms")
        counted = [
            np.ones(len(times), np.int64), calls.ints("error_code") != 0, throttle > 0, throttle,
            calls.coded("status").equals("unanswered"),
        ]  # fmt: skip
        times = times[known]
        numbers, place = self._slots_of(times)
        while len(numbers) > 2 * self._limit and self._coarser():
            numbers, place = self._slots_of(times)
        sums = np.zeros((len(numbers), len(COUNTED)), np.int64)
        for column, values in enumerate(counted):
            if values.any():
                sums[:, column] = np.bincount(place, values[known], len(numbers))
        self._add(numbers.tolist(), sums)

    def _slots_of(self, times: Ints) -> tuple[Ints, Ints]:
        """The slots of some times, ascending, and which of them each time is in."""
        slots = times // self.width_us
        least = int(slots.min())
        numbers, place = occurring(slots - least, int(slots.max()) - least + 1)
        return numbers + least, place

    def merge(self, other: Timeline) -> None:
        """Take what another one counted."""
        while self._width < other._width:
            self._coarser()
        ratio = self.width_us // other.width_us
        self._add([number // ratio for number in other._slots], list(other._slots.values()))

    def _add(self, numbers: Sequence[int], sums: Sequence[Ints] | Ints) -> None:
        for number, figures in zip(numbers, sums, strict=True):
            known = self._slots.get(number)
            self._slots[number] = figures.copy() if known is None else known + figures
        while len(self._slots) > self._limit and self._coarser():
            pass

    def _coarser(self) -> bool:
        if self._width + 1 == len(WIDTHS):
            return False
        ratio = WIDTHS[self._width + 1] // self.width_us
        slots, self._slots = self._slots, {}
        self._width += 1
        for number, figures in slots.items():
            known = self._slots.get(number // ratio)
            self._slots[number // ratio] = figures if known is None else known + figures
        return True

    def columns(self) -> dict[str, list[int]]:
        """The slots in the order of time: when each begins (microseconds since 1970), and its counts."""
        ordered = sorted(self._slots.items())
        table: dict[str, list[int]] = {"time": [number * self.width_us for number, _ in ordered]}
        for place, name in enumerate(COUNTED):
            table[name] = [int(figures[place]) for _, figures in ordered]
        return table

    def stretches(self) -> list[Stretch]:
        """Stretches between slots that a drawing leaves out: each is longer than half of what is left
        without it, so that it would take a third of the drawing."""
        begins = [number * self.width_us for number in sorted(self._slots)]
        gaps = [
            Stretch(before + self.width_us, after)
            for before, after in pairwise(begins)
            if after > before + self.width_us
        ]
        left = begins[-1] + self.width_us - begins[0] if begins else 0
        found = []
        for gap in sorted(gaps, key=lambda each: each.first - each.last)[:MOST_GAPS]:
            left -= gap.last - gap.first
            if gap.last - gap.first < left / 2:
                break
            found.append(gap)
        return sorted(found)

    def drawn(self, slots: int = DRAWN) -> Timeline:
        """The same in slots so wide that there are no more than `slots` in the time that is drawn."""
        copy = Timeline(self._limit)
        copy.merge(self)
        while copy._slots and copy._length() > slots * copy.width_us and copy._coarser():
            pass
        return copy

    def _length(self) -> int:
        """Microseconds that are drawn."""
        first, last = min(self._slots) * self.width_us, (max(self._slots) + 1) * self.width_us
        return last - first - sum(gap.last - gap.first for gap in self.stretches())
