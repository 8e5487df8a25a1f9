"""Fetch sessions followed (KIP-227), so that incremental fetches name their topics and partitions.

Theory of operation. A full fetch (epoch 0) names all partitions, and its response gives the session a number
that is unique at its broker. From then on requests name only what changes, what leaves the session is named
as forgotten, and responses name only partitions with news. So a session's partitions, each with the offset
asked for last, are kept by broker and number, and each call of the session is given the topics, and the
offsets that its partitions are fetched from; a call that brought nothing is given the partitions as well.

Of a session that was opened before the capture, or was evicted here, only what its calls name is known: it
grows by that, and a full fetch starts it anew.

The calls of a batch are followed at once, as arrays (see `kwsniff.report.course`); one by one only those
partitions that join or leave a session. Where a session goes for want of room and is needed again in the same
batch, what follows is begun anew from there.

Invariants: calls come in the order in which they were completed, and a client waits for each answer within
a session; so the calls of one session are in their order. What is kept is bounded: sessions that were used
longest ago go first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa

from kwsniff.report import lists
from kwsniff.report.course import Course, Offsets
from kwsniff.report.mentions import Ints, Key, Mentions, Topic, ints, mentions
from kwsniff.report.sessionrows import Given, Shown

MAX_SESSIONS = 20_000
MAX_PARTITIONS = 500_000
"""Partitions of all sessions kept; a broker holds a thousand sessions by default
(`max.incremental.fetch.session.cache.slots`)."""
MAX_SHOWN = 100
"""Partitions that a call which brought nothing is given; a broker's replica fetcher may follow thousands."""
LEAST = 64
"""Calls that are followed at once at least, if there are as many."""
NEEDED = frozenset(
    ("event", "broker_ip", "broker_port", "session_id", "session_epoch", "asked",
     "topics", "topic_ids", "partitions")
)  # fmt: skip
"""Columns of EVENTS that it takes."""

Name = tuple[Any, Any, int]
"""Of a session: address and port of its broker, and the number that the broker gave it."""


class Session:
    """One fetch session."""

    __slots__ = ("_astray", "_shown", "_topics", "_whose", "offsets")

    def __init__(self) -> None:
        self.offsets: Offsets = {}
        """Its partitions, each with the offset asked for last."""
        self._whose: dict[Topic, tuple[Key | None, int]] = {}
        """Of each topic its first partition, None if that is not known, and how many there are."""
        self._astray = False
        """Whether `_whose` may be in another order than the first partitions are."""
        self._topics: tuple[Topic, ...] | None = None
        self._shown: tuple[Key, ...] | None = None

    def join(self, key: Key) -> None:
        """Add a partition that isn't there."""
        self.offsets[key] = None
        self._count(key)
        if len(self.offsets) <= MAX_SHOWN:
            self._shown = None

    def leave(self, key: Key) -> None:
        """Take away one that is there."""
        del self.offsets[key]
        self._shown = None
        topic = key[:2]
        first, count = self._whose[topic]
        if count == 1:
            del self._whose[topic]
            self._topics = None
        elif first is not None and first != key:
            self._whose[topic] = first, count - 1
        else:
            self._whose[topic] = None, count - 1
            if len(self._whose) > 1:
                self._astray, self._topics = True, None

    def _count(self, key: Key) -> None:
        first, count = self._whose.get(key[:2], (key, 0))
        self._whose[key[:2]] = first, count + 1
        if not count:
            self._topics = None

    @property
    def topics(self) -> tuple[Topic, ...]:
        """The topics, each once; the same object as long as they stay."""
        if self._topics is None:
            if self._astray:
                self._astray, self._whose = False, {}
                for key in self.offsets:
                    self._count(key)
            self._topics = tuple(self._whose)
        return self._topics

    @property
    def shown(self) -> tuple[Key, ...]:
        """The partitions that a call which brought nothing is given; the same object as long as they stay."""
        if self._shown is None:
            self._shown = tuple(islice(self.offsets, MAX_SHOWN))
        return self._shown


