"""What time an input covers, and how much of that was asked for: what rates divide by.

Of each capture it is from the first to the last byte of its calls and connections, also of those that were
not chosen by a condition; captures that overlap count once, the time between captures not at all. Where only
a window of time was asked for it is the part of all that within the window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from kwsniff.count.coded import Rows
from kwsniff.count.eventrows import EventBatch
from kwsniff.count.keyed import NEVER

Spans = list[tuple[int, int]]
"""First and last microsecond of each."""

FIRST = ("request_time", "response_time", "first_time")
LAST = ("response_end_time", "response_time", "request_end_time", "request_time", "last_time")
"""When a call or connection was first and last seen: the first of these that is known."""


class Coverage:
    """Takes EVENTS, merges with others."""

    def __init__(self, within: Callable[[int, int], Spans] | None = None) -> None:
        """`within`: the parts of a span of time that were asked for."""
        self._within = within
        self._spans: dict[str | None, tuple[int, int]] = {}

    def take(self, batch: EventBatch) -> None:
        """Widen the span of time that each capture covers."""
        self._take(batch.calls)
        self._take(batch.others)

    def _take(self, rows: Rows) -> None:
        if not len(rows):
            return
        captures, codes = rows.coded("capture")
        begin, end = np.full(len(captures), NEVER), np.full(len(captures), -NEVER)
        np.minimum.at(begin, codes, rows.first_known(*FIRST, null=NEVER))
        np.maximum.at(end, codes, rows.first_known(*LAST, null=-NEVER))
        for capture, *span in zip(captures, begin.tolist(), end.tolist(), strict=True):
            if span[0] != NEVER and span[1] != -NEVER:
                self._add(capture, *span)

    def merge(self, other: Coverage) -> None:
        """Take what another one took."""
        for capture, span in other._spans.items():
            self._add(capture, *span)

    def _add(self, capture: Any, first: int, last: int) -> None:
        begin, end = self._spans.get(capture, (first, last))
        self._spans[capture] = min(begin, first), max(end, last)

    @property
    def spans(self) -> Spans:
        """What was asked for of each capture."""
        spans: Iterable[tuple[int, int]] = self._spans.values()
        return (
            list(spans) if self._within is None else [part for span in spans for part in self._within(*span)]
        )

    @property
    def seconds(self) -> float:
        """Seconds in at least one of the spans."""
        covered, end = 0, -NEVER
        for first, last in sorted(self.spans):
            covered += max(last - max(first, end), 0)
            end = max(end, last)
        return covered / 1e6
