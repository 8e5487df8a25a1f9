"""Stretches of time by key: what overlaps or nearly touches is one. Bounded, and in any order of taking and
merging the same."""

from __future__ import annotations

import numpy as np

from kwsniff.findings.eventrows import UNKNOWN, Coded, Ints
from kwsniff.findings.words import name

Span = tuple[int, int]
MAX_KEYS = 1_000
MAX_SPANS = 500
"""Of one key; with more, the ones that lie closest together become one."""


class Spans:
    """Spans in microseconds by key."""

    def __init__(self, pause_us: float) -> None:
        self.pause_us = pause_us
        self.of: dict[str, list[Span]] = {}

    def add(self, keys: Coded, first: Ints, last: Ints) -> None:
        """Take spans, each with its key; those whose beginning is not known are left out."""
        known = np.flatnonzero(first != UNKNOWN)
        order = known[np.lexsort((first[known], keys.codes[known]))]
        if not len(order):
            return
        key, begin = keys.codes[order], first[order]
        # The greatest end so far of each key: keys lie so far apart that one never reaches into the next.
        apart = int(last[order].max() - begin.min()) + 1
        shift = (key - key[0]) * apart
        end = np.maximum.accumulate(np.maximum(last[order], begin) + shift) - shift
        new = np.ones(len(order), np.bool_)
        new[1:] = (np.diff(key) != 0) | (begin[1:] - end[:-1] > self.pause_us)
        starts = np.flatnonzero(new)
        ends = end[np.append(starts[1:], len(order)) - 1]
        fresh: dict[int, list[Span]] = {}
        for code, *span in zip(key[starts].tolist(), begin[starts].tolist(), ends.tolist(), strict=True):
            fresh.setdefault(code, []).append((span[0], span[1]))
        for code, found in fresh.items():
            self._put(name(keys.values[code]), found)

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
