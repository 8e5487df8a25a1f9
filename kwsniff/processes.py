"""Processes that a run starts beside itself, and pipes between them that hand arrays over through memory.

What is sent is written once, into memory without a name that the other process maps, and that goes when
nobody looks at it any more. Whoever sends waits once `AHEAD` things, or `MOST` bytes, were not received.
"""

from __future__ import annotations

import mmap
import os
import pickle
import signal
import tempfile
import threading
import warnings
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle, send_handle
from typing import IO, Any

import pyarrow as pa

from kwsniff.columns import record_batch
from kwsniff.table import EVENTS

AHEAD = 3
"""Things sent that wait to be received ..."""
MOST = 64 << 20
"""... and bytes of them, if there is more than one."""
LINE = 64
"""Pieces of memory begin at multiples of it."""

ENDED = "a worker process ended early; try -j 1"
"""What there is to say then."""


class EndedError(Exception):
    """The process at the other end is gone."""


def cores() -> int:
    """Processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def may_fork() -> bool:
    """Whether this process can be copied: a copy has all that was loaded, but must not be made while other
    threads hold locks."""
    return threading.active_count() == 1 and hasattr(signal, "SIGCHLD")


class Processes:
    """Processes that end with a run."""

    def __init__(self) -> None:
        self._forks = may_fork()
        self._context: Any = get_context("fork" if self._forks else "spawn")
        self._processes: list[Any] = []
        self._ends: list[Connection] = []
        """Ends of pipes that this process has. A process that is given some of them closes the others, so
        that each side of a pipe sees when the other is gone."""

    def pipe(self, *, duplex: bool = False) -> tuple[Connection, Connection]:
        """Both ends of a new pipe, the one that receives first."""
        receiving, sending = self._context.Pipe(duplex=duplex)
        self._ends += [receiving, sending]
        return receiving, sending

    def start(self, work: Callable[..., None], *given: Any) -> None:
        """Start a process that does `work`. Ends of pipes that it is given are its own from then on."""
        theirs = [each for each in given if isinstance(each, Connection)]
        others = [each for each in self._ends if each not in theirs]
        process = self._context.Process(
            target=_begin, args=(work, others if self._forks else [], given), daemon=True
        )
        with warnings.catch_warnings():
            # Newer Pythons warn of any thread, those of libraries too, which see to copies themselves.
            warnings.simplefilter("ignore", DeprecationWarning)
            process.start()
        self._processes.append(process)
        self._ends = others
        for end in theirs:
            end.close()

    def close(self) -> None:
        """End them."""
        for end in self._ends:
            end.close()
        for process in self._processes:
            process.terminate()
            process.join()
        self._processes, self._ends = [], []


def _begin(work: Callable[..., None], others: list[Connection], given: tuple[Any, ...]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for each in others:
        each.close()
    with suppress(BrokenPipeError, EOFError, EndedError):
        work(*given)


class Pipe:
    """One end of a pipe, of which both ends receive and send."""

    def __init__(self, end: Connection) -> None:
        self._end = end
        self._waiting: deque[int] = deque()
        """Sizes of what was sent and not received."""

    def send(self, what: Any, batch: pa.RecordBatch | None = None) -> None:
        """Send what pickle takes, and a batch of EVENTS. Raises EndedError."""
        arrays: list[pickle.PickleBuffer] = []
        data = pickle.dumps(what, 5, buffer_callback=arrays.append)
        sizes = [len(each.raw()) for each in arrays]
        try:
            while self._is_far_ahead() or (self._waiting and self._end.poll()):
                self._heard()
            self._end.send_bytes(pickle.dumps((data, sizes, None if batch is None else len(batch)), 5))
            size = 0
            if any(sizes) or batch is not None:
                with memory_file() as file:
                    _write(file, arrays, batch)
                    size = file.tell()
                    send_handle(self._end, file.fileno(), None)
        except (EOFError, OSError):
            raise EndedError from None
        self._waiting.append(size)

    def receive(self) -> tuple[Any, pa.RecordBatch | None]:
        """What was sent next, arrays and batch where they lie. Raises EndedError."""
        try:
            data, sizes, count = pickle.loads(self._end.recv_bytes())
            held = _mapped(self._end) if any(sizes) or count is not None else memoryview(bytearray())
            with suppress(BrokenPipeError):  # it may be done
                self._end.send_bytes(b"")
        except (EOFError, OSError):
            raise EndedError from None
        arrays = []
        at = 0
        for size in sizes:
            arrays.append(held[at : at + size])
            at += -(-size // LINE) * LINE
        return pickle.loads(data, buffers=arrays), None if count is None else _batch(held[at:], count)

    def drain(self) -> None:
        """Wait until everything was received. Raises EndedError."""
        try:
            while self._waiting:
                self._heard()
        except (EOFError, OSError):
            raise EndedError from None

    def _is_far_ahead(self) -> bool:
        return len(self._waiting) >= AHEAD or (len(self._waiting) > 1 and sum(self._waiting) > MOST)

    def _heard(self) -> None:
        """The other end received something."""
        self._end.recv_bytes()
        self._waiting.popleft()


def memory_file() -> IO[bytes]:
    """A file without a name, in memory where the system has such."""
    if hasattr(os, "memfd_create"):
        return open(os.memfd_create("kwsniff"), "r+b", buffering=0)
    return tempfile.TemporaryFile(buffering=0)


def _write(file: IO[bytes], arrays: list[pickle.PickleBuffer], batch: pa.RecordBatch | None) -> None:
    # Written, not laid into mapped memory: pages that are written as a whole need not be cleared before.
    for each in arrays:
        file.write(each.raw())
        file.seek(-file.tell() % LINE, os.SEEK_CUR)
    if batch is None:
        return
    # Most columns of most batches are null.
    narrow = batch.select([name for name in batch.schema.names if batch[name].null_count < len(batch)])
    with pa.ipc.new_stream(file, narrow.schema) as writer:
        writer.write_batch(narrow)


def _batch(data: memoryview, count: int) -> pa.RecordBatch:
    (narrow,) = pa.ipc.open_stream(pa.py_buffer(data))
    return record_batch(dict(zip(narrow.schema.names, narrow.columns, strict=True)), count, EVENTS)


def _mapped(end: Connection) -> memoryview:
    file = recv_handle(end)
    try:
        # Its own, as everything else that is unpickled: what is written there nobody else sees.
        return memoryview(mmap.mmap(file, 0, access=mmap.ACCESS_COPY))
    finally:
        os.close(file)
