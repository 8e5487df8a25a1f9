"""SEGMENTS batches from the paths a user names: the way in for everything that reads captures."""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import NamedTuple

import pyarrow as pa

from kwsniff.capture import place
from kwsniff.capture.batch import note_batch, segment_batch
from kwsniff.capture.error import CaptureError, Stop
from kwsniff.capture.keymaterial import found_ahead
from kwsniff.capture.pcap import MAGICS, PcapReader
from kwsniff.capture.pcapng import MAGIC, PcapngReader
from kwsniff.capture.pipe import PipeWindow
from kwsniff.capture.place import Unread, directory_of, is_remote, local, named_as_capture, regular_files
from kwsniff.capture.reader import Reader, Window
from kwsniff.capture.stream import STDIN, ByteStream, Progress, open_stream
from kwsniff.config import Config
from kwsniff.net.dissect import Dissector
from kwsniff.net.packets import CaptureTotals, Note, PacketBlock
from kwsniff.net.segments import at_time, with_secrets
from kwsniff.rows.prefetch import prefetched

TICK_S = 1.0
CURRENT_S = 600.0
"""How far packet time may be from this machine's clock where packets come as they are captured."""


class Quiet:
    """Tells packet time about once a second while no segments come.

    Only where packets are new when they come: a pipe through which somebody sends an old capture may stand
    still for other reasons, and time does not pass in the capture meanwhile.
    """

    def __init__(self, totals: CaptureTotals, now: float, *, is_new: bool = False) -> None:
        """`now` here and below is by the monotonic clock; `is_new`: what comes is known to be new."""
        self._totals = totals
        self._heard = self._told = now
        self._always = self._is_new = is_new

    def heard(self, now: float) -> None:
        """Segments have come."""
        self._heard = now
        last = self._totals.last_time_ns
        current = last is not None and abs(time.time_ns() - last) < CURRENT_S * 1e9
        self._is_new = self._always or current

    def batches(self, now: float) -> Iterator[pa.RecordBatch]:
        """A batch that says how late it is (`kwsniff.net.segments.at_time`), if it is time for one."""
        last = self._totals.last_time_ns
        if self._is_new and last is not None and now - max(self._heard, self._told) >= TICK_S:
            self._told = now
            yield at_time(last + round((now - self._heard) * 1e9))


__all__ = ["CaptureError", "CaptureTotals", "Progress", "blocks", "resolve", "segments"]

PEEK_BYTES = 1 << 16


def segments(
    paths: Iterable[str | os.PathLike[str]],
    config: Config | None = None,
    totals: CaptureTotals | None = None,
    progress: Progress | None = None,
    stop: Stop | None = None,
    *,
    prefetch: bool = False,
) -> Iterator[pa.RecordBatch]:
    """TCP segments and capture anomalies of all captures at `paths`, as batches of
    `kwsniff.net.segments.SEGMENTS`.

    A path is a file, a directory (all captures directly in it; with ``/**`` behind it, those in its
    directories, too), a URL of either (`kwsniff.capture.place`) or ``-`` (stdin). Files are read in the order
    of their first packets, so that those of one rotation are one stream; with a pipe among them, as given.
    `totals` is counted up on the way. `progress` is called with bytes read so far and bytes in all, None if
    unknown, counted as stored. `stop`, once set, ends what comes through a pipe. While a pipe through which
    packets come as they are captured is quiet, empty batches tell the time (`kwsniff.net.segments.at_time`).
    With `prefetch` files are read by a thread, a batch ahead; `totals` may be, too.

    A capture in a directory that cannot be read is passed over, and is an anomaly. Raises CaptureError before
    the first batch for what was named itself and is missing, unreadable, empty or no capture, and for a
    directory of which nothing can be read.
    """
    config = config or Config()
    totals = totals if totals is not None else CaptureTotals()
    unread: list[Unread] = []
    files = resolve(paths, unread)
    batches = _segments(files, unread, config, CaptureRun(totals, stop), progress)
    # What comes through a pipe is read when it is wanted: waiting for more of it can't be broken off.
    return prefetched(batches) if prefetch and all(file.size is not None for file in files) else batches


