"""The edges of a part in their order, while some are taken out and others put in."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kwsniff.kernel.engine import AT_ONCE
from kwsniff.kernel.tables import BEGINS, GO_ON, SWEEP, UNTIL
from kwsniff.native.records import joined, picked
from kwsniff.net.columns import SegmentColumns
from kwsniff.parts.part import COPIED, EDGE, EXTRA, endpoints_of

Ints = NDArray[np.int64]
Rows = NDArray[Any]


class Heads:
    """The edges of a part, some thousands at a time: what comes of one that is refused moves no others."""

    def __init__(self, edges: Rows) -> None:
        self._rows, self._keys = edges, _keys(edges)
        self._gone = np.zeros(len(edges), np.bool_)
        self._names: NDArray[Any] | None = None
        self._at = 0
        self._more: list[Rows] = []
        """Further ones."""

    def next(self) -> Rows:
        """The next ones in their order, none at the end."""
        made = self._rows[:0]
        while not len(made) and (self._at < len(self._rows) or self._more):
            first, self._at = self._at, min(self._at + AT_ONCE, len(self._rows))
            parts = [self._rows[first : self._at][~self._gone[first : self._at]]]
            if self._more:
                parts.append(self._before(int(self._keys[self._at]) if self._at < len(self._keys) else None))
            made = _in_order(parts)
        return made

    def _before(self, key: int | None) -> Rows:
        """Take the further ones before a place, or all."""
        more = _in_order(self._more)
        count = len(more) if key is None else int(np.searchsorted(_keys(more), key))
        self._more = [more[count:]] if count < len(more) else []
        return more[:count]

    def give_back(self, rows: Rows) -> None:
        """Have these taken too, each at its place."""
        if len(rows):
            self._more.append(rows)

    def drop(self, name: bytes) -> None:
        """Take no edge of these endpoints."""
        if self._names is None:
            self._names = endpoints_of(self._rows)
        rest = slice(self._at, None)
        self._gone[rest] |= (self._names[rest] == name) & _is_edge(self._rows[rest])
        more = [rows[~((endpoints_of(rows) == name) & _is_edge(rows))] for rows in self._more]
        self._more = [rows for rows in more if len(rows)]


def _is_edge(rows: Rows) -> NDArray[np.bool_]:
    """Whether rows are segments of heads, and no times at which silent connections were looked for."""
    found: NDArray[np.bool_] = np.isin(rows["stop"], (GO_ON, UNTIL, BEGINS))
    return found


def _keys(rows: Rows) -> Ints:
    """What orders edges: times at which silent connections were looked for come before segments."""
    keys: Ints = 2 * rows["order"] + (rows["stop"] != SWEEP)
    return keys


def _in_order(parts: list[Rows]) -> Rows:
    """Edges in their order."""
    if len(parts) == 1:
        return parts[0]
    every = joined(parts)
    # Each part is in order, of which a stable sort makes use.
    return picked(every, np.argsort(_keys(every), kind="stable"))


def edges_of(segments: SegmentColumns, orders: Ints, file: int, payload: bytearray) -> Rows:
    """Segments as edges; their bytes are added to `payload`."""
    made = np.zeros(len(segments), EDGE)
    for name in COPIED:
        made[name] = getattr(segments, name)
    made["order"], made["left"], made["file"], made["buffer"] = orders, -1, file, EXTRA
    for at in range(len(segments)):
        start, size = int(segments.start[at]), int(segments.captured[at])
        made["start"][at] = len(payload)
        if size:
            payload += segments.buffers[int(segments.buffer[at])][start : start + size]
    return made
