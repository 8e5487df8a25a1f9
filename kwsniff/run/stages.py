"""A run in stages, processes that hand on what they made: one reads, one follows connections and makes
events, and the one that was started names and writes them; one more may look at the events as they pass.
Where bodies are shown, some make them into texts for the one that makes events.

Theory of operation. Kernels, Arrow and reading let other threads run, Python between them does not: in one
process the stages, each a thread, take about as long as one after the other. Rows and their order are those
of one process, because one engine follows all connections.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from pickle import PickleBuffer
from typing import Any, NamedTuple, cast

import numpy as np
import pyarrow as pa

from kwsniff.capture.error import CaptureError
from kwsniff.capture.source import CaptureTotals, Progress, segments
from kwsniff.config import Config
from kwsniff.engine.analyze import Engine
from kwsniff.engine.drained import Drained
from kwsniff.engine.emitter import Body, Rendered, rendered
from kwsniff.net.segments import SegmentColumns, segment_columns
from kwsniff.rows.prefetch import prefetched
from kwsniff.run.processes import EndedError, Pipe, Processes, told


class Stand(NamedTuple):
    """How far reading has come."""

    totals: CaptureTotals
    progress: tuple[int, int | None] | None = None
    error: CaptureError | None = None
    """Why it ended early."""

    def show(self, totals: CaptureTotals, progress: Progress | None) -> None:
        """Say so here. Raises the error."""
        totals.become(self.totals)
        if progress is not None and self.progress is not None:
            progress(*self.progress)
        if self.error is not None:
            raise self.error


def read(paths: Sequence[str], config: Config) -> Iterator[tuple[Stand, SegmentColumns | None]]:
    """The segments of the captures at `paths`; None at the end, also if an input became unreadable."""
    totals, error = CaptureTotals(), None
    now: list[tuple[int, int | None]] = []
    try:
        for batch in segments(paths, config, totals, lambda *said: now.append(said), prefetch=True):
            yield Stand(replace(totals), now[-1] if now else None), segment_columns(batch)
            now.clear()
            del batch
    except CaptureError as raised:
        error = raised
    yield Stand(totals, error=error), None


def events(
    paths: Sequence[str],
    config: Config,
    totals: CaptureTotals,
    progress: Progress | None = None,
    *,
    reader: bool = True,
    renderers: int = 0,
) -> Iterator[pa.RecordBatch]:
    """EVENTS batches as `kwsniff.run.offline.events` yields them, made by another process; `reader`: a third
    one reads, and `renderers` make texts of bodies.

    Raises:
        CaptureError: an input became unreadable on the way; what came before was yielded.
        OSError: there is no room for processes.
    """
    # Here, not when the first event is wanted: other threads may run by then.
    processes, source = Processes(), None
    with processes.whole():
        if reader:
            source, sending = processes.pipe(duplex=True)
            processes.start(_read, sending, paths, config)
        pipes = []
        for _ in range(renderers):
            asking, answering = processes.pipe(duplex=True)
            processes.start(_render, answering, config)
            pipes.append(asking)
        receiving, sending = processes.pipe(duplex=True)
        processes.start(_make, sending, source, paths, config, *pipes)
    return _received(processes, Pipe(receiving), totals, progress)


def _received(
    processes: Processes, pipe: Pipe, totals: CaptureTotals, progress: Progress | None
) -> Generator[pa.RecordBatch]:
    try:
        while True:
            with told():
                stand, batch = pipe.receive()
            stand.show(totals, progress)
            if batch is None:
                return
            yield batch
            del batch  # before the next is asked for
    finally:
        processes.close()


class Taker:
    """Something with a method `take` for batches of EVENTS, in a process of its own."""

    def __init__(self, what: Any, columns: Iterable[str]) -> None:
        """`columns` are those it looks at. Raises OSError if there is no room for a process."""
        self._columns = list(columns)
        self._processes = Processes()
        with self._processes.whole():
            receiving, sending = self._processes.pipe(duplex=True)
            self._processes.start(_take, receiving, what)
        self._pipe = Pipe(sending)

    def watch(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same batches, taken. Raises CaptureError if the process is gone."""
        for batch in batches:
            with told():
                self._pipe.send(None, batch.select(self._columns))
            yield batch
            del batch  # before the next is made

    def taken(self) -> Any:
        """The thing, after all that passed. Raises CaptureError if the process is gone."""
        with told():
            self._pipe.send(None)
            self._pipe.drain()
            return self._pipe.receive()[0]

    def close(self) -> None:
        """End its process."""
        self._processes.close()


