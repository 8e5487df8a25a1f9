"""Sums and latencies of rows over the last minute.

Theory of operation. Packet time is cut into slots of three seconds. A ring holds the sums of each of the last
slots, and one more set of sums the total over them: what is counted goes into its slot and into the total; a
slot that falls out of the window is taken off the total. So the window covers whole slots and the one that
has begun: 60 to 63 seconds.

Invariant: total = sum over the slots. Memory is fixed by the number of rows.
"""

from __future__ import annotations

import numpy as np

from kwsniff.count.keyed import SUM, Columns, Measure, fold
from kwsniff.count.percentiles import BUCKETS
from kwsniff.rows.columns import Ints, Mask

SLOT_NS = 3_000_000_000
SLOTS = 21
WINDOW_S = 60
"""What `SLOTS` cover at least."""

MEASURES = ("calls", "errors", "unanswered", "waited", "bytes")

LATENCIES = "latencies"
"""Counted by `kwsniff.count.percentiles.buckets`."""
_COLUMNS = dict.fromkeys(MEASURES, SUM) | {LATENCIES: Measure(np.add, np.int32, 0, BUCKETS)}


class ScreenTimeline:
    """Which slots the window covers, and where in the ring each is."""

    def __init__(self) -> None:
        self.now_ns = 0
        self._newest: int | None = None

    def advance(self, now_ns: int) -> list[int]:
        """Move on to `now_ns`, nanoseconds since 1970. Returns the places in the ring that are to be emptied.

        Time doesn't run backwards here, except when the clock was set back by more than the window: then
        the window starts anew."""
        newest = now_ns // SLOT_NS
        if self._newest is None or self._newest - newest >= SLOTS:
            gone = SLOTS
        elif newest <= self._newest:
            self.now_ns = max(self.now_ns, now_ns)
            return []
        else:
            gone = min(newest - self._newest, SLOTS)
        self.now_ns, self._newest = now_ns, newest
        return [(newest - back) % SLOTS for back in range(gone)]

    @property
    def begin_ns(self) -> int:
        """When the oldest slot begins."""
        return max((self._newest or 0) - SLOTS + 1, 0) * SLOT_NS

    def places(self, time_ns: Ints) -> Ints:
        """Place in the ring of each time, -1 for what is older than the window. What is later than now
        belongs to the newest slot."""
        newest = self._newest or 0
        slots = np.minimum(time_ns // SLOT_NS, newest)
        return np.where(slots > newest - SLOTS, slots % SLOTS, -1)


class ScreenWindow:
    """MEASURES and latencies of `rows` rows."""

    def __init__(self, rows: int) -> None:
        self.totals = {name: measure.column(rows) for name, measure in _COLUMNS.items()}
        self._slots = {name: measure.column(SLOTS * rows) for name, measure in _COLUMNS.items()}
        self._rows = rows

    def count(self, rows: Ints, places: Ints, values: Columns) -> None:
        """Add values to their rows, in the slots at `places`."""
        fold(_COLUMNS, self.totals, rows, values)
        fold(_COLUMNS, self._slots, places * self._rows + rows, values)

    def forget(self, place: int) -> None:
        """Empty the slot at `place`."""
        for name, slots in self._slots.items():
            slot = slots[place * self._rows : (place + 1) * self._rows]
            self.totals[name] -= slot
            slot[:] = 0

    def merge(self, row: int, into: int) -> None:
        """Add one row to another, and empty it."""
        for columns in (self.totals, self._slots):
            for column in columns.values():
                column[into :: self._rows] += column[row :: self._rows]
                column[row :: self._rows] = 0

    @property
    def busy(self) -> Mask:
        """Which rows count anything."""
        found: Mask = np.any([self.totals[name] for name in MEASURES], axis=0)
        return found
