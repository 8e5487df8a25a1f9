"""SEGMENTS from interfaces: what `analyze` takes, as the packets come.

The time that goes with what the takers hand over becomes a time batch (`kwsniff.net.segments.at_time`) about
once a second: the time until when every interface has been listened to without anything left to decode."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from kwsniff.capture.batch import segment_batch
from kwsniff.capture.error import Stop
from kwsniff.live.collector import Collector, Handed, Keeper, Keeping, Lane
from kwsniff.live.listener import Listener
from kwsniff.net.dissect import Dissector
from kwsniff.net.packets import CaptureTotals
from kwsniff.net.segments import at_time

TICK = 1_000_000_000
"""Nanoseconds between time batches."""

ENDING_S = 1.5
"""Seconds after `stop` when what still waits is no longer decoded."""

Judge = Callable[[pa.RecordBatch], None]


class LiveSource:
    """All interfaces of a session."""

    def __init__(
        self,
        listeners: Sequence[Listener],
        queue_bytes: int,
        totals: CaptureTotals,
        keeping: Keeping | None = None,
    ) -> None:
        """`queue_bytes` bounds the packets that wait to be decoded, and those that wait to be written, beside
        one block of each interface."""
        self.interfaces = tuple(listener.interface for listener in listeners)
        self.troubles: list[str] = []
        """Why interfaces, or writing packets, were given up."""
        self._lane = first = Lane(queue_bytes, len(listeners))
        self.keeper: Keeper | None = None
        if keeping is not None:
            first = Lane(queue_bytes, len(listeners))
            self.keeper = Keeper(keeping, first, self._lane, self.interfaces, self.troubles.append)
        self._first = first
        self._totals = totals
        self._stop = Stop()
        self._deadline = float("inf")
        self.collectors = [
            Collector(index, listener, first, self._stop) for index, listener in enumerate(listeners)
        ]
        self._until = [0] * len(listeners)
        self._open = len(listeners)
        self.now = 0
        """Nanoseconds since 1970 until when all has been decoded."""

    @property
    def waiting_bytes(self) -> int:
        """Of packets taken and not decoded yet."""
        return self._lane.used

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
        """Packets that were not decoded because a queue was full, or for want of time at the end."""
        return sum(self._lane.dropped) + (sum(self._first.dropped) if self._first is not self._lane else 0)

    @property
    def own_written(self) -> int:
        """Those of them that were written to a file."""
        return self._lane.written

    def start(self) -> None:
        """Begin to listen."""
        for thread in (*self.collectors, self.keeper):
            if thread is not None:
                thread.start()

    def stop(self) -> None:
        """Listen no more; `segments` ends when it has yielded what came until now, as far as that is decoded
        within ENDING_S. From any thread."""
        if not self._stop.is_set():
            self._deadline = time.monotonic() + ENDING_S
        self._stop.set()

    def join(self) -> None:
        """Wait until all that came has been taken and written, and close the file. Call `stop` before."""
        for collector in self.collectors:
            collector.join()
        if self.keeper is not None:
            self.keeper.join()
            self.keeper.close(
                [
                    (each.listener.interface, each.received, each.kernel_dropped, dropped)
                    for each, dropped in zip(self.collectors, self._first.dropped, strict=True)
                ]
            )

    def segments(self, judge: Judge, tick: Callable[[], None]) -> Iterator[pa.RecordBatch]:
        """Segments and time batches until all interfaces have ended.

        `judge` is given each batch when it has been analysed; `tick` is called after each time batch was.
        """
        dissector = Dissector(self._totals)
        told = 0
        while self._open:
            handed = self._lane.get(TICK / 1e9)
            if handed is None:  # a taker that hangs, or a machine that sleeps
                tick()
                continue
            if time.monotonic() > self._deadline:
                self._lane.drop(handed)
            elif handed.block is not None:
                batch = segment_batch(dissector.dissect(handed.block))
                if len(batch):
                    yield batch
                    judge(batch)
            self._lane.done(handed)
            self._note(handed)
            if self.now - told >= TICK:
                told = self.now
                yield at_time(self.now)
                tick()

    def _note(self, handed: Handed) -> None:
        self._until[handed.collector] = handed.until
        if handed.ended is not None:
            self._open -= 1
            self._until[handed.collector] = 1 << 62  # the others' time counts
            if handed.ended:
                self.troubles.append(handed.ended)
        now = min(self._until)
        if now < 1 << 62:
            self.now = max(self.now, now)
