"""Capture files in, events out, in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from kwsniff.capture.source import CaptureTotals, segments
from kwsniff.config import Config
from kwsniff.pipeline import analyze


def events(
    paths: Sequence[str],
    config: Config,
    *,
    totals: CaptureTotals | None = None,
    progress: Callable[[int, int | None], None] | None = None,
) -> Iterator[pa.RecordBatch]:
    """EVENTS batches of capture files, directories of them, or `-` for standard input.

    `totals` is filled with what the files held, `progress` is told bytes read and, if known, bytes in all.

    Raises:
        CaptureError: with one line that says which input cannot be read, and why.
    """
    totals = CaptureTotals() if totals is None else totals
    return analyze(segments(paths, config, totals, progress=progress), config)
