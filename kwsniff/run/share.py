"""An engine that follows a share of the connections and is spared the segments of others.

Theory of operation. What others' segments do to a connection is to say what time it is: in every second of
packet time silent connections are looked for. So of a batch the own segments are taken, with their places in
the input, and between them rows that say when a second began, as where parts are joined
(`kwsniff.engine.left`).

Where time goes back by a second, or so far ahead that one segment alone would not be believed, connections no
longer end in an order that each of them knows of itself: such an input is for one engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields, replace

import numpy as np
from numpy.typing import NDArray

from kwsniff.config import Config
from kwsniff.engine.drained import Drained
from kwsniff.engine.follow import DAY
from kwsniff.engine.numbers import SECOND
from kwsniff.engine.tables import SWEEP
from kwsniff.net.segments import SegmentColumns
from kwsniff.run.part import EDGE, ENDS, PartEngine, endpoints_of

# Segments of some connections, looked up again in a range of the input.

Ints = NDArray[np.int64]
COLUMNS = tuple(
    each.name
    for each in fields(SegmentColumns)
    if each.name not in ("capture", "buffers", "notes", "share", "place")
)
WORDS, A_PORT, B_PORT = 6, 2, 5
"""Numbers that `endpoints_of` makes a name of: address and port of each end."""


Placed = tuple[SegmentColumns, Ints]
"""Segments, and their places in the input."""


def placed(segments: Iterable[SegmentColumns], order: int) -> Iterator[Placed]:
    """Segments from `order` on."""
    for each in segments:
        yield each, order + np.arange(len(each))
        order += len(each)


def picked(segments: SegmentColumns, rows: Ints) -> SegmentColumns:
    """Some of these segments."""
    return replace(segments, notes=[], **{name: getattr(segments, name)[rows] for name in COLUMNS})


def of_endpoints(segments: Iterable[Placed], endpoints: set[bytes], after: int) -> Iterator[Placed]:
    """Of these segments those of some endpoints behind the place `after`."""
    names = np.array(sorted(endpoints))
    # Few segments have such ports, and numbers are compared far sooner than names.
    words = np.frombuffer(b"".join(name[: 8 * WORDS] for name in endpoints), np.int64).reshape(-1, WORDS)
    ports = words[:, A_PORT] + words[:, B_PORT]
    for each, orders in segments:
        near = np.flatnonzero(np.isin(each.src_port + each.dst_port, ports) & (orders > after))
        rows = np.zeros(len(near), EDGE)
        for name in ENDS:
            rows[name] = getattr(each, name)[near]
        keep = near[np.isin(endpoints_of(rows), names)]
        if len(keep):
            yield picked(each, keep), orders[keep]


class ShareEngine(PartEngine):
    """Takes batches of all segments of an input, of which `whose` are its own if they are `index`."""

    def __init__(self, config: Config, seed: int, index: int, *, compiled: bool | None = None) -> None:
        super().__init__(config, seed, 0, first=True, compiled=compiled)
        self._index = index
        self.astray = False
        """Time went back or jumped: what follows was not taken."""
        self._second = -1
        """Latest second of packet time."""
        self._places = self._tells = np.zeros(0, np.int64)
        """Places in the input of the rows at hand, and which of these only tell the time."""
        self._behind = 0

    def follow(self, segments: SegmentColumns) -> Iterator[Drained]:
        """See `Engine.follow`; `segments.share` is whose they are."""
        run = self.machine.t.run[0]
        whose, first, clock = segments.share, int(run.order), int(run.clock)
        assert whose is not None
        latest = np.maximum.accumulate(np.append(clock, segments.time) if clock >= 0 else segments.time)
        self.astray = self.astray or not steady(latest, segments.time)
        if self.astray:
            return
        self._behind = first + len(segments)
        seconds = latest[-len(segments) :] // SECOND if len(segments) else latest[:0]
        begins = np.flatnonzero(np.diff(seconds, prepend=self._second))
        # The row that says so comes before the segment with which a second begins.
        order = np.sort(np.concatenate([2 * begins, 2 * np.flatnonzero(whose == self._index) + 1]))
        rows = order >> 1
        self._places, self._tells = rows + first, order & 1 == 0
        columns = {name: getattr(segments, name)[rows] for name in COLUMNS}
        columns["captured"][self._tells] = 0
        notes = segments.notes if self._index == 0 else []
        run.sparse = 1
        yield from super().follow(replace(segments, notes=notes, share=None, **columns))
        run = self.machine.t.run[0]
        run.sparse = 0
        if len(segments):
            run.clock, self._second = int(latest[-1]), int(seconds[-1])

    def _taken(self) -> None:
        self.machine.t.run[0].order = self._behind

    def set_segments(
        self, segments: SegmentColumns, buffer: Ints, start: Ints, first: int, stop: int
    ) -> None:
        super().set_segments(segments, buffer, start, first, stop)
        count = stop - first
        columns = {
            "order": self._places[first:stop],
            "stop": np.where(self._tells[first:stop], SWEEP, 0),
            "file": np.full(count, int(self.machine.t.run[0].capture)),
            "left": np.full(count, -1),
        }
        self.machine.set_columns("segments", columns)


def steady(latest: Ints, times: Ints) -> bool:
    """Whether none of these times is far behind or ahead of the latest before it."""
    if not len(times):
        return True
    back = int((latest[-len(times) :] - times).max())
    return back <= SECOND and int(np.diff(latest).max(initial=0)) < DAY
