"""Some calls of fetch sessions, in their order, and the sessions that they belong to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from kwsniff.count.codes import distinct, occurring
from kwsniff.count.mentions import Bools, Ints, Key, Mentions, Topic, sorted_places
from kwsniff.rows.arrays import NONE
from kwsniff.rows.columns import integers

MAX_SHOWN = 100
"""Partitions that a call which brought nothing is given; a broker's replica fetcher may follow thousands."""
Name = tuple[Any, Any, int]
"""Of a session: address and port of its broker, and the number that the broker gave it."""


class Session:
    """One fetch session."""

    __slots__ = ("_astray", "_counts", "_firsts", "_shown", "_topics", "offsets")

    def __init__(self) -> None:
        self.offsets: Offsets = {}
        """Its partitions, each with the offset asked for last."""
        self._counts: dict[Topic, int] = {}
        """Partitions of each topic."""
        self._firsts: dict[Topic, Key] = {}
        """The first of each, in their order."""
        self._astray = False
        """Whether `_firsts` is no longer so."""
        self._topics: tuple[Topic, ...] | None = None
        self._shown: tuple[Key, ...] | None = None

    @classmethod
    def of(cls, offsets: Offsets) -> Session:
        """One with these partitions."""
        made = cls()
        for key, offset in offsets.items():
            made.join(key)
            made.offsets[key] = offset
        return made

    def join(self, key: Key) -> None:
        """Add a partition that isn't there."""
        self.offsets[key] = None
        topic = key[:2]
        if topic not in self._counts:
            self._counts[topic], self._firsts[topic], self._topics = 0, key, None
        self._counts[topic] += 1
        if len(self.offsets) <= MAX_SHOWN:
            self._shown = None

    def leave(self, key: Key) -> None:
        """Take away one that is there."""
        del self.offsets[key]
        self._shown = None
        topic = key[:2]
        self._counts[topic] -= 1
        if not self._counts[topic]:
            del self._counts[topic]
            self._firsts.pop(topic, None)
            self._topics = None
        elif self._firsts.get(topic) == key:
            self._astray = True
            if len(self._counts) > 1:
                self._topics = None

    @property
    def topics(self) -> tuple[Topic, ...]:
        """The topics, each once; the same object as long as they stay."""
        if self._topics is None:
            if self._astray:
                self._astray, self._firsts = False, _firsts(self.offsets)
            self._topics = tuple(self._firsts)
        return self._topics

    @property
    def shown(self) -> tuple[Key, ...]:
        """The partitions that a call which brought nothing is given; the same object as long as they stay."""
        if self._shown is None:
            self._shown = tuple(islice(self.offsets, MAX_SHOWN))
        return self._shown


def _firsts(keys: Iterable[Key]) -> dict[Topic, Key]:
    found: dict[Topic, Key] = {}
    put = found.setdefault
    for key in keys:
        put(key[:2], key)
    return found


class Calls(NamedTuple):
    """Calls in sessions."""

    row: Ints
    """Of their batch."""
    epoch: Ints
    """0: it opens the session."""
    whose: Ints
    """Which of `names` the session has."""
    names: list[Name]

    @classmethod
    def of(cls, batch: pa.RecordBatch) -> Calls:
        """Those among EVENTS."""
        epochs = batch["session_epoch"]
        if epochs.null_count == len(epochs):
            nothing = np.zeros(0, np.int64)
            return cls(nothing, nothing, nothing, [])
        number, epoch = integers(batch["session_id"]), integers(epochs, -1)
        row = np.flatnonzero((number != 0) & (epoch >= 0))
        chosen = pa.array(row)
        hosts, host = distinct(batch["broker_ip"].take(chosen))
        ports, port = distinct(batch["broker_port"].take(chosen))
        numbers, which = np.unique(number[row], return_inverse=True)
        ends, end = occurring(host * len(ports) + port, len(hosts) * len(ports))
        codes, whose = occurring(end * len(numbers) + which, len(ends) * len(numbers))
        parts = (each.tolist() for each in (ends[codes // len(numbers)], numbers[codes % len(numbers)]))
        names = [
            (hosts[end // len(ports)], ports[end % len(ports)], each)
            for end, each in zip(*parts, strict=True)
        ]
        return cls(row, epoch[row], whose, names)

    def between(self, first: int, end: int) -> Calls:
        """Some of them."""
        return Calls(self.row[first:end], self.epoch[first:end], self.whose[first:end], self.names)


class Stretch:
    """Calls that are followed at once."""

    def __init__(self, calls: Calls, said: Mentions, known: Mapping[Name, Session]) -> None:
        """`known`: sessions that are open before."""
        self.said, count = said, len(calls.row)
        order = sorted_places(calls.whose, len(calls.names))
        whose, opens = calls.whose[order], calls.epoch[order] == 0
        begins = (np.diff(whose, prepend=-1) != 0) | opens
        self.of = np.empty(count, np.int64)
        """Which of the sessions each call belongs to."""
        self.of[order] = np.cumsum(begins) - 1
        self.names = [calls.names[each] for each in whose[begins].tolist()]
        self.sessions = [
            Session() if opening else known.get(name) or Session()
            for name, opening in zip(self.names, opens[begins].tolist(), strict=True)
        ]
        self.last: Ints = order[np.append(np.flatnonzero(begins)[1:], count) - 1]
        """The last call of each."""
        self._ends: dict[int, int] = {
            id(session): last for session, last in zip(self.sessions, self.last.tolist(), strict=True)
        }
        self.course = Course(said, self.of, [each.offsets for each in self.sessions])
        changes = self.course.changes
        self._changes = said.call[changes].tolist(), said.key[changes].tolist(), said.gone[changes].tolist()
        self._next = 0
        brought = np.bincount(said.call[said.answered], minlength=count) > 0
        self.later = calls.epoch > 0
        """Whether a call names only what changes."""
        self.idle = self.later & ~brought
        """And whether it brought nothing."""

    def settled(self, known: Mapping[Name, Session]) -> bool:
        """Whether all sessions are among these already, and keep their partitions."""
        return not len(self.course.changes) and all(
            known.get(name) is session for name, session in zip(self.names, self.sessions, strict=True)
        )

    def change(self, call: int, session: Session) -> int:
        """Let partitions join and leave the session of a call; how many more it has then."""
        calls, keys, gone = self._changes
        before = len(session.offsets)
        while self._next < len(calls) and calls[self._next] == call:
            key = self.said.keys[keys[self._next]]
            (session.leave if gone[self._next] else session.join)(key)
            self._next += 1
        return len(session.offsets) - before

    def needs(self, session: Session, call: int) -> bool:
        """Whether a call after this one is of the session."""
        return self._ends.get(id(session), -1) > call

    def end(self, calls: int) -> int:
        """Put down the offsets that hold after so many calls; how many mentions there are up to then."""
        end = int(np.searchsorted(self.said.call, calls))
        for of, key, offset in self.course.last(end):
            self.sessions[of].offsets[self.said.keys[key]] = offset
        return end


# From which offset each partition of some fetch sessions is fetched, in the course of some calls.
#
# Theory of operation: mentions are sorted by session and partition, and those of one partition stay in their
# order. What holds after a mention is then what the last one up to it has set, or what held before them all.

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
