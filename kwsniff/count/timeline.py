"""What happened when: calls, bytes and latencies in slots of time, in memory that does not grow with
the input.

Theory of operation. A slot is as wide as one of `WIDTHS`, each of which divides the next, and begins at a
multiple of its width since 1970. Slots without a call are not kept, so that hours between two captures cost
nothing. When there are more than `LIMIT`, slots are joined to those of the next width.

Invariants: the counts over all slots are those over all calls; taking and merging in any order gives the
same slots for the same width.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from kwsniff.count.codes import occurring
from kwsniff.count.eventrows import EventBatch
from kwsniff.count.waited import waited
from kwsniff.rows.columns import Ints

MS, S, MIN, H, DAY = 1_000, 1_000_000, 60_000_000, 3_600_000_000, 86_400_000_000
WIDTHS = (
    *(MS, 2 * MS, 10 * MS, 20 * MS, 100 * MS, 200 * MS, S, 2 * S, 10 * S, 30 * S, MIN, 5 * MIN, 10 * MIN),
    *(30 * MIN, H, 2 * H, 4 * H, 12 * H, DAY, 7 * DAY, 70 * DAY, 700 * DAY, 7000 * DAY),
)
"""Widths of slots in microseconds."""
ROUND = sorted({part * 10**power for power in range(19) for part in (1, 2, 3, 4, 5, 6, 8, 12, 15, 25)})
"""Slots of a column of a strip."""
LIMIT = 900
COUNTED = ("calls", "errors", "throttled", "throttle_ms", "unanswered", "bytes")
NEEDED = frozenset(
    (
        *("time", "error_code", "throttle_ms", "status", "latency_us", "waited_us"),
        *("request_bytes", "response_bytes"),
    )
)
STEP, BUCKETS = math.log(1.2), 124
"""Latencies of calls that did not wait are counted in buckets from a microsecond to nearly two hours, each
1.2 times as wide as the one before: percentiles of a slot are right within a tenth."""
PERCENTILES = {"p50_us": 0.5, "p95_us": 0.95}
DRAWN = 640
"""Slots of a drawing."""
MOST_GAPS = 12


class Stretch(NamedTuple):
    """Time in which nothing was seen, in microseconds since 1970."""

    first: int
    last: int

    def slots(self, width: int) -> int:
        """How many slots it is long."""
        return (self.last - self.first) // width


class Strip(NamedTuple):
    """Columns of one width from `first` to `last`, with `left` out; microseconds."""

    first: int
    last: int
    width: int
    left: int
    columns: dict[str, list[Any]]


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

    def take(self, batch: pa.RecordBatch | EventBatch) -> None:
        """Take the calls of an EVENTS batch."""
        calls = EventBatch.of(batch).calls
        times = calls.ints("time", -1)
        known = times >= 0
        if not known.any():
            return
        throttle = calls.ints("throttle_ms")
        counted = [
            np.ones(len(times), np.int64), calls.ints("error_code") != 0, throttle > 0, throttle,
            calls.coded("status").equals("unanswered"),
            calls.ints("request_bytes") + calls.ints("response_bytes"),
        ]  # fmt: skip
        times = times[known]
        numbers, place = self._slots_of(times)
        while len(numbers) > 2 * self._limit and self._coarser():
            numbers, place = self._slots_of(times)
        sums = np.zeros((len(numbers), len(COUNTED) + BUCKETS), np.int64)
        for column, values in enumerate(counted):
            if values.any():
                sums[:, column] = np.bincount(place, values[known], len(numbers))
        latency = np.where(waited(calls), np.nan, calls.floats("latency_us"))[known]
        some = np.flatnonzero(~np.isnan(latency))
        bucket = np.log(np.maximum(latency[some], 1)) / STEP
        np.add.at(sums, (place[some], len(COUNTED) + np.minimum(bucket, BUCKETS - 1).astype(np.int64)), 1)
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

    def columns(self) -> dict[str, list[Any]]:
        """The slots in the order of time: when each begins (microseconds since 1970), its counts, and the
        percentiles of its latencies, None without any."""
        ordered = sorted(self._slots.items())
        table: dict[str, list[Any]] = {"time": [number * self.width_us for number, _ in ordered]}
        for place, name in enumerate(COUNTED):
            table[name] = [int(figures[place]) for _, figures in ordered]
        for name, part in PERCENTILES.items():
            table[name] = [_quantile(figures[len(COUNTED) :], part) for _, figures in ordered]
        return table

    def strip(self, size: int) -> Strip:
        """The same in columns of one width, no more than `size`, without the stretches that a drawing leaves
        out."""
        gaps = self.stretches()
        begin = min(self._slots, default=0)
        numbers = {
            number: number
            - begin
            - sum(gap.slots(self.width_us) for gap in gaps if gap.last <= number * self.width_us)
            for number in self._slots
        }
        slots = max(numbers.values(), default=-1) + 1
        each = next(many for many in ROUND if many * size >= slots)
        sums = np.zeros((-(-slots // each), len(COUNTED) + BUCKETS), np.int64)
        for number, place in numbers.items():
            sums[place // each] += self._slots[number]
        table = {name: sums[:, at].tolist() for at, name in enumerate(COUNTED)}
        table |= {
            name: [_quantile(figures[len(COUNTED) :], part) for figures in sums]
            for name, part in PERCENTILES.items()
        }
        end = max(self._slots, default=-1) + 1
        left = sum(gap.last - gap.first for gap in gaps)
        return Strip(begin * self.width_us, end * self.width_us, each * self.width_us, left, table)

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


def _quantile(counts: Ints, part: float) -> float | None:
    """The middle of the bucket in which `part` of the values end, in microseconds."""
    if not counts.any():
        return None
    bucket = int(np.searchsorted(np.cumsum(counts), part * (counts.sum() - 1), side="right"))
    return math.exp((bucket + 0.5) * STEP)
