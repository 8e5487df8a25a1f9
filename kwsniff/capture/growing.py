"""A capture file that somebody is still writing: what is there now is read, and more later.

Theory of operation. The readers pull bytes through a window; here the window takes what the file holds and
never waits. When that was nothing, it is `dry`: the reader hands out a block without packets, and whoever
drives it comes back when the file has grown. A record that is not complete yet stays in the window, as it
would at the seam of two blocks. When it is known that no more will follow, `ended` makes the reader see the
end of the file, with all it does there.

A plain file is read as it grows. A compressed one is read once it is complete, for it was compressed after
it had been written; complete is what has not changed for a second.

Invariant: the packets are those that reading the finished file gives, whatever pieces it grew by.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import numpy as np

from kwsniff.capture.error import CaptureError
from kwsniff.capture.pcap import FILE_HEADER, MAGICS
from kwsniff.capture.pcapng import MAGIC
from kwsniff.capture.reader import SLACK, SMALLEST, Reader, Window
from kwsniff.capture.source import blocks, reader_of
from kwsniff.capture.stream import CODECS
from kwsniff.config import Config
from kwsniff.net.packets import CaptureTotals, PacketBlock

HEAD_BYTES = 64
"""Bytes by which a file is known again: its header and when its first packet was."""
SECTION_HEADER = 28
SETTLED_S = 1.0
"""Seconds after which a compressed file that has not changed counts as complete."""

Identity = tuple[int, int]
"""Device and inode of a file."""

PLAIN, PACKED, OTHER = "plain", "packed", "other"


def identity_of(about: os.stat_result) -> Identity:
    """Of the file in this state."""
    return about.st_dev, about.st_ino


class GrowingWindow(Window):
    """The window of a reader on the bytes of a file from the front to wherever it ends at present."""

    damage = None  # the file is not compressed

    def __init__(self, path: str, block_bytes: int) -> None:
        """Open `path`. Raises OSError."""
        self._block_bytes = max(block_bytes, SMALLEST)
        self.path = path
        self.limit: int | None = None
        """Offset up to which to read, if not to the end."""
        self.ended = False
        """No more will be written than is there now."""
        self._head = b""
        self._file: int | None = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.identity = identity_of(os.fstat(self._file))

    @property
    def position(self) -> int:
        """How far the file was read."""
        return self.start + self.size

    def available(self) -> int:
        """Bytes that are there and have not been read."""
        if self._file is None:
            return 0
        size = os.fstat(self._file).st_size
        return max((size if self.limit is None else min(size, self.limit)) - self.position, 0)

    def first_bytes(self) -> bytes:
        """As many as tell the format of the file."""
        return os.pread(self._file, SECTION_HEADER, 0) if self._file is not None else b""

    def move(self, keep: int, need: int = 0) -> None:
        """Drop the bytes before `keep`, and take a block, or `need` bytes, as far as they are there.

        Raises CaptureError if the operating system refuses to read.
        """
        rest = self.data[keep : self.size]
        try:
            room = min(self.available(), max(self._block_bytes, need - len(rest)))
            data = np.empty(len(rest) + room + SLACK, np.uint8)
            data[: len(rest)] = rest
            got = self._read_into(data.data[len(rest) : len(rest) + room])
            self.start, self.size = self.start + keep, len(rest) + got
            self.at_end = self.ended and self.available() == 0
        except OSError as error:
            raise CaptureError(f"{self.path}: {error.strerror or error}") from error
        data[self.size :] = 0
        self.data = data
        self.dry = not got and not self.at_end

    def _read_into(self, place: memoryview[int]) -> int:
        """Fill `place` as far as the file goes; returns the number of bytes."""
        done = 0
        while self._file is not None and done < len(place):
            got = os.preadv(self._file, [place[done:]], self.position + done)
            if not got:
                break
            done += got
        if len(self._head) < HEAD_BYTES:
            self._head += bytes(place[: min(done, HEAD_BYTES - len(self._head))])
        return done

    def replaced(self) -> bool:
        """Whether the file was cut or written anew behind our back."""
        if self._file is None:
            return False
        size = os.fstat(self._file).st_size
        return size < self.position or os.pread(self._file, len(self._head), 0) != self._head

    @property
    def open(self) -> bool:
        """Whether it takes a file descriptor."""
        return self._file is not None

    def rest(self) -> None:
        """Give the file descriptor back until there is more to read."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def wake(self) -> bool:
        """Take a descriptor again; false if the path no longer leads to this file."""
        if self._file is None:
            try:
                file = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                return False
            if identity_of(os.fstat(file)) != self.identity:
                os.close(file)
                return False
            self._file = file
        return True


