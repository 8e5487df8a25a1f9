"""How far consumers are behind: one calculation, from columns, for whoever tells it.

The *end* of a partition is what was told of it last (by the time of the response): its high watermark in any
Fetch response, or one beyond the last record that a Produce response says was written. Its *start* is the
log start offset told last. A consumer's *position* is the offset it asked for last, a group's is what it
committed last. Then

    lag = max(end - max(position, start), 0)

Records that retention or DeleteRecords took away are no lag.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from kwsniff.findings.readings import LIMIT, Reading, Readings, when
from kwsniff.report.eventrows import UNKNOWN, EventBatch, Floats, Partitions

PRODUCE, FETCH, COMMITS = (0,), (1,), (8, 28)
APIS = (*PRODUCE, *FETCH, *COMMITS)
NEEDED = frozenset(("partitions", "asked", "group_id", "response_time", "time", "api_key"))
Ends = tuple[Reading, Reading]
"""The first and the last reading."""
Place = tuple[str | None, int]
"""Topic and partition."""


class Positions:
    """What is known of partitions, consumers and groups; merges, and is bounded by `limit` keys of each."""

    def __init__(self, limit: int = LIMIT) -> None:
        self.fetches = Readings(limit)
        """By client id, address and place; `end` is that of the same response, if it names one."""
        self.commits = Readings(limit)
        """By group and place."""
        self._ends, self._starts = Readings(limit), Readings(limit)

    def take(self, batch: EventBatch) -> int:
        """Take a batch; returns how many positions it had."""
        calls = batch.calls
        if not calls.is_in("api_key", APIS).any():
            return 0
        parts, asked = batch.partitions, batch.asked
        produced, fetched, committed = (
            calls.is_in("api_key", keys)[parts.row] for keys in (PRODUCE, FETCH, COMMITS)
        )
        end, fine = parts.floats("high_watermark"), parts.ints("error_code", UNKNOWN) == 0
        written, base = _sum(parts, "base_offset", "records"), parts.floats("base_offset")
        start, commit = parts.floats("log_start_offset"), parts.floats("committed_offset")
        with np.errstate(invalid="ignore"):
            sure = produced & fine & (base >= 0) & (written > 0)
            newest = np.where(sure, written, end)
            told = sure | (fetched & (end >= 0))
            self._ends.add(batch, told, [], newest, newest, when="response_time")
            self._starts.add(batch, start > 0, [], start, start, when="response_time")
            looked = 0
            for some, own in ((parts, end), (asked, None)):
                offset = some.floats("fetch_offset")
                ends = np.full(len(some), np.nan) if own is None else np.where(own >= 0, own, np.nan)
                looked += self.fetches.add(batch, offset >= 0, [calls.client], offset, ends, parts=some)
            group = [calls.coded("group_id")]
            looked += self.commits.add(batch, committed & fine & (commit >= 0), group, commit, commit)
        return looked

    def merge(self, other: Positions) -> None:
        """Take what another one took."""
        for mine, theirs in zip(self._all(), other._all(), strict=True):
            mine.merge(theirs)

    def _all(self) -> tuple[Readings, ...]:
        return self.fetches, self.commits, self._ends, self._starts

    def logs(self, name: Any) -> Logs:
        """What was told of each partition; `name` gives a topic's name for its name or uuid."""
        return Logs(*(renamed(each.of, name) for each in (self._ends, self._starts)))


class Logs:
    """Ends and starts of partitions."""

    def __init__(self, ends: dict[Place, Ends], starts: dict[Place, Ends]) -> None:
        self.ends, self._starts = ends, starts

    def end(self, place: Place) -> int | None:
        """Where a partition ends, None if nobody was told."""
        return int(self.ends[place][1].offset) if place in self.ends else None

    def lag(self, place: Place, position: float | None) -> int | None:
        """How many records are between a position and the end, None if either is not known."""
        end = self.end(place)
        if end is None or position is None or position < 0:
            return None
        start = self._starts[place][1].offset if place in self._starts else 0.0
        return max(int(end - max(position, start)), 0)


def _sum(parts: Partitions, *names: str) -> Floats:
    found: Floats = np.sum([parts.floats(name) for name in names], axis=0)
    return found


def renamed(readings: Mapping[tuple[Any, ...], Ends], name: Callable[[Any], Any]) -> dict[Any, Ends]:
    """By keys that end in topic and partition, with the topic's name: what was told by name and by uuid is of
    the same partition."""
    found: dict[Any, Ends] = {}
    for (*who, topic, partition), (first, last) in readings.items():
        key = (*who, name(topic), partition)
        known = found.get(key, (first, last))
        found[key] = (min(known[0], first, key=when), max(known[1], last, key=when))
    return found
