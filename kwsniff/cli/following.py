"""`kwsniff decode --follow`: events of files that are still being written."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from threading import Timer

import pyarrow as pa

from kwsniff.capture.error import CaptureError
from kwsniff.capture.following import followed
from kwsniff.capture.source import segments
from kwsniff.capture.stop import Stop
from kwsniff.cli.arguments import from_pipe
from kwsniff.cli.problem import said
from kwsniff.config import Config
from kwsniff.net.totals import CaptureTotals
from kwsniff.pipeline import analyze


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
