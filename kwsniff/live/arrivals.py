"""SEGMENTS from interfaces: what `analyze` takes, as the packets come.

The time that goes with what the takers hand over becomes a time batch (`kwsniff.pipeline.at_time`) about once
a second: the time until when every interface has been listened to without anything left to decode.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from queue import Empty, SimpleQueue

import pyarrow as pa

from kwsniff.capture.batch import segment_batch
from kwsniff.capture.stop import Stop
from kwsniff.live.collector import Collector, Handed, Room
from kwsniff.live.listener import Listener
from kwsniff.net.dissect import Dissector
from kwsniff.net.packets import PacketBlock
from kwsniff.net.totals import CaptureTotals
from kwsniff.pipeline import at_time

TICK = 1_000_000_000
"""Nanoseconds between time batches."""

Keep = Callable[[PacketBlock, pa.RecordBatch], None]


class LiveSource:
    """All interfaces of a session."""

    def __init__(self, listeners: Sequence[Listener], queue_bytes: int, totals: CaptureTotals) -> None:
        """`queue_bytes` bounds the packets that wait to be decoded, beside one block of each interface."""
        self._queue: SimpleQueue[Handed] = SimpleQueue()
        self._room = Room(queue_bytes)
        self._totals = totals
        self._stop = Stop()
        self.collectors = [
            Collector(index, listener, self._queue, self._room, self._stop)
            for index, listener in enumerate(listeners)
        ]
        self.interfaces = tuple(listener.interface for listener in listeners)
        self._until = [0] * len(listeners)
        self._open = len(listeners)
        self.now = 0
        """Nanoseconds since 1970 until when all has been decoded."""
        self.farewells: list[str] = []
        """Why interfaces were given up."""

    @property
    def waiting_bytes(self) -> int:
        """Of packets taken and not decoded yet."""
        return self._room.used

    @property
    def kernel_dropped(self) -> int:
        """Packets that found the kernel's buffer full."""
        return sum(collector.kernel_dropped for collector in self.collectors)

    @property
    def came(self) -> int:
        """Packets that passed the filters, decoded, waiting or dropped."""
        return sum(collector.came for collector in self.collectors)

    @property
    def own_dropped(self) -> int:
        """Packets that found the queue full."""
        return sum(collector.own_dropped for collector in self.collectors)

    def start(self) -> None:
        """Begin to listen."""
        for collector in self.collectors:
            collector.start()

    def stop(self) -> None:
        """Listen no more; `segments` ends when it has yielded what came until now. From any thread."""
        self._stop.set()

    def segments(self, keep: Keep | None, tick: Callable[[], None]) -> Iterator[pa.RecordBatch]:
        """Segments and time batches until all interfaces have ended.

        `keep` is given each block when its segments have been analysed, with their batch; `tick` is called
        after each time batch was.
        """
        dissector = Dissector(self._totals)
        told = 0
        while self._open:
            handed = self._next()
            if handed is None:
                tick()
                continue
            if handed.block is not None:
                batch = segment_batch(dissector.dissect(handed.block))
                if len(batch):
                    yield batch
                if keep is not None:
                    keep(handed.block, batch)
                self._room.give_back(len(handed.block.data))
            self._note(handed)
            if self.now - told >= TICK:
                told = self.now
                yield at_time(self.now)
                tick()

    def _next(self) -> Handed | None:
        try:
            return self._queue.get(timeout=TICK / 1e9)
        except Empty:  # a taker that hangs, or a machine that sleeps
            return None

    def _note(self, handed: Handed) -> None:
        self._until[handed.collector] = handed.until
        if handed.ended is not None:
            self._open -= 1
            self._until[handed.collector] = 1 << 62  # the others' time counts
            if handed.ended:
                self.farewells.append(handed.ended)
        now = min(self._until)
        if now < 1 << 62:
            self.now = max(self.now, now)
