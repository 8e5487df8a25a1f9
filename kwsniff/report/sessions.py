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

import numpy as np
import pyarrow as pa

from kwsniff.report.course import Offsets
from kwsniff.report.mentions import Ints, Mentions, mentions
from kwsniff.report.sessionrows import Given, Shown
from kwsniff.report.stretch import Calls, Name, Session, Stretch

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
