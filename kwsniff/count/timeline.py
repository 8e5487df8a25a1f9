"""What happened when: calls, bytes and latencies in slots of time, in memory that does not grow with
the input.

Theory of operation. A slot is as wide as one of `WIDTHS`, each of which divides the next, and begins at a
multiple of its width since 1970. Slots without a call are not kept, so that hours between two captures cost
nothing. When there are more than `LIMIT`, slots are joined to those of the next width.

Invariants: the counts over all slots are those over all calls; taking and merging in any order gives the
same slots for the same width.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from kwsniff.count.eventrows import EventBatch, waited
from kwsniff.count.keyed import SUM, Columns, Keyed, folded
from kwsniff.count.percentiles import COUNTS, buckets, quantiles

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
LATENCIES = "latencies"
"""Of calls that did not wait, counted by `kwsniff.count.percentiles.buckets`."""
_MEASURES = dict.fromkeys(COUNTED, SUM) | {LATENCIES: COUNTS}
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
        self._slots = Keyed(_MEASURES)

    @property
    def width_us(self) -> int:
        """Width of a slot in microseconds."""
        return WIDTHS[self._width]

    def take(self, batch: pa.RecordBatch | EventBatch) -> None:
        """Take the calls of an EVENTS batch."""
        calls = EventBatch.of(batch).counted.calls
        times = calls.ints("time", -1)
        known = times >= 0
        if not known.any():
            return
        times, throttle = times[known], calls.ints("throttle_ms")
        while np.ptp(times) // self.width_us > 2 * self._limit:  # a row of buckets for each would be much
            if len(np.unique(times // self.width_us)) <= 2 * self._limit or not self._coarser():
                break
        counted = {
            "calls": np.broadcast_to(np.int64(1), len(calls)),
            "errors": calls.ints("error_code") != 0,
            "throttled": throttle > 0,
            "throttle_ms": throttle,
            "unanswered": calls.coded("status").equals("unanswered"),
            "bytes": calls.ints("request_bytes") + calls.ints("response_bytes"),
        }
        rows = self._slots.placed([times // self.width_us])
        self._slots.add(rows, {name: values[known] for name, values in counted.items()})
        latency = np.where(waited(calls), np.nan, calls.floats("latency_us"))[known]
        some = ~np.isnan(latency)
        self._slots.add(rows[some], {LATENCIES: buckets(latency[some])})
        self._bound()

    def merge(self, other: Timeline) -> None:
        """Take what another one counted."""
        while self._width < other._width:
            self._coarser()
        self._slots.merge(_wider(other._slots, self.width_us // other.width_us))
        self._bound()

    def _bound(self) -> None:
        while len(self._slots) > self._limit and self._coarser():
            pass

    def _coarser(self) -> bool:
        if self._width + 1 == len(WIDTHS):
            return False
        self._slots = _wider(self._slots, WIDTHS[self._width + 1] // self.width_us)
        self._width += 1
        return True

    def columns(self) -> dict[str, list[Any]]:
        """The slots in the order of time: when each begins (microseconds since 1970), its counts, and the
        percentiles of its latencies, None without any."""
        numbers = self._slots.keys(("slot",))["slot"]
        order = np.argsort(numbers)
        columns = {name: column[order] for name, column in self._slots.columns().items()}
        return {"time": (numbers[order] * self.width_us).tolist(), **_shown(columns)}

    def strip(self, size: int) -> Strip:
        """The same in columns of one width, no more than `size`, without the stretches that a drawing leaves
        out."""
        gaps, numbers = self.stretches(), self._slots.keys(("slot",))["slot"]
        begin, end = (int(numbers.min()), int(numbers.max()) + 1) if len(numbers) else (0, 0)
        places = numbers - begin
        for gap in gaps:
            places -= np.where(gap.last <= numbers * self.width_us, gap.slots(self.width_us), 0)
        slots = int(places.max(initial=-1)) + 1
        each = next(many for many in ROUND if many * size >= slots)
        sums = folded(_MEASURES, self._slots.columns(), places // each, -(-slots // each))
        left = sum(gap.last - gap.first for gap in gaps)
        return Strip(begin * self.width_us, end * self.width_us, each * self.width_us, left, _shown(sums))

    def stretches(self) -> list[Stretch]:
        """Stretches between slots that a drawing leaves out: each is longer than half of what is left
        without it, so that it would take a third of the drawing."""
        begins = [number * self.width_us for (number,) in sorted(self._slots.rows)]
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
        copy.fit(slots)
        return copy

    def fit(self, slots: int) -> None:
        """Widen the slots until there are no more than so many in the time that is drawn."""
        while len(self._slots) and self._length() > slots * self.width_us and self._coarser():
            pass

    def _length(self) -> int:
        """Microseconds that are drawn."""
        numbers = self._slots.keys(("slot",))["slot"]
        return (int(np.ptp(numbers)) + 1) * self.width_us - sum(
            gap.last - gap.first for gap in self.stretches()
        )


def _wider(slots: Keyed, ratio: int) -> Keyed:
    """The same in slots so many times as wide."""
    return slots.moved([(number // ratio,) for (number,) in slots.rows])


def _shown(columns: Columns) -> dict[str, list[Any]]:
    """Counts, and percentiles of the latencies."""
    found = quantiles(columns[LATENCIES], list(PERCENTILES.values()), interpolated=False)
    table = {name: columns[name].tolist() for name in COUNTED}
    for name, values in zip(PERCENTILES, found.T.tolist(), strict=True):
        table[name] = [None if value != value else value for value in values]
    return table
