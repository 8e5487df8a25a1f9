"""Sums and latencies of rows over the last minute.

Theory of operation. Packet time is cut into slots of three seconds. A ring holds the sums of each of the last
slots, and one more set of sums the total over them: what is counted goes into its slot and into the total; a
slot that falls out of the window is taken off the total. So the window covers whole slots and the one that
has begun: 60 to 63 seconds.

Invariant: total = sum over the slots. Memory is fixed by the number of rows.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kwsniff.live.screen.latency import BINS

SLOT_NS = 3_000_000_000
SLOTS = 21
WINDOW_S = 60
"""What `SLOTS` cover at least."""

MEASURES = ("calls", "errors", "unanswered", "waited", "bytes")

Ints = npt.NDArray[np.int64]


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
    """MEASURES and binned latencies of `rows` rows."""

    def __init__(self, rows: int) -> None:
        self.sums = np.zeros((len(MEASURES), rows), np.int64)
        self.latencies = np.zeros((rows, BINS), np.int32)
        self._slot_sums = np.zeros((SLOTS, *self.sums.shape), np.int64)
        self._slot_latencies = np.zeros((SLOTS, *self.latencies.shape), np.int32)
        self._rows = rows

    def count(self, measure: str, rows: Ints, places: Ints, values: Ints | None = None) -> None:
        """Add `values` (or 1 each) to a measure of `rows`, in the slots at `places`."""
        measure_number = MEASURES.index(measure)
        for place in _distinct(places):
            chosen = slice(None) if place < 0 else places == place
            weights = None if values is None else values[chosen]
            added = np.bincount(rows[chosen], weights, minlength=self._rows).astype(np.int64)
            self._slot_sums[_first(places, place), measure_number] += added
            self.sums[measure_number] += added

    def time(self, rows: Ints, places: Ints, latency_bins: Ints) -> None:
        """Count one latency for each of `rows`."""
        cells = rows * BINS + latency_bins
        np.add.at(self.latencies.reshape(-1), cells, np.int32(1))
        np.add.at(self._slot_latencies.reshape(-1), places * self.latencies.size + cells, np.int32(1))

    def forget(self, place: int) -> None:
        """Empty the slot at `place`."""
        self.sums -= self._slot_sums[place]
        self._slot_sums[place] = 0
        slot = self._slot_latencies[place]
        touched = np.flatnonzero(slot.any(axis=1))
        self.latencies[touched] -= slot[touched]
        slot[touched] = 0

    def merge(self, row: int, into: int) -> None:
        """Add one row to another, and empty it."""
        for sums in (self.sums, self._slot_sums):
            sums[..., into] += sums[..., row]
            sums[..., row] = 0
        for latencies in (self.latencies, self._slot_latencies):
            latencies[..., into, :] += latencies[..., row, :]
            latencies[..., row, :] = 0


def _distinct(places: Ints) -> list[int]:
    """The places that occur; [-1] if it is only one."""
    if not len(places):
        return []
    if (places == places[0]).all():
        return [-1]
    found: list[int] = np.flatnonzero(np.bincount(places, minlength=SLOTS)).tolist()
    return found


def _first(places: Ints, place: int) -> int:
    return int(places[0]) if place < 0 else place
