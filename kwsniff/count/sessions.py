"""Fetch sessions followed (KIP-227), so that incremental fetches name their topics and partitions.

Theory of operation. A full fetch (epoch 0) names all partitions, and its response gives the session a number
that is unique at its broker. From then on requests name only what changes, what leaves the session is named
as forgotten, and responses name only partitions with news. So a session's partitions, each with the offset
asked for last, are kept by broker and number, and each call of the session is given the topics, and the
offsets that its partitions are fetched from; a call that brought nothing is given the partitions as well.

Of a session that was opened before the capture, or was evicted here, only what its calls name is known: it
grows by that, and a full fetch starts it anew.

Invariants: calls come in the order in which they were completed, and a client waits for each answer within
a session; so the calls of one session are in their order. What is kept is bounded: sessions that were used
longest ago go first.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from kwsniff.count.codes import combined, distinct
from kwsniff.count.keyed import Array
from kwsniff.rows import lists
from kwsniff.rows.arrays import NONE, numbers
from kwsniff.rows.columns import Ints, integers
from kwsniff.rows.schema import PARTITION, TEXTS

T = TypeVar("T")

MAX_SESSIONS = 20_000
MAX_PARTITIONS = 500_000
"""Partitions of all sessions kept; a broker holds a thousand sessions by default
(`max.incremental.fetch.session.cache.slots`)."""
MAX_SHOWN = 100
"""Partitions that a call which brought nothing is given; a broker's replica fetcher may follow thousands."""
NEEDED = frozenset(
    ("event", "broker_ip", "broker_port", "session_id", "session_epoch", "asked",
     "topics", "topic_ids", "partitions")
)  # fmt: skip
"""Columns of EVENTS that it takes."""

ASKED = -1
"""The place of what is only asked for."""

Name = tuple[Any, Any, int]
"""Of a session: address and port of its broker, and the number that the broker gave it."""
Topic = tuple[str | None, str | None]
"""Name and uuid."""
Key = tuple[str | None, str | None, int]
"""Topic, its uuid, partition."""
KEY = ("topic", "topic_id", "partition")
"""Its columns."""
Offsets = dict[Key, int]
"""Partitions of a session, each with the offset asked for last; NONE if that is not known."""


class Session:
    """One fetch session."""

    __slots__ = ("_astray", "_counts", "_firsts", "_shown", "_topics", "gone", "offsets")

    def __init__(self, offsets: Offsets | None = None, *, opened: bool = True) -> None:
        """`opened`: with these partitions; otherwise it has others that are not known."""
        self.gone: set[Key] | None = None if opened else set()
        """Partitions that left it, if it is not known which ones it had."""
        self.offsets: Offsets = {}
        self._counts: dict[Topic, int] = {}
        """Partitions of each topic."""
        self._firsts: dict[Topic, Key] = {}
        """The first of each, in their order, unless `_astray`."""
        self._astray = False
        self._topics: tuple[Topic, ...] | None = None
        self._shown: tuple[Key, ...] | None = None
        for key, offset in (offsets or {}).items():
            self.join(key, offset)

    def join(self, key: Key, offset: int) -> None:
        """Put a partition that isn't there behind the others."""
        self.offsets[key] = offset
        topic = key[:2]
        if topic not in self._counts:
            self._counts[topic], self._firsts[topic], self._topics = 0, key, None
        self._counts[topic] += 1
        if len(self.offsets) <= MAX_SHOWN:
            self._shown = None

    def leave(self, key: Key) -> None:
        """Take a partition away."""
        if self.gone is not None:
            self.gone.add(key)
        if key not in self.offsets:
            return
        del self.offsets[key]
        self._shown = None
        topic = key[:2]
        self._counts[topic] -= 1
        if not self._counts[topic]:
            del self._counts[topic], self._firsts[topic]
            self._topics = None
        elif self._firsts[topic] == key:
            self._astray = True
            self._topics = self._topics if len(self._counts) == 1 else None

    @property
    def topics(self) -> tuple[Topic, ...]:
        """The topics in the order of their first partitions; the same object as long as they stay."""
        if self._topics is None:
            if self._astray:
                self._astray, self._firsts = False, {}
                for key in self.offsets:
                    self._firsts.setdefault(key[:2], key)
            self._topics = tuple(self._firsts)
        return self._topics

    @property
    def shown(self) -> tuple[Key, ...]:
        """The partitions that a call which brought nothing is given; the same object as long as they stay."""
        if self._shown is None:
            self._shown = tuple(islice(self.offsets, MAX_SHOWN))
        return self._shown


