"""The part of a capture that is in memory: a buffer that moves through the stream, one block at a time.

A block's buffer is never written again once its packets are handed out, since Arrow arrays point into it:
every move allocates a new one and copies the few bytes of the record that did not fit. Behind the data come
`SLACK` zero bytes, so that fixed-size headers can be gathered up to the very end.
"""

from __future__ import annotations

import numpy as np

from kwsniff.capture.stream import ByteStream
from kwsniff.net.packets import Bytes

SLACK = 64
SMALLEST = 64
"""Bytes read at a time at least: no header is longer."""


class Window:
    """`data[:size]` are the bytes of the stream from `start` on."""

    dry = False
    """The last move brought nothing, and yet more may follow (see `kwsniff.capture.growing`)."""

    def __init__(self, stream: ByteStream, block_bytes: int) -> None:
        self._stream = stream
        self._block_bytes = max(block_bytes, SMALLEST)
        self.data: Bytes = np.zeros(SLACK, np.uint8)
        self.size = 0
        self.start = 0
        """Offset in the (decompressed) stream of the first byte."""
        self.at_end = False
        """No more bytes follow."""

    @property
    def damage(self) -> tuple[str, str] | None:
        """Anomaly code and detail if the compressed input ended early or was broken."""
        return self._stream.damage

    def move(self, keep: int, need: int = 0) -> None:
        """Drop the bytes before `keep` and read on until the buffer holds a block, or `need` bytes.

        Sizes depend on the stream's content only, so that every run cuts the same blocks.
        """
        rest = self.data[keep : self.size]
        capacity = max(self._block_bytes, need, len(rest) + 1)
        data = np.empty(capacity + SLACK, np.uint8)
        data[: len(rest)] = rest
        size = len(rest) + self._stream.fill(data.data[len(rest) : capacity])
        data[size : size + SLACK] = 0
        self.at_end = size < capacity
        self.start += keep
        self.data, self.size = data, size
