"""Contiguous bytes of a stream, and which packet each piece of them came in."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

RUN_COST, CHUNK_COST = 400, 160
"""Bytes charged for keeping a run, and each piece of it, besides its data."""


class RunLike(Protocol):
    """What `kwsniff.net.reassembly.Run` offers; wire and net do not know each other."""

    data: bytes
    starts: list[int]
    packets: list[int]
    times: list[int]
    orders: list[int]


def overhead(parts: Iterable[RunLike]) -> int:
    """Bytes that runs take besides their data: segments may carry one byte each."""
    return sum([RUN_COST + CHUNK_COST * len(part.starts) for part in parts])


class Chunks:
    """Runs being cut: their data joined, and the packets it came in."""

    __slots__ = ("data", "orders", "packets", "starts", "times")

    def __init__(self, parts: list[RunLike]) -> None:
        if len(parts) == 1:
            part = parts[0]
            self.data, self.starts = part.data, part.starts
            self.packets, self.times, self.orders = part.packets, part.times, part.orders
            return
        self.data = b"".join([part.data for part in parts])
        self.starts, self.packets, self.times, self.orders = [], [], [], []
        position = 0
        for part in parts:
            self.starts += [start + position for start in part.starts] if position else part.starts
            self.packets += part.packets
            self.times += part.times
            self.orders += part.orders
            position += len(part.data)

    def tail(self, pos: int, chunk: int) -> Chunks:
        """What follows from byte `pos` on, which lies in the chunk of that index."""
        rest = Chunks.__new__(Chunks)
        rest.data = self.data[pos:]
        rest.starts = [start - pos if start > pos else 0 for start in self.starts[chunk:]]
        rest.packets, rest.times = self.packets[chunk:], self.times[chunk:]
        rest.orders = self.orders[chunk:]
        return rest

    def without_leading(self) -> Chunks:
        """Without chunks that end before the data begins."""
        while len(self.starts) > 1 and self.starts[1] == 0:
            for column in (self.starts, self.packets, self.times, self.orders):
                del column[0]
        return self


def latest_of(orders: list[int], first: int, last: int) -> int:
    """Index of the packet that came last among those of a frame: the one that completed it."""
    return last if first == last else max(range(first, last + 1), key=orders.__getitem__)
