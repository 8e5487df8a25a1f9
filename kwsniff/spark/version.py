"""From one version of a result to the next: who may write, files under names of their own, then one manifest.

Theory of operation. A run writes all its files below `data/VERSION/`, or into the directory of its table for
formats that want one, and works below `_staging/VERSION/`. Then the manifest changes, which is one rename or
one upload. What no manifest names is removed by the next run: files of a run that was killed, and those of
the version before the present one, so that who reads while results are replaced is not left without files.

On this machine `current` leads to the files of the last manifest, and to nothing else, for readers that want
one path. It is a link that changes as one, too, but after the manifest, which decides.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import socket
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

from kwsniff.capture.place import FolderEntry, Place
from kwsniff.config import Config
from kwsniff.spark.results import DATA, NAME, SUCCESS, Manifest, OutputError, last_record, read
from kwsniff.spark.resulttables import TABLES

CLAIMS = "_lock"
STAGING = "_staging"
CURRENT, VIEWS = "current", "_views"
VIEWED = 60.0
"""Seconds for which what `current` led to before stays, for a query that is under way."""
CATALOG = "_catalog"
"""Of Iceberg tables."""
STREAM = ".stream"
PARQUET, DELTA, ICEBERG = "parquet", "delta", "iceberg"
OWN = {DATA, STAGING, CURRENT, VIEWS, CATALOG, CLAIMS, NAME, SUCCESS, *TABLES}
LOGS = ("_delta_log", "metadata")
"""Directories in that of a table that belong to its format."""


class Version:
    """The next version of the result in `out`."""

    def __init__(
        self, out: Place, before: Manifest | None, form: str = PARQUET, *, stream: bool = False
    ) -> None:
        """`before` is the manifest in `out`, if there is one. Versions of a `stream` share a directory."""
        self.out, self.before, self.form = out, before, form
        self.number = before.version + 1 if before else 1
        self._name = "stream" if stream else f"{self.number:06}-{uuid4().hex[:8]}"
        self.staging = out / STAGING / self._name
        self.statistics = f"{DATA}/{self._name}/statistics"

    def below(self, table: str) -> str:
        """The directory in `out` for new files of a table."""
        return f"{DATA}/{self._name}/{table}" if self.form == PARQUET else table

    def clear(self, made: Manifest | None = None, spared: Collection[str] = ()) -> None:
        """Remove what neither the manifest before nor `made`, which is to follow it, names, but for the files
        at the paths `spared`. Raises OSError."""
        named = [each for each in (self.before, made) if each]
        known = {file.path for each in named for file in each.files} | set(spared)
        statistics = tuple(f"{each.statistics}/" for each in named if each.statistics)
        for part in (STAGING, DATA, *TABLES):
            for each in (self.out / part).files():
                path = each.place.relative_to(self.out)
                kept = path in known or path.startswith(statistics)
                if not kept and path.split("/")[1] not in LOGS:
                    each.place.remove()
        _forget_views(self.out)
        _prune(self.out)

    def publish(self, made: Manifest, *, whole: bool = True) -> None:
        """Make it the result; `whole`: nothing follows. Raises OSError."""
        made.version, made.format = self.number, self.form
        made.write(self.out)
        if whole:
            (self.out / SUCCESS).replace(b"")
        show(self.out, made)

    def discard(self) -> None:
        """Remove what the run worked with."""
        with suppress(OSError):
            self.staging.remove_tree()
        if self.out.path is not None:
            with suppress(OSError):
                (self.out.path / STAGING).rmdir()


def usable(out: Place, *, stream: bool = False) -> Manifest | None:
    """The manifest in `out`, after a look at what else lies there; `stream`: for one that is to go on there.

    Raises:
        OutputError: something else is in the way.
        OSError: the place cannot be read.
    """
    if out.path is not None and out.path.exists() and not out.path.is_dir():
        raise OutputError(f"{out}: is a file, not a directory")
    names = out.names()
    if STREAM in names and not stream:
        raise OutputError(f"{out}: belongs to a stream (--follow); name another directory")
    known = read(out)
    other = [name for name in names if name not in OWN and name != STREAM and not name.endswith(".part")]
    if other and known is None:
        raise OutputError(f"{out}: holds other files ({other[0]}); name a directory of its own")
    return known


def show(out: Place, made: Manifest) -> None:
    """Let `current` lead to the files of a manifest: for plain Parquet on this machine."""
    if out.path is None or made.format != PARQUET:
        return
    view = out.path / VIEWS / f"{made.version:06}-{uuid4().hex[:8]}"
    runs: dict[str, int] = {}
    folders: set[str] = set()
    for table, files in made.tables.items():
        (view / table).mkdir(parents=True)
        for file in files:
            # Each file by itself: beside it may lie what a lost attempt at a task left.
            _, run, _, inside = file.path.split("/", 3)
            link = f"{view}/{table}/run={runs.setdefault(run, len(runs))}/{inside}"
            folder = os.path.dirname(link)
            if folder not in folders:
                os.makedirs(folder)
                folders.add(folder)
            _link(out.path / file.path, link)
    if made.statistics:
        (view / "statistics").symlink_to(Path("..", "..", made.statistics))
    changed = out.path / f".{CURRENT}.{uuid4().hex}.part"
    changed.symlink_to(view.relative_to(out.path))
    with suppress(FileNotFoundError):
        os.utime(out.path / CURRENT)  # the view that it leads to: till now
    os.replace(changed, out.path / CURRENT)
    _forget_views(out)


def _link(file: Path, link: str) -> None:
    """A second name, which takes a fifth of the time of a link by name and stays good when the first is
    removed; where the file system has no such, a link by name."""
    try:
        os.link(file, link)
    except OSError:
        os.symlink(os.path.relpath(file, os.path.dirname(link)), link)


def _forget_views(out: Place) -> None:
    """Remove what `current` led to until `VIEWED` seconds ago."""
    if out.path is None or not (out.path / VIEWS).is_dir():
        return
    present = (out.path / CURRENT).resolve().name
    for view in (out.path / VIEWS).iterdir():
        if view.name != present and view.stat().st_mtime < time.time() - VIEWED:
            shutil.rmtree(view, ignore_errors=True)


def _prune(out: Place) -> None:
    """Remove directories in which nothing is left."""
    if out.path is None:
        return
    for part in (STAGING, DATA):
        for folder, _, _ in os.walk(out.path / part, topdown=False):
            with suppress(OSError):  # something is in it
                os.rmdir(folder)


# A stream: where it writes, and what is the same in all of its runs. The settings lie where it keeps what it
# needs to go on.

SETTINGS = "settings.json"
_NAMED = {"config": "of decoding", "window_s": "--window", "delay_s": "--late", "form": "--format"}


@dataclass(frozen=True, slots=True)
class Settings:
    """What is the same in all runs of one stream."""

    config: dict[str, Any]
    shares: int
    window_s: float
    delay_s: float
    form: str = PARQUET


@dataclass(frozen=True, slots=True)
class Where:
    """Where a stream writes, and where it keeps what it needs to go on."""

    out: Place
    own: Path

    @classmethod
    def of(cls, out: Any, state: str | None = None) -> Where:
        """`state` defaults to a directory in `out`, if that is of this machine. Raises OutputError."""
        place = Place.of(out)
        if state is not None:
            return cls(place, Path(state).absolute())
        if place.path is None:
            raise OutputError(f"{out}: a stream needs --state DIR for what it keeps between batches")
        return cls(place, place.path / STREAM)


def settled(where: Where, wanted: Settings, *, keep: bool = True) -> Settings:
    """The settings of the stream in a place: those it was begun with, else `wanted`, which with `keep` are
    written there.

    Raises:
        OutputError: the directory holds something else, the stream was ended, or was begun otherwise.
        OSError: the directory cannot be written.
    """
    place, out = where.own / SETTINGS, where.out
    if last_record(out).ended:
        raise OutputError(f"{out}: was ended; name another directory")
    if place.exists():
        known = Settings(**json.loads(place.read_text()))
        for name, option in _NAMED.items():
            if getattr(known, name) != getattr(wanted, name):
                raise OutputError(f"{out}: is a stream with other settings ({option})")
        return known
    if usable(out, stream=True) is not None:
        raise OutputError(f"{out}: holds results of a run that followed nothing; name another directory")
    if keep:
        Place(str(place)).replace(json.dumps(asdict(wanted)).encode())
    return wanted


def plain(config: Config) -> dict[str, Any]:
    """Settings as JSON holds them. A key log is an input rather than a setting: runs may have others."""
    said: dict[str, Any] = json.loads(json.dumps(asdict(config)))
    del said["keylog"]
    return said


# One run at a time: a claim beside the results, written by each run that wants to write to them.
#
# Theory of operation. Object storage has no locks, but what was written is listed at once. A run writes a
# claim under a name of its own and then lists all claims: if it sees no other, it goes on; if it sees one,
# it takes its own back and gives up. Of two runs at least the later one sees the other, so never do both go
# on; that both give up is possible, so each tries a few times, after a pause of random length.
#
# A claim is *stale*, and removed, if its process is gone from the machine that we share with it, or if it
# has not been renewed for `STALE` seconds, by the clock of the file system. A run that finds its own claim
# gone was taken for dead, and must not publish.

RENEW = 15.0
"""Seconds between two renewals of a claim."""
STALE = 120.0
"""Seconds without one after which a claim counts for nothing."""
ATTEMPTS = 3
PAUSE = 0.5
READS = 5
"""Times that a claim is read which is there and can't be read."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Who claims a place."""

    machine: str
    """The same for processes that see each other's ids."""
    host: str
    pid: int
    began: str
    """When the process began, as its kernel counts, so that its id may be used again."""
    since: str

    @classmethod
    def own(cls) -> Claim:
        """That of this process."""
        since = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"
        return cls(_machine(), socket.gethostname(), os.getpid(), _began(os.getpid()) or "", since)

    def alive(self) -> bool | None:
        """Whether its process is still there; None if that can't be seen from here."""
        if self.machine != _machine():
            return None
        return _began(self.pid) == self.began

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, since {self.since}"


