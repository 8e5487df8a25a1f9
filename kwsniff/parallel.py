"""The offline run in several processes: each reads everything and follows its share of the connections.

Theory of operation. An event depends only on its own connection's segments, so connections can be divided by
a hash of their ends. Reading and dissecting a capture costs a fraction of decoding it, and payloads are
read again for less than sending them would cost; so every worker reads all. For each block of packets
every worker sends the events that the block completed, with keys by which the parent puts them in the order
that one process would have given them: the result is the same, row for row and batch for batch.

Workers are bounded by the pipe: one that is ahead waits until the parent has taken its block.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from kwsniff.capture.source import CaptureError, CaptureTotals, segments
from kwsniff.config import MIB, Config
from kwsniff.pipeline import keyed

Progress = Callable[[int, int | None], None]


class _Part(NamedTuple):
    """What one worker has to say of one block."""

    batch: bytes | None
    """EVENTS as an Arrow IPC stream."""
    keys: bytes
    totals: CaptureTotals | None
    progress: tuple[int, int | None] | None


BLOCK_BYTES = MIB
"""Capture bytes read at a time: all that a block brings forth is one message, and put in order as a whole."""


def events(
    paths: Sequence[str], config: Config, jobs: int, totals: CaptureTotals, progress: Progress | None = None
) -> Iterator[pa.RecordBatch]:
    """EVENTS batches as `kwsniff.offline.events` yields them, made by `jobs` worker processes.

    Raises:
        CaptureError: an input became unreadable on the way; what came before was yielded.
    """
    config = replace(config, block_bytes=min(config.block_bytes, BLOCK_BYTES))
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
        while (parts := [_receive(pipe) for pipe in pipes])[0] is not None:
            batch = _merged([part for part in parts if part is not None], totals, progress)
            if batch is not None:
                yield batch
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


def _merged(
    parts: Sequence[_Part], totals: CaptureTotals, progress: Progress | None
) -> pa.RecordBatch | None:
    if parts[0].totals is not None:
        for each in fields(CaptureTotals):
            setattr(totals, each.name, getattr(parts[0].totals, each.name))
    if progress is not None and parts[0].progress is not None:
        progress(*parts[0].progress)
    given = [part for part in parts if part.batch is not None]
    batches = [batch for part in given for batch in pa.ipc.open_stream(part.batch)]
    if len(given) <= 1:
        return pa.concat_batches(batches) if batches else None
    keys = np.concatenate([np.frombuffer(part.keys, np.int64) for part in given])
    return pa.concat_batches(batches).take(pa.array(np.argsort(keys, kind="stable")))


def _work(pipe: Connection, paths: Sequence[str], config: Config, shard: tuple[int, int]) -> None:
    """A worker's life: one message a block, then None."""
    totals = CaptureTotals()
    told: list[tuple[int, int | None]] = []
    with suppress(BrokenPipeError, KeyboardInterrupt):
        try:
            for made in keyed(segments(paths, config, totals, lambda *now: told.append(now)), config, shard):
                first = shard[0] == 0
                batches, keys = zip(*made, strict=True)
                part = (
                    _ipc([batch for batch in batches if batch is not None]),
                    np.concatenate(keys).tobytes(),
                    totals if first else None,
                    told[-1] if first and told else None,
                )
                told.clear()
                pipe.send_bytes(pickle.dumps(part, pickle.HIGHEST_PROTOCOL))
            pipe.send_bytes(pickle.dumps(None))
        except CaptureError as error:
            pipe.send_bytes(pickle.dumps(error))


def _ipc(batches: list[pa.RecordBatch]) -> Any:
    if not batches:
        return None
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue().to_pybytes()