def kind_of(start: bytes) -> str | None:
    """What a file that begins so is; None if there is too little of it to tell."""
    if start[:4] in MAGICS or start[:4] == MAGIC:
        return PLAIN
    if any(start.startswith(magic) for magic in CODECS):
        return PACKED
    longest = max(map(len, (*MAGICS, *CODECS, MAGIC)))
    may_become_one = any(magic.startswith(start) for magic in (*MAGICS, *CODECS, MAGIC))
    return None if may_become_one and len(start) < longest else OTHER


class PlainFile:
    """A pcap or pcapng file that may still grow."""

    def __init__(self, window: GrowingWindow, config: Config, totals: CaptureTotals) -> None:
        self.packets = 0
        """Number of the last packet."""
        self.window = window
        self.identity = window.identity
        self._config = config
        self._totals = totals
        self._reader: Reader | None = None
        self._blocks: Iterator[PacketBlock] = iter(())
        self._changed = (-1, -1)

    @property
    def path(self) -> str:
        """One that led to it last."""
        return self.window.path

    @property
    def begun(self) -> bool:
        """Whether the file's own header was there, at least."""
        return self._reader is not None

    def replaced(self, about: os.stat_result) -> bool:
        """Whether the file of this state is another one, in the same place, than was read until now."""
        if (about.st_size, about.st_mtime_ns) == self._changed:
            return False
        return self.window.wake() and self.window.replaced()

    def drain(self, about: os.stat_result | None = None) -> Iterator[PacketBlock]:
        """The packets written since the last time; `about` is the state of the file if it has a path still.

        Raises CaptureError.
        """
        if about is not None:
            if (about.st_size, about.st_mtime_ns) == self._changed:
                return
            self._changed = (about.st_size, about.st_mtime_ns)
            self.window.wake()
        if self.window.open and (self.begun or self._begin()):
            yield from self._taken()

    def finish(self) -> Iterator[PacketBlock]:
        """Notes on how the file ends, and what they bring to light. Nothing follows."""
        self.window.limit = self.window.position
        self.window.ended = True
        if self.begun:
            yield from self._taken()
        self.window.rest()

    def limit(self) -> None:
        """Read no further than to where the file ends now."""
        if self.window.open:
            self.window.limit = self.window.position + self.window.available()

    def unread(self, about: os.stat_result) -> int:
        """Bytes of a file of this state that have not been read."""
        return max(about.st_size - self.window.position, 0)

    def _begin(self) -> bool:
        """Begin to read if the file's own header is there."""
        start = self.window.first_bytes()
        if len(start) < (SECTION_HEADER if start[:4] == MAGIC else FILE_HEADER):
            return False
        self.window.move(0)
        self._totals.files += 1
        self._reader = reader_of(self.window, self.path, self._config, self._totals)
        self._blocks = self._reader.blocks()
        return True

    def _taken(self) -> Iterator[PacketBlock]:
        for block in self._blocks:
            self.packets += len(block)
            yield block
            if self.window.dry and not len(block):
                return


class PackedFile:
    """A compressed capture."""

    def __init__(self, path: str, identity: Identity, config: Config, totals: CaptureTotals) -> None:
        self.path, self.identity = path, identity
        self.packets = 0
        self.done = False
        """It has been read."""
        self._config, self._totals = config, totals

    def settled(self, about: os.stat_result) -> bool:
        """Whether it looks complete."""
        return time.time() - max(about.st_mtime, about.st_ctime) > SETTLED_S

    def blocks(self) -> Iterator[PacketBlock]:
        """All its packets. Raises CaptureError if it holds no capture."""
        self.done = True
        for block in blocks(self.path, self._config, self._totals):
            self.packets += len(block)
            yield block
