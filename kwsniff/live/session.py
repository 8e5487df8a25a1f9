"""A live session: interfaces in, events out to sinks, until it is stopped.

Theory of operation. Each interface has a thread that takes its packets (see `kwsniff.live.collector`), and
another one writes them (see `kwsniff.live.collector`). Everything else happens in the one thread that calls
`run`: dissecting, `analyze`, the sinks. Whoever wants the session to end calls `stop`, from any thread or a
signal handler: the collectors end, what they had taken is written, and decoded as far as there is time,
`analyze` reports what is still open, the sinks are closed.
"""

from __future__ import annotations

import os
import pwd
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from kwsniff.capture.error import LiveError
from kwsniff.config import Config
from kwsniff.engine.analyze import analyze
from kwsniff.engine.engine import Engine
from kwsniff.live.arrivals import LiveSource
from kwsniff.live.collector import Keeping
from kwsniff.live.listener import Listener
from kwsniff.native.code import functions
from kwsniff.net.packets import CaptureTotals

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


class Session:
    """One run of `kwsniff live`."""

    def __init__(
        self,
        listeners: Sequence[Listener],
        config: Config,
        *,
        queue_bytes: int,
        keeping: Keeping | None = None,
    ) -> None:
        """`queue_bytes` as for `LiveSource`."""
        self.totals = CaptureTotals()
        self._engine = Engine(config)
        self._config = config
        self._source = LiveSource(listeners, queue_bytes, self.totals, keeping)
        self._started = time.time_ns()
        self._sinks: list[LiveSink] = []

    def run(self, sinks: Iterable[LiveSink], through: Callable[[Batches], Batches] = iter) -> None:
        """Listen until stopped; `through` may change the events on their way to the sinks.

        Raises what a sink raises, after everything has been closed.
        """
        self._sinks = list(sinks)
        self._started = time.time_ns()
        self._source.start()
        try:
            segments = self._source.segments(self._judge, self._tick)
            for events in through(analyze(segments, self._config, self._engine)):
                for sink in self._sinks:
                    sink.add(events)
        finally:
            self.stop()
            self._close()

    def stop(self) -> None:
        """End soon; everything that came until now is still told."""
        self._source.stop()

    @property
    def interfaces(self) -> tuple[str, ...]:
        """Names of the interfaces listened to."""
        return self._source.interfaces

    def health(self) -> Health:
        """How well the capture keeps up."""
        source = self._source
        return Health(
            interfaces=source.interfaces,
            started_ns=self._started,
            now_ns=source.now or time.time_ns(),
            packets=self.totals.packets,
            bytes=self.totals.bytes,
            came=source.came,
            kernel_dropped=source.kernel_dropped,
            own_dropped=source.own_dropped,
            own_written=source.own_written,
            waiting_bytes=source.waiting_bytes,
            connections=self._engine.connections,
            outstanding=self._engine.in_flight,
            troubles=tuple(source.troubles),
        )

    def _tick(self) -> None:
        health = self.health()
        for sink in self._sinks:
            sink.tick(health)

    def _judge(self, batch: pa.RecordBatch) -> None:
        if self._source.keeper is not None:
            self._source.keeper.judge(batch, self._engine.may_be_kafka)

    def _close(self) -> None:
        """Close everything, whatever fails; then raise what failed first."""
        self._source.join()
        closing: list[Callable[[], None]] = [self._last_tick]
        closing += [sink.close for sink in self._sinks]
        failure: BaseException | None = None
        for each in closing:
            try:
                each()
            except Exception as error:
                failure = failure or error
        if failure is not None:
            raise failure

    def _last_tick(self) -> None:
        self.totals.dropped, self.totals.own_dropped = self._source.kernel_dropped, self._source.own_dropped
        self._tick()


# What a live session tells those who show or keep what it found.


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
        """Packets lost, wherever."""
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
