"""A batch of segments sorted by connection, for the connections to take their slices from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kwsniff.config import Config
from kwsniff.net.columns import FIN, RST, SYN, SegmentColumns


class Endpoints(NamedTuple):
    """The two ends of a connection, in an order that both directions share."""

    a_hi: int
    a_lo: int
    a_port: int
    b_hi: int
    b_lo: int
    b_port: int


class Rows:
    """Columns in connection order. `side` is 0 for segments from end a and 1 for those from end b."""

    def __init__(
        self,
        segments: SegmentColumns,
        perm: NDArray[np.int64],
        forward: NDArray[np.bool_],
        base: int,
        config: Config,
    ) -> None:
        self.packet = segments.packet[perm]
        self.time = segments.time[perm]
        self.order = perm + base
        self.seq = segments.seq[perm]
        self.ack = segments.ack[perm]
        self.flags = segments.flags[perm]
        self.length = segments.length[perm]
        self.captured = segments.captured[perm]
        self.capture = segments.capture
        ahead = forward[perm]
        self.side = (~ahead).astype(np.int8)
        src = [column[perm] for column in (segments.src_hi, segments.src_lo, segments.src_port)]
        dst = [column[perm] for column in (segments.dst_hi, segments.dst_lo, segments.dst_port)]
        self._ends = [np.where(ahead, s, d) for s, d in zip(src, dst, strict=True)]
        self._ends += [np.where(ahead, d, s) for s, d in zip(src, dst, strict=True)]
        self.start, self.buffer = segments.start[perm], segments.buffer[perm]
        self.buffers = segments.buffers
        # Segments that need more than appending their bytes: control flags, bytes cut off, a jump in time.
        self.special = (self.flags & (FIN | SYN | RST) != 0) | (self.captured != self.length)
        jump = np.diff(self.time)
        self.special[1:] |= (jump > config.idle_timeout * 1e9) | (jump < -1_000_000_000)

    def split(self, first: int, last: int) -> Iterator[tuple[int, int, Endpoints]]:
        """The runs of one connection in a group of equal hash: nearly always the whole group."""
        ends = self._ends
        same = True
        for column in ends:
            same = same and bool((column[first:last] == column[first]).all())
        if same:
            yield first, last, Endpoints(*[int(column[first]) for column in ends])
            return
        for row in range(first, last):
            yield row, row + 1, Endpoints(*[int(column[row]) for column in ends])

    def payload(self, row: int) -> bytes:
        """Captured payload bytes of one segment."""
        start = int(self.start[row])
        return bytes(self.buffers[self.buffer[row]][start : start + int(self.captured[row])])

    def joined(self, rows: NDArray[np.int64]) -> bytes:
        """Captured payload bytes of several segments, joined."""
        buffers, start = self.buffers, self.start[rows]
        places = zip(
            self.buffer[rows].tolist(), start.tolist(), (start + self.captured[rows]).tolist(), strict=True
        )
        return b"".join([buffers[buffer][begin:end] for buffer, begin, end in places])