class _Stretch:
    """Calls that are followed at once."""

    def __init__(
        self, said: Mentions, names: list[Name], epochs: list[int], known: Mapping[Name, Session]
    ) -> None:
        """`known`: sessions that are open before."""
        self.said = said
        self.sessions: list[Session] = []
        self.of: list[int] = []
        """Which of the sessions each call belongs to."""
        current: dict[Name, int] = {}
        for name, epoch in zip(names, epochs, strict=True):
            if epoch == 0 or name not in current:
                current[name] = len(self.sessions)
                self.sessions.append(Session() if epoch == 0 else known.get(name) or Session())
            self.of.append(current[name])
        self._ends = {id(self.sessions[of]): call for call, of in enumerate(self.of)}
        self.course = Course(said, np.array(self.of, np.int64), [each.offsets for each in self.sessions])
        changes = self.course.changes
        self._changes = said.call[changes].tolist(), said.key[changes].tolist(), said.gone[changes].tolist()
        self._next = 0
        self.brought: list[bool] = (np.bincount(said.call[said.answered], minlength=len(names)) > 0).tolist()

    def session(self, call: int) -> Session:
        """Of a call."""
        return self.sessions[self.of[call]]

    def change(self, call: int) -> int:
        """Let partitions join and leave the session of a call; how many more it has then."""
        calls, keys, gone = self._changes
        session, more = self.session(call), 0
        while self._next < len(calls) and calls[self._next] == call:
            key = self.said.keys[keys[self._next]]
            (session.leave if gone[self._next] else session.join)(key)
            more += -1 if gone[self._next] else 1
            self._next += 1
        return more

    def needs(self, session: Session, call: int) -> bool:
        """Whether a call after this one is of the session."""
        return self._ends.get(id(session), -1) > call

    def end(self, calls: int) -> int:
        """Put down the offsets that hold after so many calls; how many mentions there are up to then."""
        end = int(np.searchsorted(self.said.call, calls))
        for of, key, offset in self.course.last(end):
            self.sessions[of].offsets[self.said.keys[key]] = offset
        return end


class Sessions:
    """The fetch sessions of one input."""

    def __init__(
        self, *, sessions: int = MAX_SESSIONS, partitions: int = MAX_PARTITIONS, idle: bool = True
    ) -> None:
        """`idle`: give partitions also to calls that brought nothing; who only looks at what was fetched does
        without."""
        self._open: OrderedDict[Name, Session] = OrderedDict()
        self._size = 0
        self._most, self._largest = partitions, sessions
        self._idle = idle

    def fill(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """`batch` (EVENTS) with the topics and partitions that its incremental fetches are about."""
        rows, epochs, names = _calls(batch)
        if not len(rows):
            return batch
        said = mentions(batch, rows)
        given = Given(rows)
        begin, many = 0, len(rows)
        while begin < len(rows):
            end = min(begin + many, len(rows))
            part = _Stretch(said.between(begin, end), names[begin:end], epochs[begin:end], self._open)
            done = self._follow(begin, part, names[begin:end], epochs[begin:end], given)
            many = 2 * many if begin + done == end else max(2 * done, LEAST)
            begin += done
        return given.into(batch)

    def _follow(self, begin: int, part: _Stretch, names: list[Name], epochs: list[int], given: Given) -> int:
        """How many calls were followed: all, or as many as go without a session that was let go."""
        shown, done = Shown(), 0
        for call, (name, epoch) in enumerate(zip(names, epochs, strict=True)):
            session = part.session(call)
            self._use(name, session)
            self._size += part.change(call)
            given.about(session.topics if epoch > 0 else ())
            if epoch > 0 and self._idle and not part.brought[call]:
                shown.add(call, part.of[call], session.shown, session.offsets)
            done = call + 1
            if self._over() and any(part.needs(gone, call) for gone in self._bound()):
                break
        end = part.end(done)
        given.held(part.said, *part.course.held(end))
        given.shown(begin, shown.found(part.course, part.said.keys))
        return done

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


def followed(batches: Iterable[pa.RecordBatch], *, idle: bool = True) -> Iterator[pa.RecordBatch]:
    """EVENTS batches in their order, with what fetch sessions are about filled in; `idle`: see `Sessions`."""
    sessions = Sessions(idle=idle)
    for batch in batches:
        filled = sessions.fill(batch)
        del batch  # before the next is made
        yield filled
        del filled


def _calls(batch: pa.RecordBatch) -> tuple[Ints, list[int], list[Name]]:
    """The rows of calls in sessions, the epoch of each, and which session it is."""
    epochs = batch["session_epoch"]
    if epochs.null_count == len(epochs):
        return np.zeros(0, np.int64), [], []
    number, epoch = ints(batch["session_id"], 0), ints(epochs, -1)
    rows = np.flatnonzero((number != 0) & (epoch >= 0))
    chosen = pa.array(rows)
    hosts, ports = (_values(batch[name].take(chosen)) for name in ("broker_ip", "broker_port"))
    return rows, epoch[rows].tolist(), list(zip(hosts, ports, number[rows].tolist(), strict=True))


def _values(column: pa.Array) -> list[Any]:
    """Values as Python's, each made once."""
    distinct, code = lists.encoded(column)
    return [distinct[each] for each in code.tolist()]
