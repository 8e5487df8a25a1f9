"""What is known of a stream from one run to the next: where it writes, its settings, and how far it has come.

The settings lie where the stream keeps what it needs to go on; how far it has come is part of the manifest,
so that both change as one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from kwsniff.analysis.trust import TrustTotals
from kwsniff.capture.source import CaptureTotals
from kwsniff.config import Config
from kwsniff.spark import manifest
from kwsniff.spark.lock import LockedError, locked
from kwsniff.spark.manifest import Manifest, OutputError
from kwsniff.spark.storage import Place
from kwsniff.spark.version import OWN, PARQUET, STREAM

KEPT = STREAM
SETTINGS = "settings.json"


@dataclass(frozen=True, slots=True)
class Settings:
    """What is the same in all runs of one stream."""

    config: dict[str, Any]
    shares: int
    window_s: float
    delay_s: float
    form: str = PARQUET


@dataclass(slots=True)
class StreamRecord:
    """What is known once a batch is finished."""

    batch: int = -1
    files: int = 0
    """Files of the list that were read."""
    ended: bool = False
    closed_until_ns: int = 0
    """Windows up to here are written."""
    late: int = 0
    """Calls so far that came after their window was closed."""
    capture: dict[str, int | None] = field(default_factory=lambda: asdict(CaptureTotals()))
    trust: dict[str, Any] = field(default_factory=lambda: asdict(TrustTotals()))
    rows: int = 0
    """Rows of this batch."""


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
        return cls(place, place.path / KEPT)


def last_record(out: Place) -> StreamRecord:
    """The record of the last finished batch of the stream in `out`; an empty one if there is none."""
    return of_manifest(manifest.read(out))


def of_manifest(known: Manifest | None) -> StreamRecord:
    """The record that a manifest holds."""
    return StreamRecord(**known.stream) if known and known.stream else StreamRecord()


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
        for name in ("config", "window_s", "delay_s", "form"):
            if getattr(known, name) != getattr(wanted, name):
                raise OutputError(f"{out}: is a stream with other settings ({_NAMED[name]})")
        return known
    _empty(out)
    if keep:
        Place(str(place)).replace(json.dumps(asdict(wanted)).encode())
    return wanted


def _empty(out: Place) -> None:
    """Raises OutputError if there is anything in the way of a new stream."""
    if out.path is not None and out.path.exists() and not out.path.is_dir():
        raise OutputError(f"{out}: is a file, not a directory")
    names = out.names()
    if manifest.NAME in names:
        raise OutputError(f"{out}: holds results of a run that followed nothing; name another directory")
    other = [name for name in names if name not in OWN and name != KEPT]
    if other:
        raise OutputError(f"{out}: holds other files ({other[0]}); name a directory of its own")


_NAMED = {"config": "of decoding", "window_s": "--window", "delay_s": "--late", "form": "--format"}


@contextmanager
def alone(out: Place) -> Iterator[None]:
    """Be the only process that writes to the stream in `out`. Raises OutputError if another one does."""
    try:
        with locked(out):
            yield
    except LockedError as error:
        raise OutputError(str(error)) from None


def plain(config: Config) -> dict[str, Any]:
    """Settings as JSON holds them."""
    said: dict[str, Any] = json.loads(json.dumps(asdict(config)))
    return said
