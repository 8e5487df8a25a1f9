"""A live session: interfaces in, events out to sinks, until it is stopped.

Theory of operation. Each interface has a thread that takes its packets (see `kwsniff.live.collector`), and
another one writes them. Everything else happens in the one thread that calls `run`: dissecting, `analyze`,
the sinks. Whoever wants the session to end calls `stop`, from any thread or a signal handler: the collectors
end, what they had taken is written, and decoded as far as there is time, `analyze` reports what is still
open, the sinks are closed.
"""

from __future__ import annotations

import os
import pwd
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from kwsniff.capture.batch import segment_batch
from kwsniff.capture.error import LiveError, Stop
from kwsniff.config import Config
from kwsniff.engine.analyze import Engine, analyze
from kwsniff.live.collector import Collector, Handed, Keeper, Keeping, Lane
from kwsniff.live.listener import Listener
from kwsniff.native.code import functions
from kwsniff.net.dissect import Dissector
from kwsniff.net.packets import CaptureTotals
from kwsniff.net.segments import at_time

# Giving up root's rights once the sockets are open.


def become(name: str) -> None:
    """Go on as this user for good (setgroups(2), setgid(2), setuid(2)).

    Raises:
        LiveError: there is no such user, or no right to become it.
    """
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        raise LiveError(f"--user: there is no user {name!r}") from None
    if functions() is None:  # now: the new user may not be able to read what is installed
        import crc32c  # noqa: F401  what interpreted kernels ask for with the first record batch
    try:
        os.initgroups(entry.pw_name, entry.pw_gid)
        os.setgid(entry.pw_gid)
        os.setuid(entry.pw_uid)
    except PermissionError:
        raise LiveError(f"--user: only root can go on as {name}") from None
    os.environ["HOME"] = entry.pw_dir


Batches = Iterator[pa.RecordBatch]
TICK = 1_000_000_000
"""Nanoseconds between time batches."""
ENDING_S = 1.5
"""Seconds after `stop` when what still waits is no longer decoded."""


class Session:
    """One run of `kwsniff live`, over all its interfaces."""

    def __init__(
        self,
        listeners: Sequence[Listener],
        config: Config,
        *,
        queue_bytes: int,
        keeping: Keeping | None = None,
    ) -> None:
        """`queue_bytes` bounds the packets that wait to be decoded, and those that wait to be written, beside
        one block of each interface."""
        self.totals = CaptureTotals()
        self._interfaces = tuple(listener.interface for listener in listeners)
        self._engine, self._config = Engine(config), config
        self._sinks: list[LiveSink] = []
        self._troubles: list[str] = []
        self._lane = first = Lane(queue_bytes, len(listeners))
        self.keeper: Keeper | None = None
        if keeping is not None:
            first = Lane(queue_bytes, len(listeners))
            self.keeper = Keeper(keeping, first, self._lane, self._interfaces, self._troubles.append)
        self._first = first
        self._stop = Stop()
        self._deadline = float("inf")
        self._collectors = [
            Collector(index, listener, first, self._stop) for index, listener in enumerate(listeners)
        ]
        self._until = [0] * len(listeners)
        self._open = len(listeners)
        self._started = time.time_ns()
        self._now = 0
        """Nanoseconds since 1970 until when all has been decoded."""

    def run(self, sinks: Iterable[LiveSink], through: Callable[[Batches], Batches] = iter) -> None:
        """Listen until stopped; `through` may change the events on their way to the sinks.

        Raises what a sink raises, after everything has been closed.
        """
        self._sinks = list(sinks)
        self.start()
        try:
            for events in through(analyze(self.segments(self._judge), self._config, self._engine)):
                for sink in self._sinks:
                    sink.add(events)
        finally:
            self.stop()
            self._close()

    def start(self) -> None:
        """Begin to listen."""
        self._started = time.time_ns()
        for thread in (*self._collectors, self.keeper):
            if thread is not None:
                thread.start()

    def stop(self) -> None:
        """Listen no more; everything that came until now is still told, as far as that is decoded within
        ENDING_S. From any thread."""
        if not self._stop.is_set():
            self._deadline = time.monotonic() + ENDING_S
        self._stop.set()

    def health(self) -> Health:
        """How well the capture keeps up."""
        own = sum(self._lane.dropped) + (0 if self._first is self._lane else sum(self._first.dropped))
        return Health(
            interfaces=self._interfaces,
            started_ns=self._started,
            now_ns=self._now or time.time_ns(),
            packets=self.totals.packets,
            bytes=self.totals.bytes,
            came=sum(each.came for each in self._collectors),
            kernel_dropped=sum(each.kernel_dropped for each in self._collectors),
            own_dropped=own,
            own_written=self._lane.written,
            waiting_bytes=self._lane.used,
            connections=self._engine.connections,
            outstanding=self._engine.in_flight,
            troubles=tuple(self._troubles),
        )

    def segments(self, judge: Callable[[pa.RecordBatch], None]) -> Batches:
        """Segments, as the packets come, until all interfaces have ended. `judge` is given each batch when it
        has been analysed.

        About once a second a time batch (`kwsniff.net.segments.at_time`) says until when every interface has
        been listened to without anything left to decode.
        """
        dissector = Dissector(self.totals)
        told = 0
        while self._open:
            handed = self._lane.get(TICK / 1e9)
            if handed is None:  # a taker that hangs, or a machine that sleeps
                self._tick()
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
            if self._now - told >= TICK:
                told = self._now
                yield at_time(self._now)
                self._tick()

    def _note(self, handed: Handed) -> None:
        self._until[handed.collector] = handed.until
        if handed.ended is not None:
            self._open -= 1
            self._until[handed.collector] = 1 << 62  # the others' time counts
            if handed.ended:
                self._troubles.append(handed.ended)
        now = min(self._until)
        if now < 1 << 62:
            self._now = max(self._now, now)

    def _judge(self, batch: pa.RecordBatch) -> None:
        if self.keeper is not None:
            self.keeper.judge(batch, self._engine.may_be_kafka)

    def _tick(self) -> None:
        health = self.health()
        for sink in self._sinks:
            sink.tick(health)

    def join(self) -> None:
        """Wait until all that came has been taken and written, and close the file. Call `stop` before."""
        for collector in self._collectors:
            collector.join()
        if self.keeper is not None:
            self.keeper.join()
            self.keeper.close(
                [
                    (each.listener.interface, each.received, each.kernel_dropped, dropped)
                    for each, dropped in zip(self._collectors, self._first.dropped, strict=True)
                ]
            )

    def _close(self) -> None:
        """Close everything, whatever fails; then raise what failed first."""
        self.join()
        health = self.health()
        self.totals.dropped, self.totals.own_dropped = health.kernel_dropped, health.own_dropped
        failure: BaseException | None = None
        for each in (self._tick, *(sink.close for sink in self._sinks)):
            try:
                each()
            except Exception as error:
                failure = failure or error
        if failure is not None:
            raise failure


