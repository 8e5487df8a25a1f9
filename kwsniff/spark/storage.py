"""A place on any file system: a directory or file of this machine, or a URL of object storage.

Input and output go through the same drivers (`kwsniff.capture.place`). What is written gets a name that
nothing else has, and is believed only once a manifest names it: object storage renames nothing, and a task
that was given up may go on writing. `replace` is the exception: the bytes of one small file change at once.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any
from uuid import uuid4

from kwsniff.capture.place import file_system, is_remote, local


@dataclass(frozen=True, slots=True)
class FolderEntry:
    """A file that was found."""

    place: Place
    bytes: int
    modified_ns: int
    """By the clock of the file system; 0 if it doesn't tell."""


@dataclass(frozen=True, slots=True)
class Place:
    """A directory or a file. Methods raise OSError."""

    url: str
    """An absolute path, or a URL."""

    @classmethod
    def of(cls, given: str | os.PathLike[str] | Place) -> Place:
        """From what a user wrote."""
        if isinstance(given, Place):
            return given
        text = os.fspath(given)
        return cls(text.rstrip("/") if is_remote(text) else os.path.abspath(local(text)))

    def __truediv__(self, name: str) -> Place:
        return Place(f"{self.url}/{name}")

    def __str__(self) -> str:
        return self.url

    @property
    def name(self) -> str:
        """The last part."""
        return self.url.rpartition("/")[2]

    @property
    def path(self) -> Path | None:
        """As a path of this machine; None elsewhere."""
        return None if is_remote(self.url) else Path(self.url)

    def relative_to(self, above: Place) -> str:
        """What `above` has to be followed by to give this place."""
        return self.url.removeprefix(f"{above.url}/")

    def create(self) -> Any:
        """Open a new file for writing, with the directories above it."""
        system, path = self.opened
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        return system.open_output_stream(path, compression=None)

    def open(self) -> Any:
        """Open for reading anywhere in it."""
        system, path = self.opened
        return system.open_input_file(path)

    def read(self) -> bytes:
        """All bytes. Raises FileNotFoundError if there is no such file."""
        with self.open() as file:
            data: bytes = file.read()
            return data

    def replace(self, data: bytes) -> None:
        """Give the file these bytes, all at once, and lastingly."""
        if self.path is None:
            with self.create() as file:  # an object appears when its upload is complete
                file.write(data)
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        beside = self.path.with_name(f".{self.path.name}.{uuid4().hex}.part")
        try:
            with beside.open("wb") as whole:
                whole.write(data)
                whole.flush()
                os.fsync(whole.fileno())
            beside.replace(self.path)
        finally:
            beside.unlink(missing_ok=True)

    def files(self) -> Iterator[FolderEntry]:
        """All files below; none if there is no such directory."""
        from pyarrow import fs

        system, path = self.opened
        for each in system.get_file_info(fs.FileSelector(path, recursive=True, allow_not_found=True)):
            if each.type == fs.FileType.File:
                inside = re.sub(r"\A/", "", each.path.removeprefix(path.rstrip("/")))
                yield FolderEntry(self / inside, each.size or 0, each.mtime_ns or 0)

    def names(self) -> list[str]:
        """What lies directly in the directory; nothing if there is none."""
        from pyarrow import fs

        system, path = self.opened
        found = system.get_file_info(fs.FileSelector(path, allow_not_found=True))
        return sorted(each.base_name for each in found)

    def about(self) -> FolderEntry | None:
        """The file, if it is one."""
        from pyarrow import fs

        system, path = self.opened
        found = system.get_file_info(path)
        if found.type != fs.FileType.File:
            return None
        return FolderEntry(self, found.size or 0, found.mtime_ns or 0)

    def remove(self) -> None:
        """Remove the file, if it is there."""
        system, path = self.opened
        try:
            system.delete_file(path)
        except FileNotFoundError:
            return

    def remove_tree(self) -> None:
        """Remove the directory with all that is in it, if it is there."""
        system, path = self.opened
        try:
            system.delete_dir(path)
        except FileNotFoundError:
            return

    @property
    def opened(self) -> tuple[Any, str]:
        """The file system, and the path in it."""
        if not is_remote(self.url):
            return _local(), self.url
        root, rest = _parts(self.url)
        system, inside = _system(root)
        return system, f"{inside.rstrip('/')}/{rest}" if rest else inside


def _parts(url: str) -> tuple[str, str]:
    """The bucket or server of a URL, and the path in it."""
    found = re.match(r"([^:]+://[^/]*)/?(.*)", url)
    assert found is not None
    return found[1], found[2]


@lru_cache(maxsize=16)
def _system(root: str) -> tuple[Any, str]:
    system, path, _ = file_system(root)
    return system, path


@lru_cache(maxsize=1)
def _local() -> Any:
    from pyarrow import fs

    return fs.LocalFileSystem()
