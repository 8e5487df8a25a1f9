"""The offline run in several processes: each reads everything and follows its share of the connections.

Theory of operation. An event depends only on its own connection's segments, so connections can be divided by
a hash of their ends. Reading and dissecting a capture costs a fraction of decoding it, and payloads are
read again for less than sending them would cost; so every worker reads all, and sends the events that its
packets completed, with keys that ascend and by which the parent puts them in the order that one process
would have given them: the result is the same, row for row.

The parent listens to the worker that is furthest behind, and passes on what all are beyond; a worker that
is ahead waits, bounded by the pipe. So no more than some slices are held, whatever a block brings forth.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import fields
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from kwsniff.capture.source import CaptureError, CaptureTotals, segments
from kwsniff.config import Config
from kwsniff.pipeline import Ints, keyed

Progress = Callable[[int, int | None], None]


class _Part(NamedTuple):
    """What one worker has to say of a slice of a block, or of its end."""

    until: int
    """All events of the block with lower keys have been told; `ALL` at its end."""
    batch: bytes | None = None
    """EVENTS as an Arrow IPC stream."""
    keys: bytes = b""
    totals: CaptureTotals | None = None
    progress: tuple[int, int | None] | None = None


ALL = 1 << 62


def events(
    paths: Sequence[str], config: Config, jobs: int, totals: CaptureTotals, progress: Progress | None = None
) -> Iterator[pa.RecordBatch]:
    """EVENTS batches as `kwsniff.offline.events` yields them, made by `jobs` worker processes.

    Raises:
        CaptureError: an input became unreadable on the way; what came before was yielded.
    """
    context = get_context("spawn")
    pipes: list[Connection] = []
    workers = []
    try:
        for shard in range(jobs):
            mine, theirs = context.Pipe(duplex=False)
            worker = context.Process(target=_work, args=(theirs, paths, config, (shard, jobs)), daemon=True)
            worker.start()
            theirs.close()
            pipes.append(mine)
            workers.append(worker)
        while True:
            block = _Block(pipes)
            yield from block.batches()
            if block.over:
                return
            block.tell(totals, progress)
    finally:
        for pipe in pipes:
            pipe.close()
        for worker in workers:
            worker.terminate()
            worker.join()


def _receive(pipe: Connection) -> _Part | None:
    try:
        part = pickle.loads(pipe.recv_bytes())
    except EOFError:
        raise CaptureError("a worker process ended early; try -j 1") from None
    if isinstance(part, CaptureError):
        raise part
    return part if part is None else _Part(*part)


class _Block:
    """What all workers say of one block."""

    def __init__(self, pipes: Sequence[Connection]) -> None:
        self._pipes = pipes
        self._until = [-1] * len(pipes)
        self._held: list[list[tuple[pa.RecordBatch, Ints]]] = [[] for _ in pipes]
        """Of each worker: events that cannot be passed on yet, and their keys, which ascend in a batch."""
        self._end: _Part | None = None
        self.over = False
        """There was no such block."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The events of all workers in order."""
        passed = -1
        while not self.over and min(self._until) < ALL:
            self._listen(self._until.index(min(self._until)))
            if min(self._until) > passed:
                passed = min(self._until)
                batch = self._passed_on(passed)
                if batch is not None:
                    yield batch

    def tell(self, totals: CaptureTotals, progress: Progress | None) -> None:
        """Pass on what was counted up to the block's end."""
        if self._end is None:
            return
        for each in fields(CaptureTotals):
            setattr(totals, each.name, getattr(self._end.totals, each.name))
        if progress is not None and self._end.progress is not None:
            progress(*self._end.progress)

    def _listen(self, worker: int) -> None:
        part = _receive(self._pipes[worker])
        if part is None:
            self.over = True
            return
        self._until[worker] = part.until
        if part.totals is not None:
            self._end = part
        if part.batch is not None:
            (batch,) = pa.ipc.open_stream(part.batch)
            self._held[worker].append((batch, np.frombuffer(part.keys, np.int64)))

    def _passed_on(self, until: int) -> pa.RecordBatch | None:
        """What is held of events with lower keys."""
        batches, keys = [], []
        for held in self._held:
            for place, (batch, own) in enumerate(held):
                count = int(np.searchsorted(own, until))
                batches.append(batch.slice(0, count))
                keys.append(own[:count])
                held[place] = batch.slice(count), own[count:]
            held[:] = [(batch, own) for batch, own in held if len(own)]
        given = [batch for batch in batches if batch.num_rows]
        if len(given) <= 1:
            return given[0] if given else None
        return pa.concat_batches(given).take(pa.array(np.argsort(np.concatenate(keys), kind="stable")))


def _work(pipe: Connection, paths: Sequence[str], config: Config, shard: tuple[int, int]) -> None:
    """A worker's life: for each block a message a slice, and one at its end; then None."""
    totals = CaptureTotals()
    told: list[tuple[int, int | None]] = []
    with suppress(BrokenPipeError, KeyboardInterrupt):
        try:
            source = segments(paths, config, totals, lambda *now: told.append(now))
            for made in keyed(source, config, shard):
                for batch, keys in made:
                    if len(keys):
                        _send(pipe, _Part(int(keys[-1]), _ipc(batch), keys.tobytes()))
                first = shard[0] == 0
                _send(
                    pipe,
                    _Part(
                        ALL, totals=totals if first else None, progress=told[-1] if first and told else None
                    ),
                )
                told.clear()
            pipe.send_bytes(pickle.dumps(None))
        except CaptureError as error:
            pipe.send_bytes(pickle.dumps(error))


def _send(pipe: Connection, part: _Part) -> None:
    pipe.send_bytes(pickle.dumps(tuple(part), pickle.HIGHEST_PROTOCOL))


def _ipc(batch: pa.RecordBatch | None) -> bytes | None:
    if batch is None:
        return None
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data
