"""Blocks of packets on their way from one thread to the next, in a queue of bounded size.

Who puts a block never waits: one that finds the queue full is not carried but counted. The time that goes
with it is, so what it held is missing as what the kernel dropped is: later packets show the hole.
"""

from __future__ import annotations

import threading
from queue import Empty, SimpleQueue
from typing import NamedTuple

from kwsniff.net.packets import PacketBlock


class Handed(NamedTuple):
    """What a listener's thread hands over."""

    collector: int
    block: PacketBlock | None
    until: int
    """Nanoseconds since 1970 until when nothing is missing."""
    ended: str | None = None
    """Why there will be nothing more; empty if that was asked for."""
    written: int = 0
    """Packets of the block that were written to a file."""


class Lane:
    """One such queue."""

    def __init__(self, size: int, listeners: int) -> None:
        """`size` is in bytes of packets; one block more may be in the hands of who takes it."""
        self._queue: SimpleQueue[Handed] = SimpleQueue()
        self._lock = threading.Lock()
        self._size = size
        self.used = 0
        """Bytes in it, or in the hands of who takes them."""
        self.dropped = [0] * listeners
        """Packets of each listener that were not carried."""
        self.written = 0
        """Of all those, packets that were written to a file."""

    def put(self, handed: Handed) -> None:
        """Carry this."""
        if handed.block is not None and not self._reserve(len(handed.block.data)):
            handed = self.drop(handed)
        self._queue.put(handed)

    def get(self, seconds: float) -> Handed | None:
        """The next one; None if none came for so long. `done` is to be called when it has been dealt with."""
        try:
            return self._queue.get(timeout=seconds)
        except Empty:
            return None

    def done(self, handed: Handed) -> None:
        """Give back the room of what was taken."""
        if handed.block is not None:
            with self._lock:
                self.used -= len(handed.block.data)

    def drop(self, handed: Handed) -> Handed:
        """Count a block that is given up; what stays of it."""
        if handed.block is None:
            return handed
        with self._lock:
            self.dropped[handed.collector] += len(handed.block)
            self.written += handed.written
        return handed._replace(block=None)

    def _reserve(self, size: int) -> bool:
        with self._lock:
            if self.used and self.used + size > self._size:
                return False
            self.used += size
            return True
