"""How many segments to treat at a time, so that the events in the making stay few.

Theory of operation. A block of packets is a few megabytes, but what it becomes may be fifty times as much:
the smallest call takes 26 bytes on the wire and a kilobyte as objects, until its row is written. So a block
is cut into slices by what the slices before it brought forth: few payload bytes at first, four times as many
as long as the events remain few, and fewer as soon as they don't. Ordinary traffic soon goes whole.

Invariant: slices are cut between segments and keep their order, so they change no event. Only where small
messages make a block be cut may an event that came late (an orphan, say) stand in another place.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from kwsniff.config import Config

GROWTH = 4
CAREFUL = 1.25
"""Growth once a slice brought forth too much: those after it may be quiet only because a message goes on."""
FIRST = 1 << 20
"""Bytes of the first slice, while nothing is known."""
LEAST = 4
"""A quarter of the events may be made at a time although much waits; else slices would come to nothing."""
FULL = 2
"""With JSON bodies, events take this many times the memory that they take without."""
HEADERS = 40
"""Bytes counted for a segment besides its payload: those of IP and TCP."""


class Pace:
    """Cuts SEGMENTS batches; `learn` wants to be told what each slice led to."""

    def __init__(self, config: Config) -> None:
        self._most = config.slice_bytes // FULL if config.full else config.slice_bytes
        self._events = config.slice_events
        self._next = min(self._most, FIRST)
        self._taken = 0
        self._growth: float = GROWTH

    def slices(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """`batch` in parts, at least one segment each; one part if it is empty."""
        ends = np.cumsum(batch.column("length").fill_null(0).to_numpy(zero_copy_only=False) + HEADERS)
        first, before = 0, 0
        while first < len(ends):
            last = max(int(np.searchsorted(ends, before + self._next, "right")), first + 1)
            self._taken = int(ends[last - 1]) - before
            yield batch.slice(first, last - first) if first or last < len(ends) else batch
            first, before = last, int(ends[last - 1])
        if not len(ends):
            yield batch

    def learn(self, events: int, load: int = 0) -> None:
        """The last slice led to so many events, requests that wait, and so on; `load` is what waits by now,
        whatever brought it, and takes the room of events."""
        allowed = max(self._events - load, self._events // LEAST)
        room = self._taken * allowed // max(events, 1)
        if room < self._taken:
            self._growth = CAREFUL
        self._next = max(min(room, int(self._growth * max(self._taken, self._next)) + 1, self._most), 1)
