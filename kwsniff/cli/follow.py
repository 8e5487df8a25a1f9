"""`kwsniff decode --follow`: events of files that are still being written."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from threading import Timer
from typing import TYPE_CHECKING

import pyarrow as pa

from kwsniff.capture.error import CaptureError
from kwsniff.capture.follow import followed
from kwsniff.capture.source import segments
from kwsniff.capture.stop import Stop
from kwsniff.cli.problem import CommandError, said
from kwsniff.cli.source import from_pipe, patient
from kwsniff.config import Config
from kwsniff.net.totals import CaptureTotals
from kwsniff.pipeline import analyze

if TYPE_CHECKING:
    from kwsniff.cli.decode import Request


def checked(request: Request, form: str) -> Request:
    """The request as it can be followed.

    Raises:
        CommandError: it cannot.
    """
    if form == "parquet":
        raise CommandError("--follow writes lines: -f text, jsonl or csv, not parquet")
    if request.jobs is not None and request.jobs > 1:
        raise CommandError("-j does not go with --follow: files are followed by one process")
    return replace(request, config=patient(request.config))


def following(
    paths: Sequence[str], config: Config, totals: CaptureTotals, stop: Stop, duration: float | None
) -> Generator[pa.RecordBatch]:
    """EVENTS batches until `stop` is set, or `duration` seconds have passed.

    Raises:
        CaptureError: a path cannot be followed.
    """
    timer = Timer(duration or 0, stop.set)
    timer.daemon = True
    source = (
        _piped(paths, config, totals, stop)
        if from_pipe(paths)
        else followed(paths, config, totals, stop, said)
    )
    if duration is not None:
        timer.start()
    try:
        yield from analyze(source, config)
    finally:
        timer.cancel()


def _piped(
    paths: Sequence[str], config: Config, totals: CaptureTotals, stop: Stop
) -> Iterator[pa.RecordBatch]:
    """What comes through a pipe is followed in any case."""
    if len(paths) > 1:
        raise CaptureError("--follow takes one pipe, or files and directories, not both")
    return segments(paths, config, totals, stop=stop)
