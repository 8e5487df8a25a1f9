"""How far reading has come: what a process that reads tells the one that shows it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from kwsniff.capture.error import CaptureError
from kwsniff.capture.source import CaptureTotals, segments
from kwsniff.config import Config
from kwsniff.net.columns import SegmentColumns
from kwsniff.segments import segment_columns

Progress = Callable[[int, int | None], None]
"""Is told the bytes that were read, and of how many; None where that is not known."""


class Stand(NamedTuple):
    """How far reading has come."""

    totals: CaptureTotals
    progress: tuple[int, int | None] | None = None
    error: CaptureError | None = None
    """Why it ended early."""

    def show(self, totals: CaptureTotals, progress: Progress | None) -> None:
        """Say so here. Raises the error."""
        totals.become(self.totals)
        if progress is not None and self.progress is not None:
            progress(*self.progress)
        if self.error is not None:
            raise self.error


def read(paths: Sequence[str], config: Config) -> Iterator[tuple[Stand, SegmentColumns | None]]:
    """The segments of the captures at `paths`; None at the end, also if an input became unreadable."""
    totals, error = CaptureTotals(), None
    now: list[tuple[int, int | None]] = []
    try:
        for batch in segments(paths, config, totals, lambda *said: now.append(said), prefetch=True):
            yield Stand(replace(totals), now[-1] if now else None), segment_columns(batch)
            now.clear()
            del batch
    except CaptureError as raised:
        error = raised
    yield Stand(totals, error=error), None
