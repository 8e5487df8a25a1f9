"""A run in stages, processes that hand on what they made: one reads, one follows connections and makes
events, and the one that was started names and writes them; one more may look at the events as they pass.

Theory of operation. Kernels, Arrow and reading let other threads run, Python between them does not: in one
process the stages, each a thread, take about as long as one after the other. Rows and their order are those
of one process, because one engine follows all connections.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from multiprocessing.connection import Connection
from pickle import PickleBuffer
from typing import Any, cast

import pyarrow as pa

from kwsniff.capture.source import CaptureTotals
from kwsniff.config import Config
from kwsniff.engine.drained import Drained
from kwsniff.engine.engine import Engine
from kwsniff.net.segments import SegmentColumns
from kwsniff.rows.prefetch import prefetched
from kwsniff.run.processes import Pipe, Processes, told
from kwsniff.run.reading import Progress, Stand, read


def events(
    paths: Sequence[str],
    config: Config,
    totals: CaptureTotals,
    progress: Progress | None = None,
    *,
    reader: bool = True,
) -> Iterator[pa.RecordBatch]:
    """EVENTS batches as `kwsniff.run.offline.events` yields them, made by another process; `reader`: a third
    one reads.

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
        receiving, sending = processes.pipe(duplex=True)
        processes.start(_make, sending, source, paths, config)
    return _received(processes, Pipe(receiving), totals, progress)


def _received(
    processes: Processes, pipe: Pipe, totals: CaptureTotals, progress: Progress | None
) -> Generator[pa.RecordBatch]:
    try:
        while True:
            stand, batch = _next(pipe)
            stand.show(totals, progress)
            if batch is None:
                return
            yield batch
            del batch  # before the next is asked for
    finally:
        processes.close()


def _next(pipe: Pipe) -> tuple[Stand, pa.RecordBatch | None]:
    with told():
        return pipe.receive()


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


def _make(end: Connection, source: Connection | None, paths: Sequence[str], config: Config) -> None:
    """The life of the process that makes events."""
    pipe, engine = Pipe(end), Engine(config)
    arriving = read(paths, config) if source is None else _arriving(Pipe(source))
    stands = [Stand(CaptureTotals())]
    with closing(prefetched(_drained(engine, arriving, stands))) as drained:
        for each in drained:
            pipe.send(stands[-1]._replace(error=None), engine.events(each))
            del each
    pipe.send(stands[-1])
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