# In the other processes


def _take(end: Connection, what: Any) -> None:
    pipe = Pipe(end)
    while (batch := pipe.receive()[1]) is not None:
        what.take(batch)
        del batch  # before the next is asked for
    pipe.send(what)
    pipe.drain()


def _make(
    end: Connection, source: Connection | None, paths: Sequence[str], config: Config, *renderers: Connection
) -> None:
    """The life of the process that makes events."""
    pipe, engine = Pipe(end), Engine(config)
    if engine.emitter.bodies is not None and renderers:
        engine.emitter.bodies.renderer = _Renderers([Pipe(each) for each in renderers])
    arriving = read(paths, config) if source is None else _arriving(Pipe(source))
    stands = [Stand(CaptureTotals())]
    with closing(prefetched(_drained(engine, arriving, stands))) as drained:
        for each in drained:
            pipe.send(stands[-1]._replace(error=None), engine.events(each))
            del each
    pipe.send(stands[-1])
    pipe.drain()


class _Renderers:
    """Has other processes make texts of bodies."""

    def __init__(self, pipes: list[Pipe]) -> None:
        self._pipes = pipes

    def __call__(self, data: bytes, bodies: list[Body]) -> Iterator[Rendered]:
        ends = np.cumsum([body[-1] for body in bodies])
        shares = np.arange(1, len(self._pipes)) * ends[-1] // len(self._pipes)
        cuts = [0, *np.searchsorted(ends, shares).tolist(), len(bodies)]
        asked = [
            (pipe, bodies[first:stop])
            for pipe, first, stop in zip(self._pipes, cuts, cuts[1:], strict=False)
            if first < stop
        ]
        for pipe, own in asked:
            begin, stop = own[0][3], own[-1][3] + own[-1][4]
            moved = [(*about, at - begin, size) for *about, at, size in own]
            pipe.send((data[begin:stop], moved))
        for pipe, _ in asked:
            pipe.drain()
            yield from pipe.receive()[0]


def _render(end: Connection, config: Config) -> None:
    """The life of a process that makes texts of bodies."""
    pipe = Pipe(end)
    with suppress(EndedError):
        while True:
            data, bodies = pipe.receive()[0]
            pipe.send(list(rendered(config, data, bodies)))
            pipe.drain()


Read = tuple[Stand, SegmentColumns | None]
"""What was read, None at the end."""


def _drained(engine: Engine, arriving: Iterator[Read], stands: list[Stand]) -> Generator[Drained]:
    """What all segments tell; `stands` holds how far reading has come."""
    for stand, columns in arriving:
        stands[:] = [stand]
        if columns is not None:
            yield from engine.follow(columns)
        del columns
    if stands[-1].error is None:
        yield from engine.end()


def _read(end: Connection, paths: Sequence[str], config: Config) -> None:
    """The life of the process that reads."""
    pipe = Pipe(end)
    for stand, columns in read(paths, config):
        if columns is not None:
            columns.buffers = [cast("memoryview", PickleBuffer(each)) for each in columns.buffers]
        pipe.send((stand, columns))
        del columns
    pipe.drain()


def _arriving(pipe: Pipe) -> Iterator[Read]:
    """What the process that reads has read."""
    while True:
        arrived: Read = pipe.receive()[0]
        yield arrived
        if arrived[1] is None:
            return
        del arrived
