"""The files of directories that a capturing program rotates: which are finished, and in which order.

Theory of operation. A program that rotates (`tcpdump -G` or `-C`, `dumpcap -b`) writes one file of a
directory at a time, so all but the one written to last are finished; that one too once nobody wrote to it
for a while.
Files found finished are added to a list on disk, in the order of their first packets, and keep their number
in it for ever: whatever happens to the directory, the n-th file stays the n-th file.

Invariants: the list only grows; a line is on disk before anyone is told of it; a file is in it once, also if
it is compressed later or if its name is used again for other packets.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from stat import S_ISREG

from kwsniff.capture.error import CaptureError
from kwsniff.capture.place import Unread
from kwsniff.capture.source import beginning_if_capture, natural

_SUFFIXES = (".gz", ".zst", ".lz4", ".xz")
_SECOND = 1_000_000_000
UNREAD = "unread.jsonl"
"""Beside the list: captures that could not be read."""


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file of the list."""

    path: str
    bytes: int
    """As stored, when it was found finished."""
    modified_ns: int
    first_time_ns: int
    """Time of the first packet, 0 if it has none."""


class Rotation:
    """The list of finished files of some directories, kept in a file of its own."""

    def __init__(self, directories: Sequence[str], list_path: str | Path, quiet: float) -> None:
        """`quiet` is how many seconds nobody must have written to the newest file of a directory until it
        counts as finished."""
        self._directories = [os.path.abspath(each) for each in directories]
        self._real = {os.path.realpath(each) for each in self._directories}
        self._path = Path(list_path)
        self._quiet_ns = int(quiet * _SECOND)
        self._seen: dict[str, tuple[int, int]] = {}
        """Size and time of modification of files that were looked into."""
        self.files: list[ListedFile] = []
        self._keys: set[tuple[str, int]] = set()
        for each in listed(self._path):
            self._take(each)

    def look(self) -> None:
        """Add what has been finished since the last look.

        Captures that cannot be read are passed over, and named in a file beside the list.

        Raises:
            CaptureError: a directory cannot be read.
            OSError: the list cannot be written.
        """
        found = [each for directory in self._directories for each in self._new(directory)]
        found.sort(key=lambda each: (each.first_time_ns, natural(each.path)))
        added = []
        for each in found:
            if _key(each) not in self._keys:
                self._take(each)
                added.append(each)
        self._append(added)

    def _take(self, each: ListedFile) -> None:
        self.files.append(each)
        self._keys.add(_key(each))
        self._seen[each.path] = (each.bytes, each.modified_ns)

    def _new(self, directory: str) -> Iterator[ListedFile]:
        """Finished captures that were not looked into yet."""
        entries = self._entries(directory)
        newest = max((modified for modified, _, _ in entries), default=0)
        latest = time.time_ns() - self._quiet_ns
        for modified, path, size in entries:
            finished = modified < newest or modified <= latest
            if not finished or self._seen.get(path) == (size, modified):
                continue
            try:
                first = _first_time(path)
            except CaptureError as error:
                first = None
                tell_unread(self._path, Unread.of(path, error))
            if first is not None:
                yield ListedFile(path, size, modified, first)
            self._seen[path] = (size, modified)

    def _entries(self, directory: str) -> list[tuple[int, str, int]]:
        """Time of modification, path and size of the files in a directory, each once: a link to one that is
        followed anyway, as to the latest one, is none."""
        entries: dict[tuple[int, int], tuple[int, str, int]] = {}
        try:
            found = sorted(os.scandir(directory), key=self._rank)
        except OSError as error:
            raise CaptureError(f"{directory}: {error.strerror or error}") from error
        for entry in found:
            leads_to = os.path.dirname(os.path.realpath(entry.path)) if entry.is_symlink() else None
            if entry.name.startswith(".") or leads_to in self._real:
                continue
            try:
                about = entry.stat()
            except FileNotFoundError:  # compressed or removed meanwhile
                continue
            except OSError as error:
                self._tell_once(entry.path, error)
                continue
            if S_ISREG(about.st_mode):
                known = (about.st_mtime_ns, entry.path, about.st_size)
                entries.setdefault((about.st_dev, about.st_ino), known)
        return list(entries.values())

    def _rank(self, entry: os.DirEntry[str]) -> tuple[bool, bool, str]:
        """Of several names for a file the first is taken: one that was looked into."""
        return entry.path not in self._seen, entry.is_symlink(), entry.name

    def _tell_once(self, path: str, error: OSError) -> None:
        """Name what the system refuses to show."""
        if self._seen.get(path) != (0, 0):
            self._seen[path] = (0, 0)
            tell_unread(self._path, Unread.of(path, error))

    def _append(self, added: Iterable[ListedFile]) -> None:
        text = "".join(json.dumps(asdict(each)) + "\n" for each in added)
        if not text:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("ab") as file:
            file.truncate(_whole(self._path))
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())


def listed(path: str | Path) -> list[ListedFile]:
    """The list as it stands; empty if there is none. A last line that was not written to its end is none."""
    try:
        lines = Path(path).read_bytes()[: _whole(Path(path))].splitlines()
    except FileNotFoundError:
        return []
    return [ListedFile(**json.loads(line)) for line in lines]


def present(listed_file: ListedFile) -> str:
    """The path of a file of the list, or of what became of it when it was compressed.

    Raises:
        CaptureError: it is gone, or its name was used again for other packets; the text is one line.
    """
    path, others = listed_file.path, False
    for suffix in ("", *_SUFFIXES):
        if os.path.exists(path + suffix):
            # Of a file without packets so far others may have come.
            if listed_file.first_time_ns in (0, _first_time(path + suffix)):
                return path + suffix
            others = True
    why = "holds other packets than when it was found" if others else "was removed before it could be read"
    raise CaptureError(f"{path}: {why}")


def tell_unread(list_path: str | Path, unread_file: Unread) -> None:
    """Name a capture that is passed over, in a file beside the list."""
    place = Path(list_path).with_name(UNREAD)
    place.parent.mkdir(parents=True, exist_ok=True)
    with place.open("a") as file:
        file.write(json.dumps(unread_file._asdict()) + "\n")


def unread(list_path: str | Path, skip: int = 0) -> list[Unread]:
    """Captures that were passed over, but for the first so many."""
    try:
        lines = Path(list_path).with_name(UNREAD).read_text().splitlines(keepends=True)
    except FileNotFoundError:
        return []
    return [Unread(**json.loads(line)) for line in lines[skip:] if line.endswith("\n")]


def grown(files: Iterable[ListedFile]) -> dict[str, int]:
    """Files that were written to after they were found finished, with the bytes that are not in the list."""
    found = {}
    for each in files:
        with suppress(FileNotFoundError):
            about = os.stat(each.path)
            if about.st_size > each.bytes and _first_time(each.path) == each.first_time_ns:
                found[each.path] = about.st_size - each.bytes
    return found


def _whole(path: Path) -> int:
    """Bytes of the list up to the end of its last whole line."""
    data = path.read_bytes()
    return data.rfind(b"\n") + 1


def _key(each: ListedFile) -> tuple[str, int]:
    path = each.path
    for suffix in _SUFFIXES:
        path = path.removesuffix(suffix)
    return path, each.first_time_ns


def _first_time(path: str) -> int | None:
    """Time of the first packet; None if the file is no capture or not there any more. Raises CaptureError."""
    try:
        begins = beginning_if_capture(path)
        return None if begins is None else begins.time_ns
    except CaptureError:
        if os.path.exists(path):
            raise
        return None
