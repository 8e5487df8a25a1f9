"""What is in a directory of captures: those that can be read, and those that should be but cannot.

A file counts as meant for a capture if it begins as one, or has the name of one. Any other is passed over in
silence: directories of captures hold notes and lists, too. What the system refuses to show may be anything,
and is told. A file that several names lead to is read once.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from typing import NamedTuple

from kwsniff.capture.error import CaptureError

RECURSIVE = "/**"
"""Behind the path of a directory: with all that is in the directories in it."""
_NAMED = re.compile(r"\.(pcap|pcapng|ntar|cap|dmp)([._-]?\d)*(\.(gz|zst|lz4|xz))?\Z", re.IGNORECASE)


class Unread(NamedTuple):
    """A file that could not be read."""

    path: str
    why: str

    @classmethod
    def of(cls, path: str, error: CaptureError | OSError) -> Unread:
        """For what was raised."""
        if isinstance(error, OSError):
            return cls(path, error.strerror or str(error))
        return cls(path, str(error).removeprefix(f"{path}: "))

    def __str__(self) -> str:
        return f"{self.path}: {self.why}"


def directory_of(path: str) -> tuple[str, bool] | None:
    """The directory that `path` stands for, and whether with those in it; None if it stands for none."""
    if os.path.isdir(path):
        return path, False
    above = path.removesuffix(RECURSIVE)
    return (above or "/", True) if above != path and os.path.isdir(above or "/") else None


def recursive(path: str) -> str:
    """What stands for the directory `path` with those in it."""
    return path.rstrip("/") + RECURSIVE


def named_as_capture(path: str) -> bool:
    """Whether a file is called as captures are: `trace.pcap`, `trace.pcap12`, `trace.pcapng.gz`."""
    return _NAMED.search(os.path.basename(path)) is not None


def regular_files(path: str, deeper: bool, unread: list[Unread]) -> Iterator[str]:
    """The files in a directory, each once; symbolic links to directories are not followed. `unread` takes
    links that lead nowhere, and directories in it that may not be looked into.

    Raises:
        CaptureError: the directory itself may not be.
    """
    seen: set[tuple[int, int]] = set()
    folders = [path]
    while folders:
        folder = folders.pop()
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: (entry.is_symlink(), entry.path))
        except OSError as error:
            if folder == path:
                raise CaptureError(f"{path}: {error.strerror or error}") from error
            unread.append(Unread.of(folder, error))
            continue
        if deeper:
            folders += [entry.path for entry in reversed(entries) if entry.is_dir(follow_symlinks=False)]
        yield from _files(entries, seen, unread)


def _files(
    entries: list[os.DirEntry[str]], seen: set[tuple[int, int]], unread: list[Unread]
) -> Iterator[str]:
    for entry in entries:
        try:
            about = os.stat(entry.path)
        except OSError as error:
            if entry.is_symlink() or not isinstance(error, FileNotFoundError):
                unread.append(Unread.of(entry.path, error))
            continue  # otherwise gone since
        identity = about.st_dev, about.st_ino
        if stat.S_ISREG(about.st_mode) and identity not in seen:
            seen.add(identity)
            yield entry.path
