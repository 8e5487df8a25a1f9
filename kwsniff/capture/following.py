"""SEGMENTS batches from capture files that are still being written: the source behind `decode --follow`.

Theory of operation. Every `POLL_S` the given paths are looked at: new files are put behind the known ones, in
the order of their first packets; then each file that has changed is read to its present end, in that order.
A writer that rotates finishes a file before it makes the next, so whoever sees the next one finds the one
before complete, and the packets come in the order of the rotation. A file stays known, and may go on growing,
until its path is gone or leads to another file; that also ends it if somebody cut it or wrote it anew.

Time: while nothing is written, batches without segments (`kwsniff.net.segments.at_time`) say how far packet
time must have come, so that `analyze` can tell what waits in vain. A writer with a large buffer may be
further behind than that; `tcpdump -U` has none.

Invariants: every packet of every file is yielded once, whatever pieces the files grew by; a file in its
compressed form is not read again if it was followed before.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from kwsniff.capture.batch import note_batch, segment_batch
from kwsniff.capture.error import CaptureError, Stop
from kwsniff.capture.growing import (
    OTHER,
    PACKED,
    PLAIN,
    GrowingWindow,
    Identity,
    PackedFile,
    PlainFile,
    identity_of,
    kind_of,
)
from kwsniff.capture.source import Quiet, beginning, natural
from kwsniff.capture.stream import STDIN
from kwsniff.config import Config
from kwsniff.net.dissect import Dissector
from kwsniff.net.packets import CaptureTotals, PacketBlock
from kwsniff.net.segments import with_secrets

POLL_S = 0.2
BUSY = 10
"""Looking at the paths takes at most one part in so many of the time."""
GONE_S = 2.0
"""A path that does not exist for longer is given up; a writer may replace its file in two steps."""
MUCH = 64 << 20
"""Bytes that are read to the end even when asked to stop."""
MAX_OPEN = 64
"""Files kept open, those that came last. The others are opened when they have grown."""

Found = dict[Identity, tuple[str, os.stat_result]]


class Follower:
    """All that is followed in one run."""

    def __init__(
        self,
        paths: Sequence[str],
        config: Config,
        totals: CaptureTotals,
        stop: Stop,
        say: Callable[[str], None],
    ) -> None:
        """`stop` ends it, when all has been yielded that was there by then; `say` is told in one line what
        the user should know.

        Raises:
            CaptureError: a path does not exist, or is neither file nor directory.
        """
        self._config = config
        self._totals = totals
        self._stop = stop
        self._say = say
        self._dissector = Dissector(totals)
        self._paths: dict[str, float | None] = {}
        """The paths, and since when they are gone."""
        for path in paths:
            self._paths[_followable(path)] = None
        self._given = frozenset(self._paths)
        self._plain: dict[Identity, PlainFile] = {}
        self._packed: dict[Identity, PackedFile] = {}
        self._others: set[Identity] = set()
        self._names: set[str] = set()
        """Paths of all plain files so far."""
        self._missing: dict[Identity, float] = {}
        self._quiet = Quiet(totals, time.monotonic(), is_new=True)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Segments as they are written, until stopped or until nothing is left to follow.

        Raises:
            CaptureError: a file that was named is no capture, or the system refuses to read.
        """
        try:
            yield from self._batches_until_stopped()
        finally:
            for file in self._plain.values():
                file.window.rest()

    def _batches_until_stopped(self) -> Iterator[pa.RecordBatch]:
        while True:
            stopping = self._stop.is_set()
            began = time.monotonic()
            found = self._look()
            self._take_in(found)
            if stopping:
                for file in self._plain.values():
                    file.limit()
            took = time.monotonic() - began
            for batch in self._round(found):
                self._quiet.heard(time.monotonic())
                yield batch
                if self._stop.is_set() and (left := self._unread(found)) > MUCH:
                    self._say(f"stopped with {left:,} bytes unread")
                    stopping = True
                    break
            if stopping or not self._paths:
                break
            # Nothing came until then, which may be long ago.
            yield from self._quiet.batches(began)
            self._stop.wait(max(POLL_S, BUSY * took))
        if stopping:
            yield from self._unpacked(found, last=True)
        yield from self._end(found)

    # Paths

    def _look(self) -> Found:
        """The files that the paths lead to at present."""
        found: Found = {}
        for path in list(self._paths):
            try:
                for name, about in _files(path):
                    found.setdefault(identity_of(about), (name, about))
                self._paths[path] = None
            except FileNotFoundError:
                self._gone(path)
            except OSError as error:
                raise CaptureError(f"{path}: {error.strerror or error}") from None
        return found

    def _gone(self, path: str) -> None:
        since = self._paths[path]
        if since is None:
            self._paths[path] = time.monotonic()
        elif time.monotonic() - since > GONE_S:
            del self._paths[path]
            self._say(f"{path} is gone and no longer followed")

    def _take_in(self, found: Found) -> None:
        """Know the new files, in the order in which to read them."""
        new = []
        for identity, (path, about) in found.items():
            known = self._plain.get(identity)
            if known is not None:
                known.window.path = path
                self._names.add(path)
            elif identity not in self._packed and identity not in self._others:
                new.append((identity, path, about))
        files: list[tuple[PlainFile | PackedFile, os.stat_result]] = []
        try:
            for identity, path, about in new:
                if (file := self._made(identity, path)) is not None:
                    files.append((file, about))
                    if isinstance(file, PlainFile) and len(files) > MAX_OPEN:
                        file.window.rest()
        except CaptureError:
            for file, _ in files:
                if isinstance(file, PlainFile):
                    file.window.rest()
            raise
        for file, _ in sorted(files, key=lambda each: _rank(*each)):
            if isinstance(file, PlainFile):
                self._plain[file.identity] = file
                self._names.add(file.path)
            else:
                self._packed[file.identity] = file

    def _made(self, identity: Identity, path: str) -> PlainFile | PackedFile | None:
        try:
            window = GrowingWindow(path, self._config.block_bytes)
            kind = kind_of(window.first_bytes())
        except OSError as error:
            if not isinstance(error, FileNotFoundError):
                self._others.add(identity)
                self._say(f"{path}: {error.strerror or error}; it is passed over")
            return None
        if kind == PLAIN and window.identity == identity:
            return PlainFile(window, self._config, self._totals)
        window.rest()
        if kind == PACKED:
            return PackedFile(path, identity, self._config, self._totals)
        if kind == OTHER:
            if path in self._given:
                raise CaptureError(f"{path}: is no capture file (neither pcap nor pcapng)")
            self._others.add(identity)
        return None

    # Packets

    def _round(self, found: Found) -> Iterator[pa.RecordBatch]:
        """What was written since the last round."""
        yield from self._unpacked(found)
        files = list(self._plain.items())
        for place, (identity, file) in enumerate(files, start=1):
            if identity not in found:
                yield from self._lost(file)
                continue
            self._missing.pop(identity, None)
            path, about = found[identity]
            if file.replaced(about):
                yield from self._finish(file)
                self._again(path)
                continue
            yield from self._drained(file, about)
            if place <= len(files) - MAX_OPEN:
                file.window.rest()

    def _drained(self, file: PlainFile, about: os.stat_result | None) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._batches(file.drain(about))
        except CaptureError as error:
            self._pass_over(file.path, error)
            self._others.add(file.identity)
            self._plain.pop(file.identity).window.rest()

    def _pass_over(self, path: str, error: CaptureError) -> None:
        """Go on without a file; one that was asked for by name is another matter."""
        if path in self._given:
            raise error
        self._say(f"{error}; it is passed over")

    def _again(self, path: str) -> None:
        """Begin anew with the file at `path`, whose place is behind those that are known."""
        try:
            window = GrowingWindow(path, self._config.block_bytes)
        except OSError:
            return  # gone already
        self._plain[window.identity] = PlainFile(window, self._config, self._totals)

    def _lost(self, file: PlainFile) -> Iterator[pa.RecordBatch]:
        """A file that no path leads to any more: read what its writer may still add, for a while."""
        since = self._missing.setdefault(file.identity, time.monotonic())
        yield from self._drained(file, None)
        if file.identity in self._plain and time.monotonic() - since > GONE_S:
            yield from self._finish(file)

    def _finish(self, file: PlainFile) -> Iterator[pa.RecordBatch]:
        yield from self._batches(file.finish())
        yield from self._notes(file)
        del self._plain[file.identity]
        self._missing.pop(file.identity, None)

    def _unpacked(self, found: Found, *, last: bool = False) -> Iterator[pa.RecordBatch]:
        """The compressed files that are complete and were not followed while they grew."""
        for identity, file in list(self._packed.items()):
            if identity not in found:
                del self._packed[identity]
                continue
            about = found[identity][1]
            followed = os.path.splitext(file.path)[0] in self._names
            if file.done or followed or not (last or file.settled(about)):
                continue
            try:
                yield from self._batches(file.blocks())
            except CaptureError as error:
                self._pass_over(file.path, error)
            yield from self._notes(file)

    def _batches(self, blocks: Iterator[PacketBlock]) -> Iterator[pa.RecordBatch]:
        for block in blocks:
            if block.secrets:
                yield with_secrets(block.secrets)
            batch = segment_batch(self._dissector.dissect(block))
            if len(batch):
                yield batch

    def _notes(self, file: PlainFile | PackedFile) -> Iterator[pa.RecordBatch]:
        notes = self._dissector.end_file(file.packets)
        if notes:
            yield note_batch(file.path, notes)

    def _end(self, found: Found) -> Iterator[pa.RecordBatch]:
        """Nothing more is awaited."""
        last = ""
        begun = {identity for identity, file in self._plain.items() if file.begun}
        for file in list(self._plain.values()):
            last = file.path
            yield from self._finish(file)
        notes = self._dissector.end()
        if notes:
            yield note_batch(last, notes)
        for identity, (path, about) in found.items():
            if path in self._given and identity not in begun and identity not in self._packed:
                self._say(f"{path}: {'ends inside its file header' if about.st_size else 'is empty'}")

    def _unread(self, found: Found) -> int:
        """Bytes that were there at the last look and are still to be read."""
        plain = [(self._plain.get(identity), about) for identity, (_, about) in found.items()]
        return sum(file.unread(about) for file, about in plain if file is not None)


