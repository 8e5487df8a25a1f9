"""Calls of fetch sessions: what they say of partitions, in the order in which it was said, and the sessions
that they belong to.

A call's request comes first. `asked` names what only the request does: an offset to fetch from, or that the
partition leaves the session. `partitions` is what the response brings, with the offset that the request asked
for where it named one; where it has none the one asked for before holds on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kwsniff.count.codes import distinct, occurring
from kwsniff.rows import lists
from kwsniff.rows.arrays import NONE, nulls
from kwsniff.rows.columns import integers

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Topic = tuple[str | None, str | None]
"""Name and uuid."""
Key = tuple[str | None, str | None, int]
"""Topic, its uuid, partition."""


class Mentions(NamedTuple):
    """One element for each time that a call mentions a partition, in the order in which they do."""

    call: Ints
    """Which call, of those at hand."""
    key: Ints
    """Which of `keys` the partition is."""
    offset: Ints
    """Fetched from here; NONE if it is not said."""
    answered: Bools
    """By the response."""
    place: Ints
    """Which element of `partitions` (or `asked`) it is, as `lists.spread` has them."""
    keys: list[Key]

    def between(self, first: int, end: int) -> Mentions:
        """Those of the calls from `first` to before `end`, which are counted from `first` on."""
        some = slice(*np.searchsorted(self.call, [first, end]).tolist())
        call, key, offset = self.call[some] - first, self.key[some], self.offset[some]
        return Mentions(call, key, offset, self.answered[some], self.place[some], self.keys)

    @property
    def gone(self) -> Bools:
        """Whether the partition leaves the session by this."""
        gone: Bools = ~self.answered & (self.offset == NONE)
        return gone


def mentions(batch: pa.RecordBatch, rows: Ints) -> Mentions:
    """Of the calls in these rows of `batch` (EVENTS)."""
    parts = [_Part.of(batch[name], rows) for name in ("asked", "partitions")]
    call = np.concatenate([part.call for part in parts])
    order = sorted_places(call, len(rows))
    answered = np.repeat([False, True], [len(part.call) for part in parts])
    place = np.concatenate([part.place for part in parts])
    offset = np.concatenate([part.numbers("fetch_offset", NONE) for part in parts])
    number = np.concatenate([part.numbers("partition", -1) for part in parts])
    names, uuids = (
        distinct(pa.concat_arrays([part.texts(name) for part in parts])) for name in ("topic", "topic_id")
    )
    key, keys = _keys(names, uuids, number)
    return Mentions(call[order], key[order], offset[order], answered[order], place[order], keys)


class _Part(NamedTuple):
    """What one column says. Only the elements of the rows asked for are looked at: others are many more."""

    call: Ints
    place: Ints
    values: pa.StructArray

    @classmethod
    def of(cls, column: pa.ListArray, rows: Ints) -> _Part:
        spread = lists.spread(column)
        size = spread.size[rows]
        return cls(lists.parents(size), spread.places(rows, size), spread.values)

    def numbers(self, name: str, null: int) -> Ints:
        return integers(self.values.field(name), null)[self.place]

    def texts(self, name: str) -> pa.Array:
        values = self.values.field(name)
        if values.null_count == len(values):
            return nulls(len(self.place), values.type)
        return values.take(pa.array(self.place))


def _keys(
    names: tuple[list[str], Ints], uuids: tuple[list[str], Ints], number: Ints
) -> tuple[Ints, list[Key]]:
    topics, topic = occurring(names[1] * len(uuids[0]) + uuids[1], len(names[0]) * len(uuids[0]))
    least = int(number.min(initial=0))
    width = int(number.max(initial=0)) - least + 1
    found, key = occurring(topic * width + number - least, len(topics) * width)
    name, uuid = np.divmod(topics[found // width], max(len(uuids[0]), 1))
    partition = found % width + least
    chosen = zip(name.tolist(), uuid.tolist(), partition.tolist(), strict=True)
    return key, [(names[0][name], uuids[0][uuid], partition) for name, uuid, partition in chosen]


def sorted_places(codes: Ints, limit: int) -> Ints:
    """Their places in ascending order of the codes (from 0 to before `limit`), equal ones as they came."""
    # Short integers are sorted by their digits, in a time that is proportional to their number.
    return np.argsort(codes.astype(np.uint16) if limit <= 1 << 16 else codes, kind="stable")


# Some calls of fetch sessions, in their order, and the sessions that they belong to.

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
