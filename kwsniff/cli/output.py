"""Where a command's data goes: standard output, or a file that appears under its name only when it is whole.

A file is written beside its final name and renamed at the end, so a reader never meets half of one and an
earlier one survives a failed run. What is no regular file (a device, a named pipe) is written directly.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import stat
import sys
from collections.abc import Iterator
from types import FrameType
from typing import IO, BinaryIO

from kwsniff.capture.stop import Stop
from kwsniff.cli.problem import CommandError, Terminated


class Output:
    """An open destination; `stream` takes bytes. Call `commit` when they are complete, `discard` if not."""

    def __init__(self, path: str | None, *, growing: bool = False) -> None:
        """Open `path`, or standard output for None and `-`. `growing`: the file shows what is written to it
        at once.

        Raises:
            CommandError: the file cannot be written.
        """
        self._temporary = self._final = ""
        self.to_file = path not in (None, "-")
        if not self.to_file:
            self.stream: IO[bytes] = sys.stdout.buffer
            return
        self._final = os.path.realpath(str(path))
        try:
            self.stream = open(self._final, "wb") if growing else self._open()  # noqa: SIM115 - until commit
        except OSError as error:
            raise CommandError(f"cannot write {path}: {error.strerror or error}") from None

    def _open(self) -> BinaryIO:
        if os.path.isdir(self._final):
            raise IsADirectoryError(0, "is a directory")
        if os.path.exists(self._final) and not stat.S_ISREG(os.stat(self._final).st_mode):
            return open(self._final, "wb")
        folder, name = os.path.split(self._final)
        temporary = os.path.join(folder, f".{name}.{os.getpid()}.part")
        stream = open(temporary, "xb")  # noqa: SIM115 - lives until commit() or discard()
        self._temporary = temporary
        if os.path.exists(self._final):
            shutil.copymode(self._final, temporary)
        return stream

    @property
    def terminal(self) -> bool:
        """Whether a person is looking."""
        return not self.to_file and self.stream.isatty()

    def commit(self) -> None:
        """Make what was written visible under the final name."""
        self.stream.flush()
        if self.to_file:
            self.stream.close()
        if self._temporary:
            os.replace(self._temporary, self._final)
            self._temporary = ""

    def discard(self) -> None:
        """Leave everything as it was before. After `commit`: do nothing."""
        if self.to_file:
            with contextlib.suppress(OSError):
                self.stream.close()
        if self._temporary:
            with contextlib.suppress(OSError):
                os.unlink(self._temporary)
            self._temporary = ""


class Interrupts:
    """Ctrl-C and SIGTERM between writes, never inside one: a row or a row group is whole or not there at all.

    Outside `held` the signal raises KeyboardInterrupt or Terminated at once, so that a read that waits can be
    left.
    """

    def __init__(self) -> None:
        self._holding, self._pending = False, 0
        self._process = os.getpid()
        self._before = {}
        with contextlib.suppress(ValueError):  # not the main thread: signals are not ours to handle
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self.arrived)

    def arrived(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal."""
        if os.getpid() != self._process:  # a copy of it that has not begun its own work
            os._exit(128 + number)
        if self._holding and not self._pending:
            self._pending = number
            return
        self._raise(number)

    def _raise(self, number: int) -> None:
        raise Terminated if number == signal.SIGTERM else KeyboardInterrupt

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Put an interrupt off to the end of the block; a second one breaks in."""
        self._holding = True
        try:
            yield
        finally:
            self._holding = False
        if self._pending:
            number, self._pending = self._pending, 0
            self._raise(number)

    def restore(self) -> None:
        """Handle the signals as before."""
        for number, before in self._before.items():
            signal.signal(number, before)


class Stopping(Interrupts):
    """Ctrl-C and SIGTERM as the usual end of what would go on for ever: they set `stop`. A second one is a
    KeyboardInterrupt."""

    def __init__(self, stop: Stop) -> None:
        self._stop = stop
        super().__init__()

    def arrived(self, number: int, frame: FrameType | None) -> None:
        if self._stop.is_set():
            super().arrived(number, frame)
        self._stop.set()