class Lock:
    """The claim of this run on `place`."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._claims = place / CLAIMS
        self._own = self._claims / f"{uuid4().hex}.json"
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._renew, daemon=True)
        self._data = json.dumps(asdict(Claim.own())).encode()

    def take(self) -> None:
        """Claim the place. Raises OutputError, OSError."""
        for attempt in range(ATTEMPTS):
            self._own.replace(self._data)
            other = self._other()
            if other is None:
                self._thread.start()
                return
            self._own.remove()
            if attempt + 1 < ATTEMPTS:
                time.sleep(PAUSE * (1 + random.random()))
        raise OutputError(f"{self._place}: another run writes to it ({other})")

    def held(self) -> None:
        """Make sure that nobody took this run for dead. Raises OutputError, OSError."""
        if self._own.about() is None:
            raise OutputError(f"{self._place}: another run took over, for this one gave no sign of life")

    def release(self) -> None:
        """Take the claim back."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()
        with suppress(OSError):
            self._own.remove()

    def _other(self) -> Claim | None:
        """A claim of somebody else that counts; others are removed."""
        found = list(self._claims.files())
        now = next((each.modified_ns for each in found if each.place == self._own), 0)
        for each in found:
            if each.place == self._own or not each.place.name.endswith(".json"):
                continue
            try:
                claim = _read(each)
            except FileNotFoundError:
                continue  # taken back; what has its name by now is a claim made anew
            if claim is not None and not _stale(each, claim, now):
                return claim
            each.place.remove()
        return None

    def _renew(self) -> None:
        while not self._over.wait(RENEW):
            with suppress(OSError):
                if self._own.about() is not None:
                    self._own.replace(self._data)


