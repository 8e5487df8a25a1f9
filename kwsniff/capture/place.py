"""Where captures and results lie: paths of this machine, and URLs of object storage and other file systems.

`s3://` (also `s3a://`), `gs://`, `hdfs://` and `abfs://` are read by what comes with pyarrow, any other
scheme by fsspec (extra `remote`). Credentials come from the environment, as usual with each of them; a URL
holds none, because the name of a capture is shown in every event.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple
from uuid import uuid4

from kwsniff.capture.error import CaptureError

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
_SAME = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfss": "abfs"}
_PYARROW = frozenset(("s3", "gs", "hdfs", "viewfs", "abfs"))
READ_AHEAD = 16 << 20
"""Bytes asked for at a time: each request to object storage costs as much as reading a megabyte."""


def is_remote(path: str) -> bool:
    """Whether `path` is a URL of something else than this machine's files."""
    match = _URL.match(path)
    return match is not None and match[1].lower() != "file"


def local(path: str) -> str:
    """The path that a `file:` URL stands for; any other path as it is."""
    match = re.match(r"file:(?://(?:localhost)?(?=/))?(/.*)", path, re.IGNORECASE)
    return match[1] if match else path


def find(url: str) -> list[FolderEntry]:
    """The file at `url`, the files directly in it if it is a directory, or those that fit if it is a pattern.

    Raises:
        CaptureError: there is none, or it cannot be reached.
    """
    from pyarrow import fs

    with _plain_errors(url):
        system, path, prefix = file_system(url)
        wild = re.search(r"[*?\[]", path)
        if wild:
            above = path[: wild.start()].rpartition("/")[0]
            selector = fs.FileSelector(above, recursive="/" in path[wild.start() :])
            files = [each for each in system.get_file_info(selector) if _fits(each.path, path)]
        else:
            about = system.get_file_info(path)
            files = [about] if about.is_file else system.get_file_info(fs.FileSelector(path))
        found = [
            FolderEntry(Place(prefix + each.path), each.size, each.mtime_ns or 0)
            for each in sorted(files, key=lambda each: each.path)
            if each.is_file
        ]
    if not found:
        raise CaptureError(f"{url}: no such files")
    return found


def is_directory(url: str) -> bool:
    """Whether `url` names a directory or a pattern, so that what it holds may be other things than captures.

    Raises:
        CaptureError: it cannot be reached.
    """
    from pyarrow import fs

    with _plain_errors(url):
        system, path, _ = file_system(url)
        return bool(system.get_file_info(path).type == fs.FileType.Directory)


def open_remote(url: str) -> tuple[BinaryIO, int | None]:
    """The bytes at `url`, from front to back, and how many. Raises CaptureError."""
    with _plain_errors(url):
        system, path, _ = file_system(url)
        stream = system.open_input_stream(path, compression=None, buffer_size=READ_AHEAD)
        return stream, system.get_file_info(path).size


def size_of(path: str) -> int:
    """Bytes of the file at a path or URL. Raises CaptureError."""
    if is_remote(path):
        with _plain_errors(path):
            system, inside, _ = file_system(path)
            return int(system.get_file_info(inside).size or 0)
    try:
        return os.path.getsize(local(path))
    except OSError as error:
        raise CaptureError(f"{path}: {error.strerror or error}") from error


def opened(path: str, start: int = 0, end: int | None = None) -> BinaryIO:
    """The bytes of the file at a path or URL from `start` on; `end` says how far they will be wanted. Raises
    CaptureError."""
    if not is_remote(path):
        try:
            file = open(local(path), "rb", buffering=0)  # noqa: SIM115
            file.seek(start)
        except OSError as error:
            raise CaptureError(f"{path}: {error.strerror or error}") from error
        return file
    import pyarrow as pa

    with _plain_errors(path):
        system, inside, _ = file_system(path)
        whole = system.open_input_file(inside)
        length = (whole.size() if end is None else end) - start
        return pa.BufferedInputStream(whole.get_stream(start, length), READ_AHEAD)  # type: ignore[no-any-return]