# What a live session tells those who show or keep what it found.


class Waiting:
    """Events that wait until there are enough to be worth looking at: a batch costs milliseconds however
    small it is."""

    def __init__(self, columns: Collection[str], enough: int, most_bytes: int = 1 << 62) -> None:
        """Of events only `columns` are kept. `enough` are so many events, or so many bytes of them."""
        self._columns, self._enough, self._most_bytes = frozenset(columns), enough, most_bytes
        self._batches: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    def add(self, events: pa.RecordBatch) -> bool:
        """Let these wait, too; whether there are enough now."""
        kept = events.select([name for name in events.schema.names if name in self._columns])
        self._batches.append(kept)
        self._rows += kept.num_rows
        self._bytes += kept.nbytes
        return self._rows >= self._enough or self._bytes > self._most_bytes

    def taken(self) -> list[pa.RecordBatch]:
        """All that waited, as one batch, or nothing."""
        batches, self._batches, self._rows, self._bytes = self._batches, [], 0, 0
        return [pa.concat_batches(batches)] if batches else []


@dataclass(frozen=True, slots=True)
class Health:
    """How well the capture keeps up; counts are since the start."""

    interfaces: tuple[str, ...]
    """Names of the interfaces listened to."""
    started_ns: int
    """When the capture began, nanoseconds since 1970 UTC."""
    now_ns: int
    """Until when packets have been decoded, nanoseconds since 1970 UTC."""
    packets: int = 0
    """Packets that passed the kernel's filter and were decoded."""
    bytes: int = 0
    """Of them, on the wire, link layer and all."""
    came: int = 0
    """Packets that passed the kernel's filter, also those that wait or were dropped."""
    kernel_dropped: int = 0
    """Packets that passed the filter but found the kernel's buffer full."""
    own_dropped: int = 0
    """Packets taken from the kernel and given up because kwsniff did not keep up."""
    own_written: int = 0
    """Those of them that were written to a file, and only not decoded."""
    waiting_bytes: int = 0
    """Bytes of packets taken and not decoded yet."""
    connections: int = 0
    """TCP connections followed at present."""
    outstanding: int = 0
    """Requests that wait for a response, with each topic and partition that they name."""
    troubles: tuple[str, ...] = ()
    """Why interfaces, or writing packets, were given up: a line for each."""

    @property
    def dropped(self) -> int:
        return self.kernel_dropped + self.own_dropped

    @property
    def dropped_share(self) -> float:
        """The part of the packets that came which was lost."""
        return self.dropped / max(self.came, self.packets + self.dropped, 1)


class LiveSink(Protocol):
    """Takes what a session finds. All methods are called from one thread, the session's; `add` and `tick`
    must not block for long, for the packets that come meanwhile have to wait."""

    def add(self, events: pa.RecordBatch) -> None:
        """Take events (see `kwsniff.rows.schema.EVENTS`) as they were completed."""

    def tick(self, health: Health) -> None:
        """Take note of the time and of the capture's health; called about once a second, and at the end."""

    def close(self) -> None:
        """The session is over; write what is left, close files and sockets."""
