"""What a split leaves to be stitched: for each pair of endpoints, one `Edge`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from kwsniff.engine.rows import Endpoints, Rows
from kwsniff.split.packed import Packed
from kwsniff.split.state import Counts, Summary, Watch

WHOLE, BEGINS, GUESSED, GIVEN_UP = "whole", "begins", "guessed", "given up"
"""How a head ends: the split ended first; its last segment is the first of a new connection; the state was
guessed; there was too much of it to keep."""
SEGMENT_COST = 400
"""Bytes that a kept segment takes besides its payload, about."""


class Head:
    """The segments of a connection from the split's beginning on, in order."""

    def __init__(self) -> None:
        self._columns: list[tuple[int, ...]] = []
        self._payload: list[bytes] = []
        self._files: list[tuple[int, str | None]] = []
        """Where the segments of each file begin, and its name."""
        self.size = 0

    def __len__(self) -> int:
        return len(self._columns)

    def keep(self, rows: Rows, row: int) -> bytes:
        """Take a copy of one segment; returns its payload."""
        if not self._files or self._files[-1][1] != rows.capture:
            self._files.append((len(self), rows.capture))
        columns = (rows.packet, rows.time, rows.order, rows.seq, rows.ack, rows.flags, rows.length, rows.side)
        self._columns.append(tuple(int(column[row]) for column in columns))
        self._payload.append(rows.payload(row))
        self.size += SEGMENT_COST + len(self._payload[-1])
        return self._payload[-1]

    def clear(self) -> None:
        """Let all of it go."""
        self._columns, self._payload, self._files, self.size = [], [], [], 0

    def runs(self) -> Iterator[Rows]:
        """The segments as a connection takes them, those of each file at once."""
        ends = [begin for begin, _ in self._files[1:]] + [len(self)]
        for (begin, capture), end in zip(self._files, ends, strict=True):
            yield self._rows(begin, end, capture)

    def _rows(self, begin: int, end: int, capture: str | None) -> Rows:
        rows = Rows.__new__(Rows)
        count, payload = end - begin, self._payload[begin:end]
        table = np.array(self._columns[begin:end], np.int64).reshape(count, 8).T
        rows.packet, rows.time, rows.order, rows.seq, rows.ack, rows.flags, rows.length = table[:7]
        rows.side = table[7].astype(np.int8)
        rows.captured = np.array([len(data) for data in payload], np.int64)
        rows.start = np.cumsum(rows.captured) - rows.captured
        rows.buffer = np.zeros(count, np.int64)
        rows.buffers = [memoryview(b"".join(payload))]
        rows.capture = capture
        rows.special = np.ones(count, np.bool_)  # so that each is looked at on its own
        return rows


@dataclass(slots=True)
class Edge(Packed):
    """One pair of endpoints in one split."""

    endpoints: Endpoints
    split: int
    head: Head | None = None
    """None for the first split of an input: nothing came before it."""
    ends: str = WHOLE
    """How the head ends."""
    provisional: str = ""
    """Id, in the split's events, of the connection whose state was guessed."""
    guess: Summary = ()
    latest: tuple[tuple[bytes, bool], ...] = ()
    """Latest bytes of both streams when it was guessed, see `state.histories`."""
    counts: Counts | None = None
    watch: Watch = field(default_factory=Watch)
    guessed: bytes | None = None
    """The guessed connection, frozen when it or the split ended."""
    over: bool = False
    """It ended within the split: a new one began, or it was silent too long."""
    tail: bytes | None = None
    """A later connection of the same endpoints that was alive when the split ended, frozen."""
    ids: list[str] = field(default_factory=list)
    """Ids of the later connections of the same endpoints."""
