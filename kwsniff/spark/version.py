"""From one version of a result to the next: files under names of their own, then one manifest.

Theory of operation. A run writes all its files below `data/VERSION/`, or into the directory of its table for
formats that want one, and works below `_staging/VERSION/`. Then the manifest changes, which is one rename or
one upload. What no manifest names is removed by the next run: files of a run that was killed, and those of
the version before the present one, so that who reads while results are replaced is not left without files.

On this machine `current` leads to the files of the last manifest, and to nothing else, for readers that want
one path. It is a link that changes as one, too, but after the manifest, which decides.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from kwsniff.spark import manifest
from kwsniff.spark.lock import CLAIMS
from kwsniff.spark.manifest import DATA, NAME, SUCCESS, Manifest, OutputError
from kwsniff.spark.resulttables import TABLES
from kwsniff.spark.storage import Place

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

    def __init__(self, out: Place, before: Manifest | None, form: str = PARQUET) -> None:
        """`before` is the manifest in `out`, if there is one."""
        self.out, self.before, self.form = out, before, form
        self.number = before.version + 1 if before else 1
        self._name = f"{self.number:06}-{uuid4().hex[:8]}"
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


def usable(out: Place) -> Manifest | None:
    """The manifest in `out`, after a look at what else lies there.

    Raises:
        OutputError: something else is in the way.
        OSError: the place cannot be read.
    """
    if out.path is not None and out.path.exists() and not out.path.is_dir():
        raise OutputError(f"{out}: is a file, not a directory")
    names = out.names()
    if STREAM in names:
        raise OutputError(f"{out}: belongs to a stream (--follow); name another directory")
    known = manifest.read(out)
    other = [name for name in names if name not in OWN and not name.endswith(".part")]
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
