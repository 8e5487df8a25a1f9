"""Fetch sessions followed (KIP-227), so that incremental fetches name their topics and partitions.

Theory of operation. A full fetch (epoch 0) names all partitions, and its response gives the session a number
that is unique at its broker. From then on requests name only what changes, what leaves the session is named
as forgotten, and responses name only partitions with news. So a session's partitions, each with the offset
asked for last, are kept by broker and number, and each call of the session is given the topics, and the
offsets that its partitions are fetched from; a call that brought nothing is given the partitions as well.

Of a session that was opened before the capture, or was evicted here, only what its calls name is known: it
grows by that, and a full fetch starts it anew.

The calls of a batch are followed at once, as arrays (see `kwsniff.count.sessioncalls`); one by one only those
partitions that join or leave a session. Where a session goes for want of room and is needed again in the same
batch, what follows is begun anew from there.

Invariants: calls come in the order in which they were completed, and a client waits for each answer within
a session; so the calls of one session are in their order. What is kept is bounded: sessions that were used
longest ago go first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from kwsniff.count.sessioncalls import (
    Calls,
    Course,
    Ints,
    Key,
    Mentions,
    Name,
    Offsets,
    Session,
    Stretch,
    Topic,
    mentions,
)
from kwsniff.rows import lists
from kwsniff.rows.arrays import NONE, numbers
from kwsniff.rows.columns import integers
from kwsniff.rows.schema import PARTITION, TEXTS

MAX_SESSIONS = 20_000
MAX_PARTITIONS = 500_000
"""Partitions of all sessions kept; a broker holds a thousand sessions by default
(`max.incremental.fetch.session.cache.slots`)."""
LEAST = 64
"""Calls that are followed at once at least, if there are as many."""
NEEDED = frozenset(
    ("event", "broker_ip", "broker_port", "session_id", "session_epoch", "asked",
     "topics", "topic_ids", "partitions")
)  # fmt: skip
"""Columns of EVENTS that it takes."""


class Sessions:
    """The fetch sessions of one input."""

    def __init__(
        self,
        *,
        sessions: int = MAX_SESSIONS,
        partitions: int = MAX_PARTITIONS,
        idle: bool = True,
        known: Mapping[Name, Offsets] | None = None,
    ) -> None:
        """`idle`: give partitions also to calls that brought nothing; who only looks at what was fetched does
        without. `known`: sessions that are open before, in the order in which they were last used."""
        self._open: OrderedDict[Name, Session] = OrderedDict()
        self._size = 0
        self._most, self._largest = partitions, sessions
        self._idle = idle
        for name, offsets in (known or {}).items():
            self._open[name] = Session.of(offsets)
            self._size += len(offsets)
        self._bound()

    def open(self) -> dict[Name, Offsets]:
        """The sessions as they are, in the order in which they were last used."""
        return {name: session.offsets for name, session in self._open.items()}

    def fill(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """`batch` (EVENTS) with the topics and partitions that its incremental fetches are about."""
        calls = Calls.of(batch)
        if not len(calls.row):
            return batch
        return self.follow(calls, mentions(batch, calls.row)).into(batch)

    def follow(self, calls: Calls, said: Mentions) -> Given:
        """Follow some calls; what they are given."""
        given, count = Given(calls.row), len(calls.row)
        begin, many = 0, count
        while begin < count:
            end = min(begin + many, count)
            part = Stretch(calls.between(begin, end), said.between(begin, end), self._open)
            done = self._follow(part, given)
            many = 2 * many if begin + done == end else max(2 * done, LEAST)
            begin += done
        return given

    def _follow(self, part: Stretch, given: Given) -> int:
        """How many calls were followed: all, or as many as go without a session that was let go."""
        shown = Shown()
        lines = (self._settled if part.settled(self._open) else self._changing)(part, given, shown)
        held = part.course.held(part.end(len(lines)))
        given.take(lines, part.said, held, shown.found(part.course, part.said.keys))
        return len(lines)

    def _settled(self, part: Stretch, given: Given, shown: Shown) -> Ints:
        """Calls of sessions that keep their partitions: the line of topics of each."""
        for of in np.argsort(part.last).tolist():
            self._open.move_to_end(part.names[of])
        for call in np.flatnonzero(part.idle).tolist() if self._idle else ():
            shown.add(call, int(part.of[call]), part.sessions[part.of[call]])
        lines: Ints = np.array([given.line(session.topics) for session in part.sessions])[part.of]
        return lines

    def _changing(self, part: Stretch, given: Given, shown: Shown) -> Ints:
        """Calls of sessions that come, go or change: the same."""
        lines: list[int] = []
        each = zip(part.of.tolist(), part.later.tolist(), part.idle.tolist(), strict=True)
        for call, (of, later, idle) in enumerate(each):
            session = part.sessions[of]
            self._use(part.names[of], session)
            self._size += part.change(call, session)
            lines.append(given.line(session.topics if later else ()))
            if idle and self._idle:
                shown.add(call, of, session)
            if self._over() and any(part.needs(gone, call) for gone in self._bound()):
                break
        return np.array(lines, np.int64)

    def _use(self, name: Name, session: Session) -> None:
        before = self._open.get(name)
        if before is not session:
            self._size -= len(before.offsets) if before else 0
            self._open[name] = session
        self._open.move_to_end(name)

    def _over(self) -> bool:
        return len(self._open) > self._largest or (self._size > self._most and len(self._open) > 1)

    def _bound(self) -> list[Session]:
        """Let sessions go; which ones went."""
        gone = []
        while self._over():
            gone.append(self._open.popitem(last=False)[1])
            self._size -= len(gone[-1].offsets)
        return gone


def followed(
    batches: Iterable[pa.RecordBatch], *, idle: bool = True, known: Mapping[Name, Offsets] | None = None
) -> Iterator[pa.RecordBatch]:
    """EVENTS batches in their order, with what fetch sessions are about filled in; `idle` and `known`: see
    `Sessions`."""
    sessions = Sessions(idle=idle, known=known)
    for batch in batches:
        filled = sessions.fill(batch)
        del batch  # before the next is made
        yield filled
        del filled


# What calls of fetch sessions are given: collected call by call, and put into the columns of their batch.


class Partitions(NamedTuple):
    """Partitions of some calls, one call after the other."""

    call: Ints
    size: Ints
    """How many of each call."""
    key: Ints
    """Which of `keys` each is."""
    offset: Ints
    """NONE if it is not known."""
    keys: list[Key]


class Shown:
    """The partitions of sessions at calls that brought nothing. Most calls of a session have the same ones,
    at offsets of their own."""

    def __init__(self) -> None:
        self._calls: list[int] = []
        self._views: list[int] = []
        self._made: dict[int, int] = {}
        self._of: list[tuple[int, Offsets, tuple[Key, ...]]] = []

    def add(self, call: int, of: int, session: Session) -> None:
        """A call; `of`: which session it is in the course of calls."""
        keys = session.shown
        if not keys:
            return
        if id(keys) not in self._made:
            self._made[id(keys)] = len(self._of)
            self._of.append((of, session.offsets, keys))
        self._calls.append(call)
        self._views.append(self._made[id(keys)])

    def found(self, course: Course, mentioned: list[Key]) -> Partitions | None:
        """All of them; None if there are none."""
        if not self._calls:
            return None
        number = {key: at for at, key in enumerate(mentioned)}
        keys = [key for _, _, some in self._of for key in some]
        offsets = [offsets.get(key) for _, offsets, some in self._of for key in some]
        size = np.array([len(some) for _, _, some in self._of])
        views, call = np.array(self._views), np.array(self._calls)
        key = lists.expanded(lists.starts(size)[views], size[views])
        session = np.repeat(np.array([of for of, _, _ in self._of])[views], size[views])
        numbers = np.array([number.get(each, -1) for each in keys])
        offset, there = course.at(np.repeat(call, size[views]), session, numbers[key])
        before = np.array([NONE if each is None else each for each in offsets], np.int64)
        return Partitions(call, size[views], key, np.where(there, offset, before[key]), keys)


class Given:
    """What the calls of a batch are given."""

    def __init__(self, rows: Ints) -> None:
        """`rows`: of the calls in their batch."""
        self._rows = rows
        self._lines: list[Ints] = []
        self._count = 0
        self._made: dict[int, int] = {}
        self._topics: list[tuple[Topic, ...]] = []
        self._held: list[tuple[Ints, Ints]] = []
        self._shown: list[Partitions] = []

    def line(self, topics: tuple[Topic, ...]) -> int:
        """The number of these topics, the same object as long as they stay."""
        line = self._made.setdefault(id(topics), len(self._topics))
        if line == len(self._topics):
            self._topics.append(topics)
        return line

    def take(self, lines: Ints, said: Mentions, held: tuple[Ints, Ints], shown: Partitions | None) -> None:
        """The next calls have these lines of topics; mentions of partitions that go by offsets of before, and
        those; partitions of calls that brought nothing."""
        self._held.append((said.place[held[0]], held[1]))
        if shown:
            self._shown.append(shown._replace(call=shown.call + self._count))
        self._lines.append(lines)
        self._count += len(lines)

    def into(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """`batch` with all this."""
        partitions = self._partitions(batch["partitions"])
        batch = lists.with_column(batch, "partitions", partitions)
        for name, place in (("topics", 0), ("topic_ids", 1)):
            batch = lists.with_column(batch, name, self._texts(batch[name], place))
        return batch

    def _texts(self, column: pa.ListArray, place: int) -> pa.ListArray | None:
        """Names or uuids of topics. Most calls of a session are about the same ones: made once."""
        values = [[topic[place] for topic in topics] for topics in self._topics]
        # Brokers of before give no uuids at all.
        some = np.array([any(each) or (place == 0 and bool(each)) for each in values], np.bool_)
        line = np.concatenate(self._lines)
        chosen = some[line]
        if not chosen.any():
            return None
        return lists.with_lists(column, self._rows[chosen], pa.array(values, TEXTS), line[chosen])

    def _partitions(self, column: pa.ListArray) -> pa.ListArray | None:
        places, offsets = (np.concatenate(each) for each in zip(*self._held, strict=True))
        if not len(places) and not self._shown:
            return None
        if len(places):
            structs = lists.spread(column).values
            fetched = _with(structs.field("fetch_offset"), places, offsets)
            column = lists.with_elements(column, lists.with_field(structs, "fetch_offset", fetched))
        if self._shown:
            shown = _joined(self._shown)
            column = lists.with_lists(
                column, self._rows[shown.call], _listed(shown), np.arange(len(shown.call))
            )
        return column


def _joined(parts: list[Partitions]) -> Partitions:
    before = lists.starts(np.array([len(part.keys) for part in parts]))
    key = np.concatenate([part.key + first for part, first in zip(parts, before.tolist(), strict=True)])
    call, size, offset = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("call", "size", "offset")
    )
    return Partitions(call, size, key, offset, [key for part in parts for key in part.keys])


def _with(column: pa.Array, places: Ints, offsets: Ints) -> pa.Array:
    found = integers(column, NONE).copy()
    found[places] = offsets
    return numbers(found, column.type)


def _listed(given: Partitions) -> pa.ListArray:
    """As a column of lists like `partitions`."""
    index = pa.array(given.key)
    columns: dict[str, Any] = {
        name: pa.array([key[at] for key in given.keys], PARTITION.field(name).type).take(index)
        for at, name in enumerate(("topic", "topic_id", "partition"))
    }
    columns["fetch_offset"] = numbers(given.offset, pa.int64())
    arrays = [columns.get(field.name, pa.nulls(len(index), field.type)) for field in PARTITION]
    structs = pa.StructArray.from_arrays(arrays, fields=list(PARTITION))
    return lists.rebuilt(structs, given.size, np.zeros(len(given.size), np.bool_))


# Fetch sessions over rows that are taken in parts: what each part comes to, and how that composes.
#
# Theory of operation. Whatever a session was before some calls, they do one of two things to it: they open it
# anew, and what it is then stands by itself; or partitions leave it, and others are mentioned, each with an
# offset or without one. A partition that is there stays at its place and takes the offset, if there is one;
# one that isn't there joins behind the others. That is a `Change`, and a session as it is stands for the
# change that makes it out of nothing. So changes compose, in whatever grouping of neighbours, and what is
# open at a cut is all changes before it in one. Parts are looked at each by itself, without what lies before
# them.
#
# Limits on what is kept are no part of it: they hold for what is open at a cut.

BEYOND = 1 << 62
"""No limit: a part is bounded by itself."""


class Change(NamedTuple):
    """What some calls do to their session."""

    opened: bool
    """It is begun anew, by a full fetch."""
    gone: frozenset[Key]
    """Partitions that leave it; they may join again behind the others."""
    offsets: Offsets
    """Partitions that are mentioned and don't leave after that, in the order in which they would join; None:
    at the offset from before."""

    def then(self, later: Change) -> Change:
        """Both in one, `later` behind this one."""
        if later.opened:
            return later
        offsets = {key: offset for key, offset in self.offsets.items() if key not in later.gone}
        for key, offset in later.offsets.items():
            if offset is not None or key not in offsets:
                offsets[key] = offset
        return Change(self.opened, frozenset() if self.opened else self.gone | later.gone, offsets)


Changes = Mapping[Name, Change]
"""Of sessions, in the order in which they were last used."""


def composed(first: Changes, later: Changes) -> dict[Name, Change]:
    """Both in one."""
    made = {name: change for name, change in first.items() if name not in later}
    for name, change in later.items():
        before = first.get(name)
        made[name] = change if before is None else before.then(change)
    return made


def bounded(
    changes: Changes, *, sessions: int = MAX_SESSIONS, partitions: int = MAX_PARTITIONS
) -> dict[Name, Change]:
    """Without the sessions that were used longest ago, as far as they are more than are kept."""
    left = OrderedDict(changes)
    size = sum(len(change.offsets) for change in changes.values())
    while len(left) > sessions or (size > partitions and len(left) > 1):
        size -= len(left.popitem(last=False)[1].offsets)
    return dict(left)


class Noticed:
    """What rows that follow each other do to the sessions of their calls."""

    def __init__(self) -> None:
        self._sessions = Sessions(sessions=BEYOND, partitions=BEYOND, idle=False)
        self._opened: set[Name] = set()
        self._gone: dict[Name, set[Key]] = {}

    def take(self, batch: pa.RecordBatch) -> None:
        """Take EVENTS, or rows with the columns NEEDED of them, behind those before."""
        calls = Calls.of(batch)
        if not len(calls.row):
            return
        said = mentions(batch, calls.row)
        self._opened.update(calls.names[each] for each in np.unique(calls.whose[calls.epoch == 0]).tolist())
        self._leave(calls, said)
        self._sessions.follow(calls, said)

    def _leave(self, calls: Calls, said: Mentions) -> None:
        gone, width = said.gone, len(said.keys)
        codes = np.unique(calls.whose[said.call[gone]] * width + said.key[gone])
        for code in codes.tolist():
            name = calls.names[code // width]
            if name not in self._opened:
                self._gone.setdefault(name, set()).add(said.keys[code % width])

    def changes(self) -> dict[Name, Change]:
        """All of it."""
        nothing: frozenset[Key] = frozenset()
        return {
            name: Change(True, nothing, offsets)
            if name in self._opened
            else Change(False, frozenset(self._gone.get(name, nothing)), offsets)
            for name, offsets in self._sessions.open().items()
        }