def _segments(
    files: list[CaptureFile],
    unread: list[Unread],
    config: Config,
    capture_run: CaptureRun,
    progress: Progress | None,
) -> Iterator[pa.RecordBatch]:
    yield from map(unread_batch, unread)
    sizes = [file.size for file in files]
    total = sum(size for size in sizes if size is not None) if None not in sizes else None
    for file in files:
        try:
            yield from capture_run.file(file.path, config, progress, total)
        except CaptureError as error:
            if not file.found:
                raise
            yield unread_batch(Unread.of(file.path, error))
    yield from capture_run.end()


def unread_batch(unread: Unread) -> pa.RecordBatch:
    """What is said of a file that is passed over."""
    return note_batch(unread.path, [Note(1, "capture_unreadable", unread.why)])


class CaptureRun:
    """The way through files that are one stream, as those of a rotation are. What has to be known in the next
    file is in here and can be pickled between two files: IP fragments that wait, and the totals."""

    def __init__(self, totals: CaptureTotals, stop: Stop | None = None) -> None:
        self.totals = totals
        self._stop = stop or Stop()
        self._dissector = Dissector(totals)
        self._consumed = 0
        self._last = ""

    def file(
        self, path: str, config: Config, progress: Progress | None = None, total: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """SEGMENTS of the next file. Raises CaptureError."""
        with open_stream(path) as stream:
            yield from self.stream(stream, config, progress, total)

    def stream(
        self, stream: ByteStream, config: Config, progress: Progress | None = None, total: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """SEGMENTS of what comes next, as bytes. Raises CaptureError."""
        self._last = stream.name
        quiet = Quiet(self.totals, time.monotonic())
        reader = _reader(stream, config, self.totals, self._stop)
        for block in reader.blocks():
            if progress is not None:
                progress(self._consumed + stream.consumed, total)
            if block.secrets:
                yield with_secrets(block.secrets)
            batch = segment_batch(self._dissector.dissect(block))
            if len(batch):
                quiet.heard(time.monotonic())
                yield batch
            elif stream.pipe and not len(block):
                yield from quiet.batches(time.monotonic())
        self._consumed += stream.consumed
        if notes := self._dissector.end_file(reader.packets):
            yield note_batch(stream.name, notes)

    def end(self) -> Iterator[pa.RecordBatch]:
        """What is to be said when no file follows."""
        if notes := self._dissector.end():
            yield note_batch(self._last, notes)


def blocks(
    path: str | os.PathLike[str],
    config: Config | None = None,
    totals: CaptureTotals | None = None,
    *,
    ahead: bool = True,
) -> Generator[PacketBlock]:
    """The packets of one capture file (or stdin), undissected. `ahead`: TLS secrets in front of all of them,
    if the file can be searched for them. Raises CaptureError."""
    totals = totals if totals is not None else CaptureTotals()
    with open_stream(os.fspath(path)) as stream:
        yield from _reader(stream, config or Config(), totals, Stop(), ahead=ahead).blocks()


def _reader(
    stream: ByteStream, config: Config, totals: CaptureTotals, stop: Stop, *, ahead: bool = True
) -> Reader:
    """The reader for what a stream begins with. Raises CaptureError."""
    window = (
        PipeWindow(stream, config.block_bytes, stop) if stream.pipe else Window(stream, config.block_bytes)
    )
    window.begin()
    totals.files += 1
    reader = reader_of(window, stream.name, config, totals)
    if ahead and isinstance(reader, PcapngReader) and (file := stream.plain_file) is not None:
        reader.expect(found_ahead(file))
    return reader


def reader_of(window: Window, path: str, config: Config, totals: CaptureTotals) -> Reader:
    """The reader for what the window begins with."""
    magic = window.data[: min(window.size, 4)].tobytes()
    if magic in MAGICS:
        return PcapReader(window, path, config, totals)
    if magic == MAGIC:
        return PcapngReader(window, path, config, totals)
    if not window.size and window.damage is None:
        raise CaptureError(f"{path}: the file is empty")
    if window.damage is not None:
        raise CaptureError(f"{path}: is no capture that can be read: {window.damage[1]}")
    raise CaptureError(f"{path}: is no capture file (neither pcap nor pcapng)")


# Paths


@dataclass(frozen=True, slots=True)
class CaptureFile:
    """One input, known to be readable."""

    path: str
    size: int | None
    """Bytes as stored; None for a pipe, which was not looked into."""
    first_time_ns: int
    """Time of the first packet, 0 if it has none or was not looked into."""
    modified_ns: int = 0
    """When it was written to last, 0 if that is not known."""
    found: bool = False
    """It was not named, but found in a directory."""
    secrets: bool = False
    """It begins with secrets of TLS connections."""


def resolve(paths: Iterable[str | os.PathLike[str]], unread: list[Unread] | None = None) -> list[CaptureFile]:
    """The files at `paths` in the order to read them; see `segments`. `unread` takes those in directories
    that should be there and cannot be read. Raises CaptureError."""
    files: list[CaptureFile] = []
    unread = [] if unread is None else unread
    for each in paths:
        path = local(os.fspath(each))
        if is_remote(path):
            files += _remote(path, unread)
        else:
            files += _directory(*directory, unread) if (directory := directory_of(path)) else [_file(path)]
    if not files:
        raise CaptureError("no capture files given")
    if any(file.size is None for file in files):
        return files
    return sorted(files, key=lambda file: (file.first_time_ns, natural(file.path)))


def natural(path: str) -> list[tuple[int, str]]:
    """A key that sorts trace2 before trace10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", path)]


def _file(path: str) -> CaptureFile:
    if path == STDIN:
        return CaptureFile(path, None, 0)
    try:
        about = os.stat(path)
    except OSError as error:
        raise CaptureError(f"{path}: {error.strerror or error}") from error
    if not stat.S_ISREG(about.st_mode):
        return CaptureFile(path, None, 0)
    return _capture_file(path, about.st_size, beginning(path), about.st_mtime_ns)


def _capture_file(
    path: str, size: int, begins: Beginning, modified_ns: int, found: bool = False
) -> CaptureFile:
    return CaptureFile(path, size, begins.time_ns, modified_ns, found, begins.secrets)


class Beginning(NamedTuple):
    """What a capture begins with."""

    time_ns: int
    """Time of the first packet, 0 if there is none."""
    secrets: bool
    """There are secrets of TLS connections."""


def beginning(path: str) -> Beginning:
    """Found by reading a few packets. Raises CaptureError."""
    peek = replace(Config(), block_bytes=PEEK_BYTES)
    secrets = False
    with closing(blocks(path, peek, ahead=False)) as found:
        for block in found:
            secrets = secrets or bool(block.secrets)
            if len(block):
                return Beginning(int(block.time_ns[0]), secrets)
    return Beginning(0, secrets)


def _remote(url: str, unread: list[Unread]) -> list[CaptureFile]:
    """The captures at a URL; of a directory, other files in it are passed over."""
    passing = place.is_directory(url)
    files = [
        _capture_file(each.place.url, each.bytes, begins, each.modified_ns, found=passing)
        for each in place.find(url)
        if (begins := (_looked_into(each.place.url, unread) if passing else beginning(each.place.url)))
        is not None
    ]
    if not files:
        raise CaptureError(f"{url}: no capture files in this directory")
    return files


def _directory(path: str, deeper: bool, unread: list[Unread]) -> list[CaptureFile]:
    """The captures in a directory; other files in it are passed over."""
    files, before = [], len(unread)
    for each in regular_files(path, deeper, unread):
        begins = _looked_into(each, unread)
        if begins is not None:
            about = os.stat(each)
            files.append(_capture_file(each, about.st_size, begins, about.st_mtime_ns, found=True))
    if not files:
        why = f" can be read ({unread[before]})" if unread[before:] else ""
        raise CaptureError(f"{path}: no capture files in this directory{why}")
    return files


def _looked_into(path: str, unread: list[Unread]) -> Beginning | None:
    """What a file in a directory begins with, None if it is to be passed over."""
    try:
        return beginning_if_capture(path)
    except CaptureError as error:
        unread.append(Unread.of(path, error))
        return None


def beginning_if_capture(path: str) -> Beginning | None:
    """As `beginning`; None for a file that neither begins as a capture does, compressed or not, nor has the
    name of one. Raises CaptureError."""
    with open_stream(path) as stream:
        start = bytearray(4)
        stream.fill(memoryview(start))
    is_capture = bytes(start) == MAGIC or bytes(start) in MAGICS
    return beginning(path) if is_capture or named_as_capture(path) else None
