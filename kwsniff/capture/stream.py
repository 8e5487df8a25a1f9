"""Bytes of a capture, from a file, a pipe or stdin, decompressed on the way (gzip, zstd, lz4, xz by magic).

Theory of operation: `ByteStream.fill` fills the buffer it is given unless the input ends, whatever pieces the
input comes in. That is why the blocks cut from a capture are the same for a file and a compressed copy. What
comes through a pipe is not waited for so (`kwsniff.capture.pipe`). A compressed input that ends early or is
broken gives all it held before that place, then ends, and `damage` says what happened.
"""

from __future__ import annotations

import io
import lzma
import os
import select
import stat
import sys
import zlib
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from kwsniff.capture.error import CaptureError
from kwsniff.capture.place import is_remote, open_remote

Progress = Callable[[int, int | None], None]
"""Called with the bytes of the input read so far, as stored, and the total if it is known."""

STDIN = "-"
READ_BYTES = 1 << 20
FEED_BYTES = 4096
"""Compressed bytes given to a codec at a time: a bound on memory, for zstd may expand 4 bytes to 128 KiB."""


class Source(Protocol):
    """What is read; a raw file may say None for nothing yet."""

    def read(self, size: int, /) -> bytes | None: ...
    def fileno(self) -> int: ...
    def close(self) -> None: ...