class Calls(NamedTuple):
    """Calls in sessions, and what they say of partitions, in the order in which it was said.

    A call's request comes first. `asked` names what only the request does: an offset to fetch from, or that
    the partition leaves the session. `partitions` is what the response brings, with the offset that the
    request asked for where it named one; where it has none the one asked for before holds on."""

    row: Ints
    """Of their batch."""
    names: list[Name]
    """Of the session of each."""
    epochs: list[int]
    """0: it opens the session."""
    sizes: list[int]
    """How many mentions are of each."""
    keys: list[Key]
    """Which partition is mentioned."""
    offsets: list[int]
    """Fetched from here; NONE if it is not said."""
    places: list[int]
    """Which element of `partitions` it is, as `lists.spread` has them, or ASKED."""

    @classmethod
    def of(cls, batch: pa.RecordBatch) -> Calls | None:
        """Those among EVENTS."""
        epoch = batch["session_epoch"]
        if epoch.null_count == len(epoch):
            return None
        number, epochs = integers(batch["session_id"]), integers(epoch, -1)
        row = np.flatnonzero((number != 0) & (epochs >= 0))
        if not len(row):
            return None
        chosen = pa.array(row)
        hosts, ports = (batch[name].take(chosen) for name in ("broker_ip", "broker_port"))
        names = _triples(hosts, ports, number[row])
        return cls(row, names.tolist(), epochs[row].tolist(), *_mentions(batch, row))


def _mentions(batch: pa.RecordBatch, rows: Ints) -> tuple[list[int], list[Key], list[int], list[int]]:
    """What the calls in these rows say: how many mentions; partition, offset and place of each."""
    calls, places, structs = [], [], []
    for name in ("asked", "partitions"):
        spread = lists.spread(batch[name])
        size = spread.size[rows]
        calls.append(lists.parents(size))
        places.append(spread.places(rows, size))
        structs.append(spread.values)

    def column(name: str) -> pa.Array:
        # Only the elements of these rows are looked at: others are many more.
        parts = zip(structs, places, strict=True)
        return pa.concat_arrays([values.field(name).take(pa.array(place)) for values, place in parts])

    call = np.concatenate(calls)
    order = np.argsort(call, kind="stable")
    keys = _triples(column("topic"), column("topic_id"), integers(column("partition"), -1))[order]
    offsets = integers(column("fetch_offset"), NONE)[order]
    place = np.concatenate([np.full(len(places[0]), ASKED), places[1]])[order]
    sizes = np.bincount(call, minlength=len(rows))
    return sizes.tolist(), keys.tolist(), offsets.tolist(), place.tolist()


def _triples(first: pa.Array, second: pa.Array, numbers: Ints) -> Array:
    """What stands beside each other, as tuples; those that are equal are one object."""
    (names, name), (others, other) = distinct(first), distinct(second)
    least = int(numbers.min(initial=0))
    sizes = len(names), len(others), int(numbers.max(initial=0)) - least + 1
    codes, rows = combined([name, other, numbers - least], sizes)
    each = zip(name[rows].tolist(), other[rows].tolist(), numbers[rows].tolist(), strict=True)
    made = np.empty(len(rows), object)
    made[:] = [(names[one], others[two], number) for one, two, number in each]
    return made[codes]


