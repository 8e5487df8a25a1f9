"""A live session: interfaces in, events out to sinks, until it is stopped.

Theory of operation. Each interface has a thread that takes its packets (see `kwsniff.live.collector`).
Everything else happens in the one thread that calls `run`: dissecting, `analyze`, the sinks, writing
packets. Whoever wants the session to end calls `stop`, from any thread or a signal handler: the collectors
end, what they had taken is decoded, `analyze` reports what is still open, the sinks are closed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from kwsniff.config import Config
from kwsniff.kernel.engine import Engine
from kwsniff.live.arrivals import LiveSource
from kwsniff.live.listener import Listener
from kwsniff.live.pcapng import PcapngFiles
from kwsniff.live.sink import Health, LiveSink
from kwsniff.net.packets import PacketBlock
from kwsniff.net.totals import CaptureTotals
from kwsniff.pipeline import analyze
from kwsniff.segments import segment_columns

Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class Keeping:
    """Packets to write."""

    files: PcapngFiles
    all_packets: bool
    """False: only those of connections that are Kafka, or may turn out to be."""


class Session:
    """One run of `kwsniff live`."""

    def __init__(
        self,
        listeners: Sequence[Listener],
        config: Config,
        *,
        queue_bytes: int,
        keeping: Keeping | None = None,
        duration: float | None = None,
    ) -> None:
        """`duration` is in seconds, None for ever."""
        self.totals = CaptureTotals()
        self._engine = Engine(config)
        self._config = config
        self._source = LiveSource(listeners, queue_bytes, self.totals)
        self._keeping = keeping
        self._duration = duration
        self._started = time.time_ns()
        self._sinks: list[LiveSink] = []

    def run(self, sinks: Iterable[LiveSink], through: Callable[[Batches], Batches] = iter) -> None:
        """Listen until stopped; `through` may change the events on their way to the sinks.

        Raises what a sink raises, after everything has been closed.
        """
        self._sinks = list(sinks)
        self._started = time.time_ns()
        timer = threading.Timer(self._duration or 0, self.stop)
        timer.daemon = True
        self._source.start()
        if self._duration is not None:
            timer.start()
        try:
            keep = self._keep if self._keeping is not None else None
            segments = self._source.segments(keep, self._tick)
            for events in through(analyze(segments, self._config, self._engine)):
                for sink in self._sinks:
                    sink.add(events)
        finally:
            timer.cancel()
            self.stop()
            self._close()

    def stop(self) -> None:
        """End soon; everything that came until now is still told."""
        self._source.stop()

    @property
    def interfaces(self) -> tuple[str, ...]:
        """Names of the interfaces listened to."""
        return self._source.interfaces

    @property
    def farewells(self) -> list[str]:
        """Why interfaces were given up before anybody asked."""
        return self._source.farewells

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
            waiting_bytes=source.waiting_bytes,
            connections=self._engine.connections,
            outstanding=self._engine.in_flight,
        )

    def _tick(self) -> None:
        health = self.health()
        for sink in self._sinks:
            sink.tick(health)
        if self._keeping is not None:
            self._keeping.files.flush()

    def _keep(self, block: PacketBlock, batch: pa.RecordBatch) -> None:
        assert self._keeping is not None
        if self._keeping.all_packets:
            self._keeping.files.write(block)
            return
        if not len(batch):
            return
        segments = segment_columns(batch)
        wanted = segments.packet[self._engine.may_be_kafka(segments)]
        self._keeping.files.write(block, np.isin(block.number, wanted))

    def _close(self) -> None:
        """Close everything, whatever fails; then raise what failed first."""
        for collector in self._source.collectors:
            collector.join()
        closing: list[Callable[[], None]] = [self._last_tick]
        closing += [sink.close for sink in self._sinks]
        if self._keeping is not None:
            closing.append(self._close_files)
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

    def _close_files(self) -> None:
        assert self._keeping is not None
        files = self._keeping.files
        for collector in self._source.collectors:
            files.count(
                collector.listener.interface,
                collector.received,
                collector.kernel_dropped,
                collector.own_dropped,
            )
        files.close()