class _Decompressor(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes | None: ...
    def decompress(self, data: bytes, /) -> bytes: ...


def _zstd() -> Any:
    import zstandard

    return zstandard.ZstdDecompressor().decompressobj()


def _lz4() -> Any:
    import lz4.frame

    return lz4.frame.LZ4FrameDecompressor()


CODECS: dict[bytes, tuple[str, Callable[[], _Decompressor]]] = {
    b"\x1f\x8b": ("gzip", lambda: zlib.decompressobj(wbits=31)),
    b"\x28\xb5\x2f\xfd": ("zstd", _zstd),
    b"\x04\x22\x4d\x18": ("lz4", _lz4),
    b"\xfd7zXZ\x00": ("xz", lzma.LZMADecompressor),
}


class ByteStream:
    """One input, decompressed. A context manager; closing it leaves stdin open."""

    def __init__(self, source: Source, name: str, total: int | None = None, *, pipe: bool = False) -> None:
        self.name = name
        self.pipe = pipe
        """Bytes come when somebody writes them, and reading may wait for long."""
        self.damage: tuple[str, str] | None = None
        """Anomaly code and detail of a compressed input that ended early or was broken."""
        self.total = total
        """Size of the input as stored, in bytes, if known."""
        self.consumed = 0
        """Bytes of the input read so far, as stored."""
        self._source = source
        self._plain: io.FileIO | None = None
        """The source, once it is known to be a file that is not compressed."""
        self._ready: memoryview[int] = memoryview(b"")
        self._pieces = self._read_pieces()

    def __enter__(self) -> ByteStream:
        return self

    def __exit__(self, *_: object) -> None:
        if self.name != STDIN:
            self._source.close()

    @property
    def plain_file(self) -> int | None:
        """Descriptor of the file that these bytes are, if they can be read at any place; to be asked for once
        some were read."""
        return self._plain.fileno() if self._plain is not None and not self.pipe else None

    def pieces(self) -> Iterator[bytes]:
        """All that `fill` has not taken, as it comes. Raises CaptureError."""
        return self._pieces

    def fill(self, into: memoryview[int]) -> int:
        """Fill `into`; return the number of bytes, which is less than its size only at the end of input.

        Raises CaptureError if the operating system refuses to read.
        """
        done = 0
        while done < len(into):
            if not self._ready:
                if self._plain is not None:
                    size = self._read_into(self._plain, into[done:])
                    if not size:
                        break
                    done += size
                    continue
                piece = next(self._pieces, None)
                if piece is None:
                    break
                self._ready = memoryview(piece)
            size = min(len(self._ready), len(into) - done)
            into[done : done + size] = self._ready[:size]
            self._ready = self._ready[size:]
            done += size
        return done

    def _read(self) -> bytes:
        try:
            while (data := self._source.read(READ_BYTES)) is None:  # somebody made the pipe non-blocking
                select.select([self._source], [], [])
        except OSError as error:
            raise CaptureError(f"{self.name}: {error.strerror or error}") from error
        self.consumed += len(data)
        return data

    def _read_into(self, file: io.FileIO, into: memoryview[int]) -> int:
        """As `_read`, but without a copy; bytes that were read."""
        try:
            while (size := file.readinto(into)) is None:
                select.select([file], [], [])
        except OSError as error:
            raise CaptureError(f"{self.name}: {error.strerror or error}") from error
        self.consumed += size
        return size

    def _read_pieces(self) -> Iterator[bytes]:
        start = b""
        while len(start) < 6 and (data := self._read()):
            start += data
        for magic, (codec, make) in CODECS.items():
            if start.startswith(magic):
                yield from self._decompressed(start, magic, codec, make)
                return
        if isinstance(self._source, io.FileIO):
            self._plain = self._source
        while start:
            yield start
            start = self._read()

    def _decompressed(
        self, data: bytes, magic: bytes, codec: str, make: Callable[[], _Decompressor]
    ) -> Iterator[bytes]:
        """Decompress all frames (members) that follow one another; what is no further frame is ignored."""
        decompressor = make()
        while data:
            for at in range(0, len(data), FEED_BYTES):
                try:
                    yield from _fed(decompressor, data[at : at + FEED_BYTES])
                except Exception as error:  # every codec has its own
                    self.damage = ("capture_damaged", f"the {codec} data is broken: {_one_line(error)}")
                    return
                if decompressor.eof:
                    data = (decompressor.unused_data or b"") + data[at + FEED_BYTES :]  # lz4 says None
                    break
            else:
                data = self._read()
                continue
            while len(data) < len(magic) and (more := self._read()):
                data += more
            if not data.startswith(magic):
                return
            decompressor = make()
        if not decompressor.eof:
            self.damage = ("capture_cut_short", f"the {codec} data ends early")


def _fed(decompressor: Any, data: bytes) -> Iterator[bytes]:
    if isinstance(decompressor, lzma.LZMADecompressor):
        yield decompressor.decompress(data, READ_BYTES)
        while not decompressor.needs_input and not decompressor.eof:
            yield decompressor.decompress(b"", READ_BYTES)
        return
    # zlib keeps what a call gave if the same call finds something wrong, so that a wrong checksum at the end
    # would cost all since the call before: the call is made again byte by byte.
    before = decompressor.copy() if hasattr(decompressor, "copy") else None
    try:
        yield decompressor.decompress(data)
    except zlib.error:
        assert before is not None
        for at in range(len(data)):
            yield before.decompress(data[at : at + 1])
        raise


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def open_stream(path: str) -> ByteStream:
    """Open a file or pipe, a URL (see `kwsniff.capture.place`), or stdin if `path` is ``-``.

    Raises CaptureError.
    """
    if path == STDIN:
        return _stdin()
    if is_remote(path):
        remote, size = open_remote(path)
        return ByteStream(remote, path, size)
    try:
        if stat.S_ISFIFO(os.stat(path).st_mode):
            return ByteStream(_Fifo(path), path, pipe=True)
        source = open(path, "rb", buffering=0)  # noqa: SIM115
        about = os.fstat(source.fileno())
    except OSError as error:
        raise CaptureError(f"{path}: {error.strerror or error}") from error
    regular = stat.S_ISREG(about.st_mode)
    return ByteStream(source, path, about.st_size if regular else None, pipe=not regular)


def _stdin() -> ByteStream:
    """Standard input. Raises CaptureError if it is a terminal, or closed."""
    try:
        source = io.FileIO(sys.stdin.fileno(), closefd=False)
        about = os.fstat(source.fileno())
    except (OSError, ValueError, AttributeError) as error:
        raise CaptureError(f"{STDIN}: there is no standard input") from error
    if source.isatty():
        raise CaptureError(f"{STDIN}: standard input is a terminal; pipe a capture into kwsniff")
    regular = stat.S_ISREG(about.st_mode)
    return ByteStream(source, STDIN, about.st_size if regular else None, pipe=not regular)


class _Fifo(io.FileIO):
    """A named pipe. Opening it waits for nobody, the first read for somebody who writes."""

    def __init__(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        os.set_blocking(descriptor, True)
        super().__init__(descriptor, "rb")
        self._begun = False

    def read(self, size: int | None = -1, /) -> Any:
        if not self._begun:
            poll = select.poll()
            poll.register(self.fileno(), select.POLLIN)
            poll.poll()
            self._begun = True
        return super().read(size)
