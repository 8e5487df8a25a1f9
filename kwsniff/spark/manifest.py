"""The record of what a result directory was made from: `manifest.json`, written last but for `_SUCCESS`.

A file is known by its absolute path, size and time of modification, so one that was replaced counts as new.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from kwsniff.capture.directory import Unread
from kwsniff.capture.place import is_remote
from kwsniff.capture.source import resolve

NAME = "manifest.json"
SUCCESS = "_SUCCESS"


class OutputError(Exception):
    """The output directory cannot be used as asked; the text is one line."""


@dataclass(frozen=True, slots=True)
class Input:
    """One capture file that was read."""

    path: str
    bytes: int
    modified_ns: int
    run: int
    """Number of the run that read it: 0, and one more for each `--append`."""


@dataclass(slots=True)
class Manifest:
    """What a result directory holds."""

    kwsniff: str
    spark: str
    config: dict[str, Any]
    runs: int
    inputs: list[Input]
    events: dict[str, int] = field(default_factory=dict)
    """Rows by kind: call, anomaly, connection."""
    capture: dict[str, int | None] = field(default_factory=dict)
    """Packets and bytes read and what was wrong with them, see `kwsniff.net.totals.CaptureTotals`."""
    splits: dict[str, Any] = field(default_factory=dict)
    """What the latest run read in splits came to, see `kwsniff.spark.splits.Account`; empty if it was not."""
    percentile_error: float = 0.0
    """How far percentiles in the statistics may be from the true ones, as a part of them."""
    trust: str = ""
    """The paragraph on how far the figures can be trusted."""

    def write(self, directory: Path) -> None:
        """Write the manifest, then `_SUCCESS`. Raises OSError."""
        beside = directory / f".{NAME}.part"
        beside.write_text(json.dumps(asdict(self), indent=2) + "\n")
        beside.replace(directory / NAME)
        (directory / SUCCESS).touch()


def read(directory: Path) -> Manifest | None:
    """The manifest of a complete result, None where there is none.

    Raises:
        OutputError: there is a file of that name that is no manifest.
    """
    if not (directory / SUCCESS).exists():
        return None
    try:
        known = json.loads((directory / NAME).read_text())
        return Manifest(**{**known, "inputs": [Input(**each) for each in known["inputs"]]})
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError) as error:
        raise OutputError(f"{directory / NAME}: is no manifest of kwsniff ({error})") from None


def inputs(paths: Iterable[str], run: int, unread: list[Unread] | None = None) -> list[Input]:
    """The files at `paths` in the order they are read. `unread` takes those in directories that cannot be.

    Raises:
        kwsniff.capture.error.CaptureError: one is missing or no capture.
        OutputError: one is a pipe, which cannot be read by several tasks.
    """
    found = []
    for file in resolve(paths, unread):
        if file.size is None:
            raise OutputError(f"{file.path}: a pipe can be read by one process only; use kwsniff decode")
        path = file.path if is_remote(file.path) else os.path.abspath(file.path)
        found.append(Input(path, file.size, file.modified_ns, run))
    return found