@contextmanager
def locked(place: Place) -> Iterator[Lock]:
    """Be the only run that writes to `place`. Raises OutputError, OSError."""
    lock = Lock(place)
    lock.take()
    try:
        yield lock
    finally:
        lock.release()


def _read(entry: FolderEntry) -> Claim | None:
    """None if it is no claim. Raises FileNotFoundError if it was taken back meanwhile, OSError if it can't be
    read time and again."""
    for left in reversed(range(READS)):
        try:
            return Claim(**json.loads(entry.place.read()))
        except (ValueError, TypeError):
            break
        except FileNotFoundError:
            raise
        except OSError as error:
            # Taken back while it was read; and as claims are made again, it may be there once more.
            if entry.place.about() is None:
                raise FileNotFoundError(str(entry.place)) from error
            if not left:
                raise
    return None


def _stale(entry: FolderEntry, claim: Claim, now_ns: int) -> bool:
    if (alive := claim.alive()) is not None:
        return not alive
    return bool(entry.modified_ns and now_ns) and now_ns - entry.modified_ns > STALE * 1e9


def _machine() -> str:
    """Processes with the same value see the same process ids."""
    parts = [socket.gethostname()]
    with suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
    with suppress(OSError):
        parts.append(os.readlink("/proc/self/ns/pid"))
    return " ".join(parts)


def _began(pid: int) -> str | None:
    """When a process began; empty where the system doesn't tell, None if there is no such process."""
    try:
        # The second field is a name in parentheses, which may hold anything.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        if os.path.isdir("/proc/self"):
            return None
    else:
        return None if fields[0] == "Z" else fields[19]
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except OSError:  # it is somebody else's
        pass
    return ""
