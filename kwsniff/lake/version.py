"""From one version of a result to the next: files under names of their own, then one manifest.

Theory of operation. A run writes all its files below `data/VERSION/`, or into the directory of its table for
formats that want one, and works below `_staging/VERSION/`. Then the manifest changes, which is one rename or
one upload. What no manifest names is removed by the next run: files of a run that was killed, and those of
the version before the present one, so that who reads while results are replaced is not left without files.

On this machine `current` leads to the tables of the last manifest, for readers that want one path. It is a
link that changes as one, too, but after the manifest, which decides.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from kwsniff.lake import manifest
from kwsniff.lake.lock import CLAIMS
from kwsniff.lake.manifest import DATA, NAME, SUCCESS, Manifest, OutputError
from kwsniff.lake.place import Place
from kwsniff.lake.stored import TABLES

STAGING = "_staging"
CURRENT, VIEWS = "current", "_views"
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

    def clear(self, spared: Collection[str] = ()) -> None:
        """Remove what no manifest names, but for the files at the paths `spared`. Raises OSError."""
        known = {file.path for file in self.before.files} if self.before else set()
        statistics = f"{self.before.statistics}/" if self.before and self.before.statistics else None
        for part in (STAGING, DATA, *TABLES):
            for each in (self.out / part).files():
                path = each.place.relative_to(self.out)
                kept = path in known or path in spared or (statistics and path.startswith(statistics))
                if not kept and path.split("/")[1] not in LOGS:
                    each.place.remove()
        _prune(self.out)

    def publish(self, made: Manifest, *, whole: bool = True, shown: bool = True) -> None:
        """Make it the result; `whole`: nothing follows; `shown`: `current` leads to it. Raises OSError."""
        made.version, made.format = self.number, self.form
        made.write(self.out)
        if whole:
            (self.out / SUCCESS).replace(b"")
        if shown:
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
    """Let `current` lead to the tables of a manifest: for plain Parquet on this machine."""
    if out.path is None or made.format != PARQUET:
        return
    view = out.path / VIEWS / f"{made.version:06}-{uuid4().hex[:8]}"
    for table, files in made.tables.items():
        (view / table).mkdir(parents=True)
        for number, folder in enumerate(_folders(file.path for file in files)):
            (view / table / f"run={number}").symlink_to(_up(3) / folder)
    if made.statistics:
        view.mkdir(parents=True, exist_ok=True)
        (view / "statistics").symlink_to(_up(2) / made.statistics)
    link = out.path / f".{CURRENT}.{uuid4().hex}.part"
    link.symlink_to(view.relative_to(out.path))
    os.replace(link, out.path / CURRENT)
    for old in (out.path / VIEWS).iterdir():
        if old != view:
            shutil.rmtree(old, ignore_errors=True)


def _folders(paths: Iterable[str]) -> list[str]:
    """Directories of a table in `data/`, each once."""
    return list(dict.fromkeys("/".join(path.split("/")[:3]) for path in paths))


def _up(levels: int) -> Path:
    return Path(*[".."] * levels)


def _prune(out: Place) -> None:
    """Remove directories in which nothing is left."""
    if out.path is None:
        return
    for part in (STAGING, DATA):
        for folder, _, _ in os.walk(out.path / part, topdown=False):
            with suppress(OSError):  # something is in it
                os.rmdir(folder)
