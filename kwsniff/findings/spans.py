"""Stretches of time by key: what overlaps or nearly touches is one. Bounded, and in any order of taking and
merging the same."""

from __future__ import annotations

from collections.abc import Iterable

from kwsniff.findings.rows import UNKNOWN

Span = tuple[int, int]
MAX_KEYS = 1_000
MAX_SPANS = 500
"""Of one key; with more, the ones that lie closest together become one."""


class Spans:
    """Spans in microseconds by key."""

    def __init__(self, pause_us: float) -> None:
        self.pause_us = pause_us
        self.of: dict[str, list[Span]] = {}

    def add(self, keys: Iterable[str], spans: Iterable[Span]) -> None:
        """Take spans, each with its key."""
        fresh: dict[str, list[Span]] = {}
        for key, span in zip(keys, spans, strict=True):
            if span[0] != UNKNOWN:
                fresh.setdefault(key, []).append(span)
        for key, found in fresh.items():
            self._put(key, found)

    def merge(self, other: Spans) -> None:
        """Take those of another one."""
        for key, found in other.of.items():
            self._put(key, found)

    def _put(self, key: str, found: list[Span]) -> None:
        if key in self.of or len(self.of) < MAX_KEYS:
            joined = _joined([*self.of.get(key, []), *found], self.pause_us)
            pause = self.pause_us
            while len(joined) > MAX_SPANS:
                pause *= 2
                joined = _joined(joined, pause)
            self.of[key] = joined


def _joined(spans: list[Span], pause_us: float) -> list[Span]:
    found: list[Span] = []
    for first, last in sorted(spans):
        if found and first - found[-1][1] <= pause_us:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return found
