"""From which offset each partition of some fetch sessions is fetched, in the course of some calls.

Theory of operation: mentions are sorted by session and partition, and those of one partition stay in their
order. What holds after a mention is then what the last one up to it has set, or what held before them all.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kwsniff.columns import NONE
from kwsniff.report.codes import occurring
from kwsniff.report.mentions import Bools, Ints, Key, Mentions, sorted_places

Offsets = dict[Key, int | None]
"""Partitions of a session, each with the offset asked for last."""


class Course:
    """The mentions of some calls, partition by partition."""

    def __init__(self, said: Mentions, of: Ints, sessions: list[Offsets]) -> None:
        """`of`: which of the `sessions` each call belongs to; they are as they were before the calls."""
        self._said, self._width, self._calls = said, max(len(said.keys), 1), len(of)
        codes = of[said.call] * self._width + said.key
        self._groups, group = occurring(codes, len(sessions) * self._width)
        self._order = sorted_places(group, len(self._groups))
        self._group = group[self._order]
        self._start = np.searchsorted(self._group, np.arange(len(self._groups)))
        self._follow(sessions)

    def _follow(self, sessions: list[Offsets]) -> None:
        there, self._first = self._before(sessions)
        offset, gone = self._said.offset[self._order], self._said.gone[self._order]
        known = np.roll(~gone, 1)
        known[self._start] = there
        # What is only answered holds on to what was asked for before.
        setting = gone | ~known | (offset != NONE)
        at = np.maximum.accumulate(np.where(setting, np.arange(len(offset)), -1))
        self._offset = np.where(at >= self._start[self._group], offset[at], self._first[self._group])
        self._kept, self._held = ~gone, ~setting
        self.changes: Ints = np.sort(self._order[known == gone])
        """Mentions by which a partition joins its session or leaves it."""

    def _before(self, sessions: list[Offsets]) -> tuple[list[bool], Ints]:
        session, key = (each.tolist() for each in np.divmod(self._groups, self._width))
        keys = self._said.keys
        there = [keys[at] in sessions[of] for of, at in zip(session, key, strict=True)]
        found = [sessions[of].get(keys[at]) for of, at in zip(session, key, strict=True)]
        return there, np.array([NONE if offset is None else offset for offset in found], np.int64)

    def held(self, end: int) -> tuple[Ints, Ints]:
        """Of the first `end` mentions those that name no offset where one holds on: which ones, and it."""
        chosen = self._held & (self._offset != NONE) & (self._order < end)
        return self._order[chosen], self._offset[chosen]

    def last(self, end: int) -> Iterator[tuple[int, int, int | None]]:
        """After the first `end` mentions: session, key and offset of each partition that is there."""
        some = np.flatnonzero(self._order < end)
        last = some[np.diff(self._group[some], append=-1) != 0]
        last = last[self._kept[last]]
        session, key = np.divmod(self._groups[self._group[last]], self._width)
        for of, at, offset in zip(session.tolist(), key.tolist(), self._offset[last].tolist(), strict=True):
            yield of, at, None if offset == NONE else offset

    def at(self, call: Ints, session: Ints, key: Ints) -> tuple[Ints, Bools]:
        """The offset of a partition that holds after a call, and whether any mention is of it; of those of
        key -1 none is."""
        if not len(self._groups):
            return np.full(len(key), NONE), np.zeros(len(key), np.bool_)
        codes = session * self._width + key
        group = np.minimum(np.searchsorted(self._groups, codes), len(self._groups) - 1)
        when = self._group * self._calls + self._said.call[self._order]
        last = np.searchsorted(when, group * self._calls + call, "right") - 1
        offset = np.where(last >= self._start[group], self._offset[last], self._first[group])
        return offset, (key >= 0) & (self._groups[group] == codes)