class Given:
    """What the calls of a batch are given: collected call by call, and put into their columns."""

    def __init__(self) -> None:
        self.held: list[tuple[int, int]] = []
        """Elements of `partitions` that go by offsets of before, and those."""
        self.about: list[tuple[int, tuple[Topic, ...]]] = []
        """Rows of calls in the course of a session, and its topics."""
        self.idle: list[tuple[int, tuple[Key, ...]]] = []
        """Rows of calls that brought nothing, and the partitions that they are given, ..."""
        self.offsets: list[int] = []
        """... and the offsets of those."""

    def into(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """`batch` with all this."""
        column = batch["partitions"]
        if self.held:
            structs = lists.spread(column).values
            offsets = integers(structs.field("fetch_offset"), NONE).copy()
            places, held = zip(*self.held, strict=True)
            offsets[list(places)] = held
            fetched = numbers(offsets, pa.int64())
            column = lists.with_elements(column, lists.with_field(structs, "fetch_offset", fetched))
        if self.idle:
            rows, given = self._partitions()
            column = lists.with_lists(column, rows, given, np.arange(len(rows)))
        batch = lists.with_column(batch, "partitions", column)
        if self.about:
            rows, which, topics = _by_row(self.about)
            # Brokers of before give no uuids at all.
            for place, (name, wanted) in enumerate((("topics", bool), ("topic_ids", any))):
                values = [[topic[place] for topic in each] for each in topics]
                chosen = np.array([wanted(each) for each in values])[which]
                if chosen.any():
                    texts = pa.array(values, TEXTS)
                    made = lists.with_lists(batch[name], rows[chosen], texts, which[chosen])
                    batch = lists.with_column(batch, name, made)
        return batch

    def _partitions(self) -> tuple[Ints, pa.ListArray]:
        """Those of calls that brought nothing, as a column of lists like `partitions`. Most such calls of a
        session have the same ones, at offsets of their own."""
        rows, which, shown = _by_row(self.idle)
        sizes = np.array([len(keys) for keys in shown])
        index = pa.array(lists.expanded(lists.starts(sizes)[which], sizes[which]))
        parts = zip(*chain.from_iterable(shown), strict=True)
        columns: dict[str, pa.Array] = {
            name: pa.array(part, PARTITION.field(name).type).take(index)
            for name, part in zip(KEY, parts, strict=True)
        }
        columns["fetch_offset"] = numbers(np.array(self.offsets), pa.int64())
        arrays = [columns.get(field.name, pa.nulls(len(index), field.type)) for field in PARTITION]
        structs = pa.StructArray.from_arrays(arrays, fields=list(PARTITION))
        return rows, lists.rebuilt(structs, sizes[which], np.zeros(len(rows), np.bool_))


def _by_row(given: list[tuple[int, T]]) -> tuple[Ints, Ints, list[T]]:
    """Rows, which of the objects each is given, and these: most calls of a session have the same one."""
    rows, objects = zip(*given, strict=True)
    _, first, which = np.unique(list(map(id, objects)), return_index=True, return_inverse=True)
    return np.array(rows), which, [objects[at] for at in first.tolist()]


class Sessions:
    """The fetch sessions of one input."""

    def __init__(
        self,
        *,
        sessions: float = MAX_SESSIONS,
        partitions: float = MAX_PARTITIONS,
        idle: bool = True,
        known: Mapping[Name, Offsets] | None = None,
    ) -> None:
        """`idle`: give partitions also to calls that brought nothing; who only looks at what was fetched does
        without. `known`: sessions that are open before, in the order in which they were last used."""
        self._open = {name: Session(offsets) for name, offsets in (known or {}).items()}
        self._size = sum(len(session.offsets) for session in self._open.values())
        self._most, self._largest = partitions, sessions
        self._idle = idle
        self._bound()

    def open(self) -> dict[Name, Offsets]:
        """The sessions as they are, in the order in which they were last used."""
        return {name: session.offsets for name, session in self._open.items()}

    def changes(self) -> dict[Name, Change]:
        """What was done to each, if none was known."""
        return {
            name: Change(session.gone is None, frozenset(session.gone or ()), session.offsets)
            for name, session in self._open.items()
        }

    def fill(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """`batch` (EVENTS) with the topics and partitions that its incremental fetches are about."""
        given = self.take(batch)
        return batch if given is None else given.into(batch)

    def take(self, batch: pa.RecordBatch) -> Given | None:
        """Follow the calls in EVENTS, or in rows with the columns NEEDED of them; what they are given."""
        calls = Calls.of(batch)
        if calls is None:
            return None
        given, opened, idle = Given(), self._open, self._idle
        said = zip(calls.keys, calls.offsets, calls.places, strict=True)
        for row, name, epoch, size in zip(
            calls.row.tolist(), calls.names, calls.epochs, calls.sizes, strict=True
        ):
            session = opened.pop(name, None)
            if session is None or not epoch:
                self._size -= len(session.offsets) if session is not None else 0
                session = Session(opened=not epoch)
            opened[name] = session
            brought = False
            if size:
                before = len(session.offsets)
                brought = _take(session, islice(said, size), given.held)
                self._size += len(session.offsets) - before
            if epoch:
                given.about.append((row, session.topics))
                if idle and not brought and (shown := session.shown):
                    given.idle.append((row, shown))
                    given.offsets += islice(session.offsets.values(), MAX_SHOWN)
            if self._size > self._most or len(opened) > self._largest:
                self._bound()
        return given

    def _bound(self) -> None:
        """Let sessions go that were used longest ago."""
        while len(self._open) > self._largest or (self._size > self._most and len(self._open) > 1):
            self._size -= len(self._open.pop(next(iter(self._open))).offsets)


def _take(session: Session, said: Iterable[tuple[Key, int, int]], held: list[tuple[int, int]]) -> bool:
    """What a call says of its session's partitions: key, offset and place of each. Whether its response
    brought any; `held` gets elements of `partitions` that go by offsets of before, and those."""
    offsets, unsaid, place = session.offsets, NONE, ASKED
    for key, offset, place in said:
        if key not in offsets:
            if offset == unsaid and place == ASKED:
                session.leave(key)
            else:
                session.join(key, offset)
        elif offset != unsaid:
            offsets[key] = offset
        elif place == ASKED:
            session.leave(key)
        else:
            held.append((place, offsets[key]))
    return place != ASKED


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


class Change(NamedTuple):
    """What some calls do to their session."""

    opened: bool
    """It is begun anew, by a full fetch."""
    gone: frozenset[Key]
    """Partitions that leave it; they may join again behind the others."""
    offsets: Offsets
    """Partitions that are mentioned and don't leave after that, in the order in which they would join; NONE:
    at the offset from before."""

    def then(self, later: Change) -> Change:
        """Both in one, `later` behind this one."""
        if later.opened:
            return later
        offsets = {key: offset for key, offset in self.offsets.items() if key not in later.gone}
        for key, offset in later.offsets.items():
            if offset != NONE or key not in offsets:
                offsets[key] = offset
        return Change(self.opened, frozenset() if self.opened else self.gone | later.gone, offsets)


Changes = Mapping[Name, Change]
"""Of sessions, in the order in which they were last used."""


def composed(first: Changes, later: Changes) -> dict[Name, Change]:
    """Both in one."""
    made = {name: change for name, change in first.items() if name not in later}
    for name, change in later.items():
        made[name] = first[name].then(change) if name in first else change
    return made


def bounded(
    changes: Changes, *, sessions: int = MAX_SESSIONS, partitions: int = MAX_PARTITIONS
) -> dict[Name, Change]:
    """Without the sessions that were used longest ago, as far as they are more than are kept."""
    kept: list[Name] = []
    size = 0
    for name in reversed([*changes]):
        size += len(changes[name].offsets)
        if len(kept) == sessions or (size > partitions and kept):
            break
        kept.append(name)
    return {name: changes[name] for name in reversed(kept)}


def noticed(batches: Iterable[pa.RecordBatch]) -> dict[Name, Change]:
    """What rows that follow each other do to the sessions of their calls."""
    part = Sessions(sessions=math.inf, partitions=math.inf, idle=False)
    for batch in batches:
        part.take(batch)
    return part.changes()
