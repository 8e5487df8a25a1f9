"""A stand-in for the pipeline: its "captures" are JSON Lines of event rows, so that tests of the command
line say exactly which events come, in which batches, and how reading ends.

Run as a program it is `kwsniff` on such files: ``python stand_in.py decode events.jsonl``.
A line ``{"do": ...}`` acts instead: ``batch`` ends a batch, ``unreadable`` raises CaptureError, ``fault``
raises an error nobody expects, ``interrupt`` is Ctrl-C, ``forever`` repeats the file's rows without end.
"""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

TIMES = (
    "time",
    "request_time",
    "request_end_time",
    "response_time",
    "response_end_time",
    "first_time",
    "last_time",
)


def batch_of(rows: Sequence[dict[str, Any]]) -> pa.RecordBatch:
    """An EVENTS batch; times may be ISO 8601 texts."""
    from kwsniff.rows.schema import EVENTS

    return pa.RecordBatch.from_pylist([_with_times(row) for row in rows], schema=EVENTS)


def _with_times(row: dict[str, Any]) -> dict[str, Any]:
    texts = {name: row[name] for name in TIMES if isinstance(row.get(name), str)}
    return row | {name: datetime.fromisoformat(text) for name, text in texts.items()}


def events(
    paths: Sequence[str],
    config: Any,
    *,
    totals: Any = None,
    progress: Callable[..., None] | None = None,
    jobs: int | None = 1,
    stop: Any = None,
) -> Iterator[pa.RecordBatch]:
    """The signature of `kwsniff.run.offline.events`."""
    for path in paths:
        yield from _read(path)
        if progress is not None:
            progress(1, 1)


def _read(path: str) -> Iterator[pa.RecordBatch]:
    from kwsniff.capture.error import CaptureError

    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text()
    except OSError as error:
        raise CaptureError(f"{path}: {error.strerror}") from None
    rows: list[dict[str, Any]] = []
    for line in text.splitlines():
        row = json.loads(line)
        if "do" not in row:
            rows.append(row)
            continue
        yield batch_of(rows)
        yield from _act(row["do"], path, rows)
        rows = []
    yield batch_of(rows)


def _act(what: str, path: str, rows: list[dict[str, Any]]) -> Iterator[pa.RecordBatch]:
    from kwsniff.capture.error import CaptureError

    if what == "unreadable":
        raise CaptureError(f"{path}: not a capture file")
    if what == "fault":
        raise ZeroDivisionError("nobody expected this")
    if what == "interrupt":
        raise KeyboardInterrupt
    while what == "forever":
        yield batch_of(rows)


def install() -> None:
    """Put the stand-in where the command line looks for the pipeline."""
    module = types.ModuleType("kwsniff.run.offline")
    module.events = events  # type: ignore[attr-defined]
    sys.modules["kwsniff.run.offline"] = module


if __name__ == "__main__":
    install()
    from kwsniff.cli import main

    main()
