"""Stretches of time by key: what overlaps or nearly touches is one. Bounded, and in any order of taking and
merging the same; so are the packets at their ends, if the rows are given whose time they are."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from kwsniff.count.codes import Coded
from kwsniff.count.eventrows import UNKNOWN, EventBatch, EventRows
from kwsniff.count.keyed import NEVER
from kwsniff.count.tally import Packet, packets
from kwsniff.output.units import name
from kwsniff.rows.columns import Ints

Span = tuple[int, int]
MAX_KEYS = 1_000
MAX_SPANS = 500
"""Of one key; with more, the ones that lie closest together become one."""


class Spans:
    """Spans in microseconds by key."""

    def __init__(self, pause_us: float) -> None:
        self.pause_us = pause_us
        self.of: dict[str, list[Span]] = {}
        self._packets: dict[str, dict[int, Packet]] = {}
        """By key, those at the beginnings and ends."""

    def packet(self, key: str, time: int) -> Packet | None:
        """The packet in which a span of a key begins or ends, if it is known."""
        return self._packets.get(key, {}).get(time)

    def add(self, keys: Coded, first: Ints, last: Ints, rows: tuple[EventRows, Ints] | None = None) -> None:
        """Take spans, each with its key; those whose beginning is not known are left out. `rows`: where each
        comes from, and its place there."""
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
        shown = {}
        if rows is not None:
            of = np.cumsum(new) - 1
            edges = ((begin == begin[starts][of], first), (last[order] == ends[of], last))
            shown = _shown([(key[at], order[at], times[order[at]]) for at, times in edges], rows)
        for code, found in fresh.items():
            self._put(name(keys.values[code]), found, shown.get(code, {}))

    def merge(self, other: Spans) -> None:
        """Take those of another one."""
        for key, found in other.of.items():
            self._put(key, found, other._packets.get(key, {}))

    def _put(self, key: str, found: list[Span], shown: dict[int, Packet]) -> None:
        if key in self.of or len(self.of) < MAX_KEYS:
            joined = _joined([*self.of.get(key, []), *found], self.pause_us)
            pause = self.pause_us
            while len(joined) > MAX_SPANS:
                pause *= 2
                joined = _joined(joined, pause)
            self.of[key] = joined
            ends = {time for span in joined for time in span}
            known = self._packets.get(key, {})
            self._packets[key] = _by_time(
                [each for some in (known, shown) for time, each in some.items() if time in ends]
            )


def _shown(ends: list[tuple[Ints, Ints, Ints]], rows: tuple[EventRows, Ints]) -> dict[int, dict[int, Packet]]:
    """The packets at the beginnings and the ends of spans by code of the key, from codes, rows and times."""
    found: dict[int, list[Packet]] = {}
    for codes, places, times in ends:
        given = packets(rows[0], rows[0].rank[rows[1][places]])
        for code, packet, time in zip(codes.tolist(), given, times.tolist(), strict=True):
            found.setdefault(code, []).append(packet._replace(time=time))
    return {code: _by_time(some) for code, some in found.items()}


def _by_time(found: list[Packet]) -> dict[int, Packet]:
    """By their times; of several the first, in any order of them the same one."""
    found = sorted(
        found, key=lambda each: (each.number == UNKNOWN, each.capture or "", each.number), reverse=True
    )
    return {each.time: each for each in found}


def _joined(spans: list[Span], pause_us: float) -> list[Span]:
    found: list[Span] = []
    for first, last in sorted(spans):
        if found and first - found[-1][1] <= pause_us:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return found


# What time an input covers, and how much of that was asked for: what rates divide by.
#
# Of each capture it is from the first to the last byte of its calls and connections, also of those that were
# not chosen by a condition; captures that overlap count once, the time between captures not at all. Where
# only a window of time was asked for it is the part of all that within the window.


FIRST = ("request_time", "response_time", "first_time")
LAST = ("response_end_time", "response_time", "request_end_time", "request_time", "last_time")
"""When a call or connection was first and last seen: the first of these that is known."""


class Coverage:
    """Takes EVENTS, merges with others."""

    def __init__(self, within: Callable[[int, int], list[Span]] | None = None) -> None:
        """`within`: the parts of a span of time that were asked for."""
        self._within = within
        self._spans: dict[str | None, tuple[int, int]] = {}

    def take(self, batch: EventBatch) -> None:
        """Widen the span of time that each capture covers."""
        self._take(batch.calls)
        self._take(batch.others)

    def _take(self, rows: EventRows) -> None:
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
    def spans(self) -> list[Span]:
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