def scattered(path: str, places: Iterable[int], into: Iterable[memoryview]) -> bool:
    """Fill each of the views with the bytes of a file of this machine from its place on; False if the file
    ends before. Raises CaptureError."""
    with _plain_errors(path), opened(path) as file:
        number, read = file.fileno(), os.preadv
        for place, view in zip(places, into, strict=True):
            got = read(number, [view], place)
            while got < len(view):
                more = read(number, [view[got:]], place + got)
                if not more:
                    return False
                got += more
    return True


def file_system(url: str) -> tuple[Any, str, str]:
    """File system, path in it, and what stands before such a path in a URL."""
    from pyarrow import fs

    scheme, _, rest = url.partition(":")
    scheme = scheme.lower()
    same = _SAME.get(scheme, scheme)
    if same in _PYARROW:
        system, path = fs.FileSystem.from_uri(f"{same}:{rest}")
    else:
        try:
            from fsspec.core import url_to_fs
        except ImportError:
            more = " aiohttp requests" if scheme in ("http", "https") else ""
            raise CaptureError(f"{url}: needs fsspec: pip install 'kwsniff[remote]'{more}") from None
        found, path = url_to_fs(url)
        system = fs.PyFileSystem(fs.FSSpecHandler(found))
    prefix = url[: -len(path)] if url.endswith(path) else f"{scheme}://"
    return system, path, prefix


def _fits(path: str, pattern: str) -> bool:
    """As a shell matches: a wildcard does not go over a slash, but for `**`."""
    if "**" in pattern:
        return fnmatchcase(path, pattern.replace("**/", "*"))
    parts, patterns = path.split("/"), pattern.split("/")
    return len(parts) == len(patterns) and all(map(fnmatchcase, parts, patterns))


def _missing(error: ImportError) -> str:
    """What to install. fsspec brings none of the libraries that its file systems need, and names them."""
    said = " ".join(str(error).split())
    wanted = re.findall(r'"([\w-]+)"', said) or ([error.name] if error.name else [])
    if not wanted:
        return said
    return f"needs {' and '.join(wanted)}: pip install 'kwsniff[remote]' {' '.join(wanted)}"


@contextmanager
def _plain_errors(url: str) -> Iterator[None]:
    try:
        yield
    except CaptureError:
        raise
    except ImportError as error:
        raise CaptureError(f"{url}: {_missing(error)}") from error
    except FileNotFoundError as error:  # said with no more than the path, by some
        raise CaptureError(f"{url}: no such file") from error
    except Exception as error:  # every file system has its own
        said = " ".join(str(error).split()) or type(error).__name__
        raise CaptureError(f"{url}: {said}") from error


# A place that is written to, on any file system: a directory or file of this machine, or a URL.
#
# What is written gets a name that nothing else has, and is believed only once a manifest names it: object
# storage renames nothing, and a task that was given up may go on writing. `replace` is the exception: the
# bytes of one small file change at once.


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
            if each.is_file:
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
        system, path = self.opened
        found = system.get_file_info(path)
        if not found.is_file:
            return None
        return FolderEntry(self, found.size or 0, found.mtime_ns or 0)

    def remove(self) -> None:
        """Remove the file, if it is there."""
        system, path = self.opened
        with suppress(FileNotFoundError):
            system.delete_file(path)

    def remove_tree(self) -> None:
        """Remove the directory with all that is in it, if it is there."""
        system, path = self.opened
        with suppress(FileNotFoundError):
            system.delete_dir(path)

    @property
    def opened(self) -> tuple[Any, str]:
        """The file system, and the path in it."""
        if not is_remote(self.url):
            return _this_machine(), self.url
        found = re.match(r"([^:]+://[^/]*)/?(.*)", self.url)
        assert found is not None
        root, rest = found.groups()  # the bucket or server, and the path in it
        system, inside = _system(root)
        return system, f"{inside.rstrip('/')}/{rest}" if rest else inside


@lru_cache(maxsize=16)
def _system(root: str) -> tuple[Any, str]:
    return file_system(root)[:2]


@lru_cache(maxsize=1)
def _this_machine() -> Any:
    from pyarrow import fs

    return fs.LocalFileSystem()


# What is in a directory of captures: those that can be read, and those that should be but cannot.
#
# A file counts as meant for a capture if it begins as one, or has the name of one. Any other is passed over
# in silence: directories of captures hold notes and lists, too. What the system refuses to show may be
# anything, and is told. A file that several names lead to is read once.

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
