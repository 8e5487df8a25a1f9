"""Processes that a run starts beside itself, and pipes between them that hand arrays over through memory.

What is sent is written once, into memory without a name that the other process maps, and that goes when
nobody looks at it any more. Whoever sends waits once `AHEAD` things, or `MOST` bytes, were not received.
"""

from __future__ import annotations

import errno
import mmap
import os
import pickle
import signal
import socket
import sys
import tempfile
import threading
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from multiprocessing import current_process, get_context, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.reduction import recvfds, sendfds
from typing import IO, Any

import pyarrow as pa

from kwsniff.capture.error import CaptureError
from kwsniff.rows.arrays import read_filled, write_filled
from kwsniff.rows.schema import EVENTS

AHEAD = 3
"""Things sent that wait to be received ..."""
MOST = 64 << 20
"""... and bytes of them, if there is more than one."""
SMALL = 1 << 20
"""Bytes up to which what was sent is copied where it is received: mapped memory is an open file as long as
anything of it is held, and of small batches hundreds are, until they make a row group."""
LINE = 64
"""Pieces of memory begin at multiples of it."""

SIGNALS = {signal.SIGINT, signal.SIGTERM}
SCARCE = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EAGAIN}
"""Errors that a run of one process may not meet."""


class EndedError(Exception):
    """There is no going on with the process at the other end; its text is one line that says why."""

    @classmethod
    def because(cls, why: str = "") -> EndedError:
        """That it is gone; `why`, if that is known."""
        return cls(f"a worker process ended early{why and f': {why}'}; try -j 1")


class _Failed:
    """The last thing that a process sends if it failed."""

    def __init__(self, error: Exception) -> None:
        self._error = error
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:
            self._error = RuntimeError(f"{type(error).__name__}: {error}")
        self._error.add_note("".join(traceback.format_exception(error)))  # for --debug

    def error(self) -> Exception:
        """What to raise where it is received: a fault as it was."""
        if isinstance(self._error, OSError) and self._error.errno in SCARCE:
            return EndedError.because(str(self._error.strerror))
        if isinstance(self._error, MemoryError):
            return EndedError.because("out of memory")
        return self._error


def cores() -> int:
    """Processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def may_start() -> bool:
    """Whether this process may start others: a daemonic one, such as a worker of a pool, may not."""
    return not current_process().daemon


def may_fork() -> bool:
    """Whether this process can be copied: a copy has all that was loaded, but must not be made while other
    threads hold locks."""
    return threading.active_count() == 1 and hasattr(signal, "SIGCHLD")


class Processes:
    """Processes that end with a run."""

    def __init__(self) -> None:
        self._forks = may_fork()
        self._context: Any = get_context("fork" if self._forks else "spawn")
        if not self._forks:
            resource_tracker.ensure_running()  # which lets signals through that are held
        self._processes: list[Any] = []
        self._ends: list[Connection] = []
        """Ends of pipes that this process has. A process that is given some of them closes the others, so
        that each side of a pipe sees when the other is gone."""

    def pipe(self, *, duplex: bool = False) -> tuple[Connection, Connection]:
        """Both ends of a new pipe, the one that receives first."""
        receiving, sending = self._context.Pipe(duplex=duplex)
        self._ends += [receiving, sending]
        return receiving, sending

    @contextmanager
    def whole(self) -> Iterator[None]:
        """If not all can be started that the block starts, none is left."""
        try:
            yield
        except BaseException:
            self.close()
            raise

    def start(self, work: Callable[..., None], *given: Any) -> None:
        """Start a process that does `work`. Ends of pipes that it is given are its own from then on; by the
        first it tells why it failed, if it does. Raises OSError if there is no room for one more."""
        theirs = [each for each in given if isinstance(each, Connection)]
        others = [each for each in self._ends if each not in theirs]
        process = self._context.Process(
            target=_begin, args=(work, others if self._forks else [], given), daemon=True
        )
        with warnings.catch_warnings(), _signals_held(), nullcontext() if self._forks else _anew():
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
            process.kill()  # even if it was stopped; none leaves anything behind
            process.join()
        self._processes, self._ends = [], []


@contextmanager
def _anew() -> Iterator[None]:
    """A process that begins anew would run the script that this one runs, for what is defined there: here
    nothing is, and it may start processes itself."""
    script = vars(sys.modules["__main__"])
    about: dict[str, Any] = {name: script.pop(name) for name in ("__file__", "__spec__") if name in script}
    script["__spec__"] = None
    try:
        yield
    finally:
        script.update(about)


@contextmanager
def _signals_held() -> Iterator[None]:
    """Hold signals back, here and in a process that is started, until that does not take them for its own."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin(work: Callable[..., None], others: list[Connection], given: tuple[Any, ...]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    for each in others:
        each.close()
    try:
        work(*given)
    except (BrokenPipeError, EOFError):
        pass
    except Exception as error:
        end = next(each for each in given if isinstance(each, Connection))
        with suppress(OSError):
            end.send_bytes(pickle.dumps(_Failed(error), 5))


