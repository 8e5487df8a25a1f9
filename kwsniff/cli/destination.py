"""Where a command's data goes, and in which format: to standard output, or to a file that appears under its
name only when it is whole.

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
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import IO, TYPE_CHECKING, BinaryIO, Protocol

from kwsniff.capture.error import Stop
from kwsniff.cli.problem import CommandError, Terminated, suggestion

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

    import pyarrow as pa


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

    def __enter__(self) -> None:
        """They are handled from the beginning."""

    def __exit__(self, *_: object) -> None:
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


@contextlib.contextmanager
def after(seconds: float | None, stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` after a time, None for never, unless the block ends before."""
    timer = threading.Timer(seconds or 0, stop)
    timer.daemon = True
    if seconds is not None:
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


# Formats of events

FORMATS = ("text", "jsonl", "csv", "parquet")
ENDINGS = {
    **dict.fromkeys(("", ".txt", ".text", ".log"), "text"),
    **dict.fromkeys((".jsonl", ".ndjson", ".json"), "jsonl"),
    ".csv": "csv",
    **dict.fromkeys((".parquet", ".pq"), "parquet"),
}


class Writer(Protocol):
    """Takes EVENTS batches in order."""

    @property
    def note(self) -> str:
        """What whoever reads the output should know, empty if there is nothing."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Write the rows of `batch` to the stream."""

    def close(self) -> None:
        """Write what a complete output ends with. The stream stays open."""


def chosen_format(asked: str | None, output: str | None) -> str:
    """The format asked for, else the one the ending of the output file stands for, else text.

    Raises:
        CommandError: there is no such format, or the ending says nothing.
    """
    if asked is not None:
        if asked not in FORMATS:
            known = ", ".join(FORMATS)
            raise CommandError(f"unknown format {asked!r}{suggestion(asked, FORMATS)}; there are {known}")
        return asked
    if output in (None, "-") or (os.path.exists(str(output)) and not os.path.isfile(str(output))):
        return "text"
    ending = os.path.splitext(str(output))[1].lower()
    if ending not in ENDINGS:
        raise CommandError(f"{output}: the ending {ending} stands for no format; give one with -f")
    return ENDINGS[ending]


def open_writer(
    form: str,
    stream: IO[bytes],
    columns: list[str] | None,
    *,
    width: int | None,
    colour: bool,
    zone: ZoneInfo | None = None,
) -> Writer:
    """A writer of `form` on `stream`.

    Args:
        columns: event columns to write, None for those the format has by default; not for text.
        width: columns of the terminal that text is fitted to; None for lines as long as they are.
        colour: whether text may be coloured.
        zone: time zone of text, None for UTC; other formats are in UTC always.
    """
    if form == "text":
        from kwsniff.output.lines import TextWriter

        return TextWriter(stream, width=width, colour=colour, zone=zone)
    if form == "jsonl":
        from kwsniff.output.writers import JsonlWriter

        return JsonlWriter(stream, columns)
    if form == "csv":
        from kwsniff.analysis.stored import CsvWriter

        return CsvWriter(stream, columns)
    from kwsniff.output.writers import ParquetWriter

    return ParquetWriter(stream, columns)