def followed(
    paths: Sequence[str],
    config: Config,
    totals: CaptureTotals,
    stop: Stop,
    say: Callable[[str], None],
) -> Iterator[pa.RecordBatch]:
    """See `Follower`. Raises CaptureError before the first batch for what cannot be followed."""
    return Follower(paths, config, totals, stop, say).batches()


def _followable(path: str) -> str:
    if path == STDIN:
        raise CaptureError("-: standard input cannot be followed, only files and directories")
    try:
        mode = os.stat(path).st_mode
        if stat.S_ISDIR(mode):
            os.listdir(path)
        elif stat.S_ISREG(mode):
            open(path, "rb").close()
        else:
            raise CaptureError(f"{path}: is neither a file nor a directory")
    except OSError as error:
        raise CaptureError(f"{path}: {error.strerror or error}") from None
    return path


def _files(path: str) -> Iterator[tuple[str, os.stat_result]]:
    """The files a path stands for. Raises OSError, FileNotFoundError if it is not there."""
    about = os.stat(path)
    if not stat.S_ISDIR(about.st_mode):
        yield path, about
        return
    with os.scandir(path) as entries:
        for entry in entries:
            try:
                about = os.stat(entry.path)
            except OSError:
                continue  # gone, or not ours to see
            if stat.S_ISREG(about.st_mode):
                yield entry.path, about


def _rank(file: PlainFile | PackedFile, about: os.stat_result) -> tuple[int, list[tuple[int, str]]]:
    """Files are read in the order of their first packets; one without is as old as its last change."""
    try:
        begins = beginning(file.path).time_ns
    except CaptureError:
        begins = 0
    return begins or about.st_mtime_ns, natural(file.path)