class Pipe:
    """One end of a pipe, of which both ends receive and send."""

    def __init__(self, end: Connection) -> None:
        self._end = end
        self._waiting: deque[int] = deque()
        """Sizes of what was sent and not received."""

    def send(self, what: Any, batch: pa.RecordBatch | None = None) -> None:
        """Send what pickle takes, and a batch of EVENTS. Raises EndedError, and what the other process failed
        by."""
        arrays: list[pickle.PickleBuffer] = []
        data = pickle.dumps(what, 5, buffer_callback=arrays.append)
        sizes = [len(each.raw()) for each in arrays]
        waiting = self._waiting
        while waiting and (
            len(waiting) >= AHEAD or (len(waiting) > 1 and sum(waiting) > MOST) or self._end.poll()
        ):
            self._heard()
        head = pickle.dumps((data, sizes, batch is not None), 5)
        if not any(sizes) and batch is None:
            self._put(head)
            self._waiting.append(0)
            return
        with _room(), memory_file() as file:
            _write(file, arrays, batch)
            self._put(head, file.fileno())
            self._waiting.append(file.tell())

    def _put(self, head: bytes, file: int | None = None) -> None:
        try:
            self._end.send_bytes(head)
            if file is not None:
                with _socket(self._end) as through:
                    sendfds(through, [file])
        except (BrokenPipeError, ConnectionResetError):
            while True:  # until it is said why
                self._heard()

    def receive(self) -> tuple[Any, pa.RecordBatch | None]:
        """What was sent next, arrays and batch where they lie. Raises EndedError, and what the other process
        failed by."""
        data, sizes, with_batch = self._said()
        held = _held(self._end) if any(sizes) or with_batch else memoryview(bytearray())
        with suppress(BrokenPipeError, ConnectionResetError):  # it may be done
            self._end.send_bytes(b"")
        arrays = []
        at = 0
        for size in sizes:
            arrays.append(held[at : at + size])
            at += -(-size // LINE) * LINE
        return pickle.loads(data, buffers=arrays), read_filled(held[at:], EVENTS) if with_batch else None

    def drain(self) -> None:
        """Wait until everything was received. Raises EndedError, and what the other process failed by."""
        while self._waiting:
            self._heard()

    def _heard(self) -> None:
        """The other end received something."""
        self._said()
        self._waiting.popleft()

    def _said(self) -> Any:
        try:
            said = self._end.recv_bytes()
        except (EOFError, OSError):
            raise EndedError.because() from None
        return received(said) if said else None


def received(data: bytes) -> Any:
    """What was pickled by another process. Raises what that failed by."""
    said = pickle.loads(data)
    if isinstance(said, _Failed):
        raise said.error()
    return said


@contextmanager
def told() -> Iterator[None]:
    """Say of a process that is gone what is said of an input that cannot be read on."""
    try:
        yield
    except EndedError as error:
        raise CaptureError(str(error)) from None


def memory_file() -> IO[bytes]:
    """A file without a name, in memory where the system has such."""
    if hasattr(os, "memfd_create"):
        return open(os.memfd_create("kwsniff"), "w+b")
    return tempfile.TemporaryFile()


@contextmanager
def _room() -> Iterator[None]:
    """Where handing on may lack memory, files or room on the disk."""
    try:
        yield
    except OSError as error:
        raise EndedError(
            f"processes cannot hand on what they made: {error.strerror or error}; try -j 1"
        ) from None


@contextmanager
def _socket(end: Connection) -> Iterator[socket.socket]:
    """The end of a pipe as what files are handed through. The functions for that copy the end, for which
    there may be no room once something was announced."""
    through = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, fileno=end.fileno())
    try:
        yield through
    finally:
        through.detach()


def _write(file: IO[bytes], arrays: list[pickle.PickleBuffer], batch: pa.RecordBatch | None) -> None:
    # Written, not laid into mapped memory: pages that are written as a whole need not be cleared before.
    for each in arrays:
        file.write(each.raw())
        file.seek(-file.tell() % LINE, os.SEEK_CUR)
    if batch is not None:
        write_filled(file, batch)
    file.flush()


def _held(end: Connection) -> memoryview:
    try:
        with _socket(end) as through:
            (file,) = recvfds(through, 1)
    except (EOFError, OSError):
        raise EndedError.because() from None
    except RuntimeError:  # it came, and there was no room for it
        with _room():
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE)) from None
    try:
        with _room():
            return memoryview(_copied(file) or mmap.mmap(file, 0, access=mmap.ACCESS_COPY))
    finally:
        os.close(file)


def _copied(file: int) -> bytearray | None:
    """What is in a small file. Mapped or copied, it is who receives it that may write there."""
    size = os.fstat(file).st_size
    if size > SMALL:
        return None
    data = bytearray(size)
    os.preadv(file, [data], 0)
    return data
