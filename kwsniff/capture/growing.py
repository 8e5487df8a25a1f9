"""A capture file that somebody is still writing: what is there now is read, and more later.

Theory of operation. The readers pull bytes through a window; here the window takes what the file holds and
never waits. When that was nothing, it is `dry`: the reader hands out a block without packets, and whoever
drives it comes back when the file has grown. A record that is not complete yet stays in the window, as it
would at the seam of two blocks. When it is known that no more will follow, `ended` makes the reader see the
end of the file, with all it does there.

Invariant: the packets are those that reading the finished file gives, whatever pieces it grew by.
"""

from __future__ import annotations

import os
from typing import BinaryIO

import numpy as np

from kwsniff.capture.error import CaptureError
from kwsniff.capture.reader import SLACK, SMALLEST, Window
from kwsniff.net.packets import Bytes

HEAD_BYTES = 64
"""Bytes by which a file is known again: its header and when its first packet was."""

Identity = tuple[int, int]
"""Device and inode of a file."""


class GrowingFile:
    """Bytes of a file from the front to wherever it ends at present."""

    def __init__(self, path: str) -> None:
        """Open `path`. Raises OSError."""
        self.path = path
        self.position = 0
        self.limit: int | None = None
        """Offset up to which to read, if not to the end."""
        self._head = b""
        self._file: BinaryIO | None = open(path, "rb", buffering=0)  # noqa: SIM115 - lives as long as this
        about = os.fstat(self._file.fileno())
        self.identity: Identity = (about.st_dev, about.st_ino)

    def available(self) -> int:
        """Bytes that are there and have not been read."""
        if self._file is None:
            return 0
        size = os.fstat(self._file.fileno()).st_size
        return max((size if self.limit is None else min(size, self.limit)) - self.position, 0)

    def read_into(self, place: memoryview[int]) -> int:
        """Fill `place` as far as the file goes; returns the number of bytes."""
        done = 0
        while self._file is not None and done < len(place):
            got = os.preadv(self._file.fileno(), [place[done:]], self.position + done)
            if not got:
                break
            done += got
        if len(self._head) < HEAD_BYTES:
            self._head += bytes(place[: min(done, HEAD_BYTES - len(self._head))])
        self.position += done
        return done

    def start(self) -> bytes:
        """The first bytes of the file, as many as tell its format."""
        return os.pread(self._file.fileno(), 28, 0) if self._file is not None else b""

    def replaced(self) -> bool:
        """Whether the file was cut or written anew behind our back."""
        if self._file is None:
            return False
        size = os.fstat(self._file.fileno()).st_size
        return size < self.position or os.pread(self._file.fileno(), len(self._head), 0) != self._head

    @property
    def open(self) -> bool:
        """Whether it takes a file descriptor."""
        return self._file is not None

    def rest(self) -> None:
        """Give the file descriptor back until there is more to read."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def wake(self) -> bool:
        """Take a descriptor again; false if the path no longer leads to this file."""
        if self._file is None:
            try:
                file = open(self.path, "rb", buffering=0)  # noqa: SIM115 - as above
            except OSError:
                return False
            about = os.fstat(file.fileno())
            if (about.st_dev, about.st_ino) != self.identity:
                file.close()
                return False
            self._file = file
        return True


class GrowingWindow(Window):
    """The window of a reader on a growing file."""

    def __init__(self, file: GrowingFile, block_bytes: int) -> None:
        self._file = file
        self._block_bytes = max(block_bytes, SMALLEST)
        self.data: Bytes = np.zeros(SLACK, np.uint8)
        self.size = 0
        self.start = 0
        self.at_end = False
        self.ended = False
        """No more will be written than is there now."""

    @property
    def damage(self) -> tuple[str, str] | None:
        """None: the file is not compressed."""
        return None

    def move(self, keep: int, need: int = 0) -> None:
        """Drop the bytes before `keep`, and take a block, or `need` bytes, as far as they are there.

        Raises CaptureError if the operating system refuses to read.
        """
        rest = self.data[keep : self.size]
        try:
            room = min(self._file.available(), max(self._block_bytes, need - len(rest)))
            data = np.empty(len(rest) + room + SLACK, np.uint8)
            data[: len(rest)] = rest
            got = self._file.read_into(data.data[len(rest) : len(rest) + room])
            self.at_end = self.ended and self._file.available() == 0
        except OSError as error:
            raise CaptureError(f"{self._file.path}: {error.strerror or error}") from error
        self.size = len(rest) + got
        data[self.size :] = 0
        self.start += keep
        self.data = data
        self.dry = not got and not self.at_end
