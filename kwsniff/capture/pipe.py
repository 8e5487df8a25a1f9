"""A capture that comes through a pipe: rows are to come as the packets do, and a big file is to stay fast.

Theory of operation. A thread reads ahead (and decompresses), up to `AHEAD_BYTES`. Whoever wants bytes waits
for the first ones, then `GATHER_S` more for others that come with them, so that a block holds what came
together: all that fits where somebody pipes a file, a few packets where a capturing program writes them as
they come. While nothing comes the window is `dry`, as that of a growing file (`kwsniff.capture.growing`), and
the reader goes on with a block without packets.

Invariants: the packets are those of the same bytes in a file, whatever pieces they come in; where the run is
told to stop, a packet of which only the beginning has come is left out, not noted as damage.
"""

from __future__ import annotations

import time
from collections import deque
from threading import Condition, Thread

import numpy as np

from kwsniff.capture.error import CaptureError, Stop
from kwsniff.capture.reader import SLACK, Window
from kwsniff.capture.stream import ByteStream

AHEAD_BYTES = 8 << 20
GATHER_S = 0.1
QUIET_S = 0.25
"""How long to wait for a first byte until the window is dry."""
GRACE_S = 2.0
"""How long to read on, when told to stop, what still comes without a pause."""
FORMATS_BYTES = 28
"""Bytes that tell the format, and hold the first header of any."""


class Feed:
    """What a thread has read of a stream."""

    def __init__(self, stream: ByteStream, stop: Stop) -> None:
        self.ended = False
        """All has been taken that will ever come."""
        self.cut_off = False
        """More might have come, but the run was told to stop."""
        self._stream = stream
        self._stop = stop
        self._stopped: float | None = None
        self._pieces: deque[bytes] = deque()
        self._size = 0
        self._wanted = 1
        """Bytes that somebody waits for."""
        self._read = False
        """The stream has ended."""
        self._error: CaptureError | None = None
        self._changed = Condition()
        Thread(target=self._run, name=f"read {stream.name}", daemon=True).start()

    def take(self, most: int) -> bytes:
        """What came lately, about `most` bytes of it; nothing if nothing comes for a while.

        Raises:
            CaptureError: the system refuses to read.
        """
        with self._changed:
            if self._wait(1, QUIET_S):
                self._wait(min(most, AHEAD_BYTES), GATHER_S)
            data = b"".join(self._pieces)
            self._pieces.clear()
            self._size = 0
            self._changed.notify_all()
            self.ended = self._read
        if self.ended and not data and self._error is not None:
            raise self._error
        self._notice_stop(quiet=not data)
        return data

    def _wait(self, size: int, seconds: float) -> bool:
        """Whether so many bytes are there, if need be after waiting. With the lock held."""
        self._wanted = size
        self._changed.wait_for(lambda: self._size >= size or self._read, seconds)
        return self._size >= size

    def _notice_stop(self, *, quiet: bool) -> None:
        if self.ended or not self._stop.is_set():
            return
        now = time.monotonic()
        self._stopped = self._stopped or now
        self.cut_off = self.ended = quiet or now - self._stopped > GRACE_S

    def _run(self) -> None:
        try:
            for piece in self._stream.pieces():
                self._put(piece)
        except CaptureError as error:
            self._error = error
        except ValueError:  # closed by somebody who wants no more
            pass
        with self._changed:
            self._read = True
            self._changed.notify_all()

    def _put(self, piece: bytes) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._size < AHEAD_BYTES)
            self._pieces.append(piece)
            self._size += len(piece)
            if self._size >= self._wanted:
                self._changed.notify_all()


class PipeWindow(Window):
    """The window of a reader on a pipe."""

    def __init__(self, stream: ByteStream, block_bytes: int, stop: Stop) -> None:
        """`stop`, once set, makes the input end where it has come to."""
        super().__init__(stream, block_bytes)
        self._feed = Feed(stream, stop)

    def begin(self) -> None:
        """Wait for the bytes that tell the format. Raises CaptureError."""
        while self.size < FORMATS_BYTES and not self.at_end:
            self.move(0)

    def move(self, keep: int, need: int = 0) -> None:
        """Drop the bytes before `keep`, and take what has come; `need` bytes may not have.

        Raises CaptureError if the operating system refuses to read.
        """
        got = self._feed.take(self._block_bytes)
        rest = self.data[keep : self.size]
        if self._feed.cut_off and not got:
            rest = rest[:0]
        data = bytearray().join((rest.tobytes(), got, bytes(SLACK)))
        self.data = np.frombuffer(data, np.uint8)
        self.size = len(rest) + len(got)
        self.start += keep
        self.at_end = self._feed.ended
        self.dry = not got and not self.at_end
