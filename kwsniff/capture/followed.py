"""One capture file that is followed: blocks of packets as they are written.

A plain file is read as it grows. A compressed one is read once it is complete, for it was compressed after
it had been written; complete is what has not changed for a second.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

from kwsniff.capture.growing import GrowingFile, GrowingWindow, Identity
from kwsniff.capture.pcap import FILE_HEADER, MAGICS
from kwsniff.capture.pcapng import MAGIC
from kwsniff.capture.reader import Reader
from kwsniff.capture.source import blocks, reader_of
from kwsniff.capture.stream import CODECS
from kwsniff.config import Config
from kwsniff.net.packets import CaptureTotals, PacketBlock

SECTION_HEADER = 28
SETTLED_S = 1.0
"""Seconds after which a compressed file that has not changed counts as complete."""

PLAIN, PACKED, OTHER = "plain", "packed", "other"


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

    def __init__(self, file: GrowingFile, config: Config, totals: CaptureTotals) -> None:
        self.packets = 0
        """Number of the last packet."""
        self._file = file
        self._config = config
        self._totals = totals
        self._window = GrowingWindow(file, config.block_bytes)
        self._reader: Reader | None = None
        self._blocks: Iterator[PacketBlock] = iter(())
        self._changed = (-1, -1)

    @property
    def path(self) -> str:
        return self._file.path

    @path.setter
    def path(self, path: str) -> None:
        self._file.path = path

    @property
    def identity(self) -> Identity:
        return self._file.identity

    @property
    def begun(self) -> bool:
        """Whether the file's own header was there, at least."""
        return self._reader is not None

    @property
    def open(self) -> bool:
        """Whether it takes a file descriptor."""
        return self._file.open

    def rest(self) -> None:
        """Give the descriptor back until the file has grown."""
        self._file.rest()

    def replaced(self, about: os.stat_result) -> bool:
        """Whether the file of this state is another one, in the same place, than was read until now."""
        if (about.st_size, about.st_mtime_ns) == self._changed:
            return False
        return self._file.wake() and self._file.replaced()

    def drain(self, about: os.stat_result | None = None) -> Iterator[PacketBlock]:
        """The packets written since the last time; `about` is the state of the file if it has a path still.

        Raises CaptureError.
        """
        if about is not None:
            if (about.st_size, about.st_mtime_ns) == self._changed:
                return
            self._changed = (about.st_size, about.st_mtime_ns)
            self._file.wake()
        if self._file.open:
            yield from self._read()

    def finish(self) -> Iterator[PacketBlock]:
        """Notes on how the file ends, and what they bring to light. Nothing follows."""
        self._file.limit = self._file.position
        self._window.ended = True
        if self._reader is not None:
            yield from self._taken()
        self._file.rest()

    def limit(self) -> None:
        """Read no further than to where the file ends now."""
        if self._file.open:
            self._file.limit = self._file.position + self._file.available()

    def unread(self, about: os.stat_result) -> int:
        """Bytes of a file of this state that have not been read."""
        return max(about.st_size - self._file.position, 0)

    def _read(self) -> Iterator[PacketBlock]:
        if self._reader is None and not self._begin():
            return
        yield from self._taken()

    def _begin(self) -> bool:
        """Begin to read if the file's own header is there."""
        start = self._file.start()
        if len(start) < (SECTION_HEADER if start[:4] == MAGIC else FILE_HEADER):
            return False
        self._window.move(0)
        self._totals.files += 1
        self._reader = reader_of(self._window, self.path, self._config, self._totals)
        self._blocks = self._reader.blocks()
        return True

    def _taken(self) -> Iterator[PacketBlock]:
        for block in self._blocks:
            self.packets += len(block)
            yield block
            if self._window.dry and not len(block):
                return


class PackedFile:
    """A compressed capture."""

    def __init__(self, path: str, identity: Identity, config: Config, totals: CaptureTotals) -> None:
        self.path = path
        self.identity = identity
        self.packets = 0
        self.done = False
        """It has been read."""
        self._config = config
        self._totals = totals

    def settled(self, about: os.stat_result) -> bool:
        """Whether it looks complete."""
        return time.time() - max(about.st_mtime, about.st_ctime) > SETTLED_S

    def blocks(self) -> Iterator[PacketBlock]:
        """All its packets. Raises CaptureError if it holds no capture."""
        self.done = True
        for block in blocks(self.path, self._config, self._totals):
            self.packets += len(block)
            yield block
