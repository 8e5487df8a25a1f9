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

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kwsniff.report import lists
from kwsniff.schema import PARTITION, TEXTS

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

Ints = npt.NDArray[np.int64]
Key = tuple[str | None, str | None, int]
"""Topic, its uuid, partition."""


class Session:
    """One fetch session."""

    __slots__ = ("_topics", "offsets")

    def __init__(self) -> None:
        self.offsets: dict[Key, int | None] = {}
        """Its partitions, each with the offset asked for last."""
        self._topics: tuple[Key, ...] | None = None

    def put(self, key: Key, offset: int | None) -> None:
        """Add a partition, or move it on."""
        if key not in self.offsets:
            self._topics = None
        self.offsets[key] = offset

    def drop(self, key: Key) -> None:
        """Forget a partition, if it is there."""
        self._topics = None
        self.offsets.pop(key, None)

    @property
    def topics(self) -> tuple[Key, ...]:
        """The topics, each once; the same object as long as they stay."""
        if self._topics is None:
            self._topics = tuple({(key[0], key[1]): key for key in self.offsets}.values())
        return self._topics


class _Parts(NamedTuple):
    """What some rows of a list column say of partitions, flattened."""

    first: list[int]
    """Where each row's begin, and where those of the next do."""
    keys: list[Key]
    offsets: list[int | None]
    places: list[int]
    """Which element of the column's values each is."""


class _Named(NamedTuple):
    """What the calls of a batch are given."""

    topics: dict[int, tuple[Key, ...]]
    """Of calls by row."""
    offsets: dict[int, int]
    """Of partitions by their place among the column's values."""
    partitions: dict[int, list[tuple[Key, int | None]]]
    """Of calls by row: all there are, with the offset."""


class Sessions:
    """The fetch sessions of one input."""

    def __init__(
        self, *, sessions: int = MAX_SESSIONS, partitions: int = MAX_PARTITIONS, idle: bool = True
    ) -> None:
        """`idle`: give partitions also to calls that brought nothing; who only looks at what was fetched does
        without."""
        self._open: OrderedDict[tuple[Any, Any, int], Session] = OrderedDict()
        self._size = 0
        self._most, self._largest = partitions, sessions
        self._idle = idle

    def fill(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """`batch` (EVENTS) with the topics and partitions that its incremental fetches are about."""
        epochs = batch["session_epoch"]
        if epochs.null_count == len(epochs):
            return batch
        number = _ints(batch["session_id"], 0)
        epoch = _ints(epochs, -1)
        rows = np.flatnonzero((number != 0) & (epoch >= 0))
        if not len(rows):
            return batch
        answered, asked = _parts(batch["partitions"], rows), _parts(batch["asked"], rows)
        chosen = pa.array(rows)
        hosts, ports = (_values(batch[name].take(chosen)) for name in ("broker_ip", "broker_port"))
        named = _Named({}, {}, {})
        keys = zip(hosts, ports, number[rows].tolist(), strict=True)
        for place, (row, at, key) in enumerate(zip(rows.tolist(), epoch[rows].tolist(), keys, strict=True)):
            if at == 0:
                self._forget(key)
            session = self._session(key)
            before = len(session.offsets)
            self._take(session, asked, place)
            brought = self._answer(session, answered, place, named)
            self._size += len(session.offsets) - before
            if at > 0:
                named.topics[row] = session.topics
                if self._idle and not brought:
                    named.partitions[row] = list(islice(session.offsets.items(), MAX_SHOWN))
            self._bound()
        return _filled(batch, named)

    def _session(self, key: tuple[Any, Any, int]) -> Session:
        session = self._open.get(key)
        if session is None:
            session = self._open[key] = Session()
        self._open.move_to_end(key)
        return session

    def _forget(self, key: tuple[Any, Any, int]) -> None:
        session = self._open.pop(key, None)
        self._size -= len(session.offsets) if session else 0

    def _take(self, session: Session, asked: _Parts, row: int) -> None:
        """What only the request says."""
        for place in range(asked.first[row], asked.first[row + 1]):
            offset = asked.offsets[place]
            if offset is None:
                session.drop(asked.keys[place])
            else:
                session.put(asked.keys[place], offset)

    def _answer(self, session: Session, answered: _Parts, row: int, named: _Named) -> bool:
        """What the response says, with the request's offsets where it gave any; whether it says something."""
        some = range(answered.first[row], answered.first[row + 1])
        known = session.offsets
        for place in some:
            key, offset = answered.keys[place], answered.offsets[place]
            if offset is not None or key not in known:
                session.put(key, offset)
            elif (before := known[key]) is not None:
                named.offsets[answered.places[place]] = before
        return bool(some)

    def _bound(self) -> None:
        while len(self._open) > self._largest or (self._size > self._most and len(self._open) > 1):
            _, session = self._open.popitem(last=False)
            self._size -= len(session.offsets)


def followed(batches: Iterable[pa.RecordBatch], *, idle: bool = True) -> Iterator[pa.RecordBatch]:
    """EVENTS batches in their order, with what fetch sessions are about filled in; `idle`: see `Sessions`."""
    sessions = Sessions(idle=idle)
    for batch in batches:
        filled = sessions.fill(batch)
        del batch  # before the next is made
        yield filled
        del filled


def _parts(column: pa.ListArray, rows: Ints) -> _Parts:
    """What some rows say. Only their elements are looked at: those of other calls are many more."""
    size = lists.lengths(column)[rows]
    begin = column.offsets.to_numpy()[rows].astype(np.int64)
    first = np.concatenate([[0], np.cumsum(size)])
    places = np.repeat(begin - first[:-1], size) + np.arange(first[-1])
    chosen = pa.array(places)
    fields = {name: column.values.field(name).take(chosen) for name in ("topic", "topic_id", "fetch_offset")}
    partition = _ints(column.values.field("partition").take(chosen), -1)
    keys = zip(_values(fields["topic"]), _values(fields["topic_id"]), partition.tolist(), strict=True)
    return _Parts(first.tolist(), list(keys), fields["fetch_offset"].to_pylist(), places.tolist())


def _values(column: pa.Array) -> list[Any]:
    """Values as Python's, each made once."""
    encoded = column.dictionary_encode(null_encoding="encode")
    distinct = encoded.dictionary.to_pylist()
    return [distinct[code] for code in encoded.indices.to_numpy(zero_copy_only=False).tolist()]


def _filled(batch: pa.RecordBatch, named: _Named) -> pa.RecordBatch:
    columns = {name: batch.column(name) for name in batch.schema.names}
    if named.topics:
        for name, place in (("topics", 0), ("topic_ids", 1)):
            columns[name] = _texts(columns[name], named.topics, place)
    if named.offsets:
        columns["partitions"] = _with_offsets(columns["partitions"], named.offsets)
    if any(named.partitions.values()):
        columns["partitions"] = _partitions(columns["partitions"], named.partitions)
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=batch.schema)


def _texts(column: pa.ListArray, topics: dict[int, tuple[Key, ...]], place: int) -> pa.Array:
    """Names or uuids of topics, in the rows that were given any. Most calls of a session are about the same
    topics: their list is made once."""
    rows: list[int] = []
    lines: list[int] = []
    made: dict[int, int] = {}
    values: list[list[Any]] = []
    for row, keys in topics.items():
        if id(keys) not in made:
            given = [key[place] for key in keys]
            # Brokers of before give no uuids at all.
            made[id(keys)] = len(values) if any(given) or (given and place == 0) else -1
            if made[id(keys)] >= 0:
                values.append(given)
        if made[id(keys)] >= 0:
            rows.append(row)
            lines.append(made[id(keys)])
    return _replaced(column, rows, pa.array(values, TEXTS), lines)


def _partitions(column: pa.ListArray, given: dict[int, list[tuple[Key, int | None]]]) -> pa.Array:
    """Partitions, and all of those of calls that brought none."""
    shown = {row: entries for row, entries in given.items() if entries}
    made = [
        [
            {"topic": topic, "topic_id": uuid, "partition": partition, "fetch_offset": offset}
            for (topic, uuid, partition), offset in entries
        ]
        for entries in shown.values()
    ]
    return _replaced(column, list(shown), pa.array(made, pa.list_(PARTITION)), list(range(len(made))))


def _with_offsets(column: pa.ListArray, offsets: dict[int, int]) -> pa.ListArray:
    """Partitions with the offsets known from before; all else stays where it is."""
    old = column.values
    fields = [old.field(place) for place in range(old.type.num_fields)]
    at = old.type.get_field_index("fetch_offset")
    numbers = _ints(fields[at], 0).copy()
    missing = lists.is_null(fields[at])
    places = np.fromiter(offsets, np.int64, len(offsets))
    numbers[places] = np.fromiter(offsets.values(), np.int64, len(offsets))
    missing[places] = False
    fields[at] = pa.array(numbers, mask=missing)
    absent = old.is_null() if old.null_count else None
    made = pa.StructArray.from_arrays(fields, fields=list(old.type), mask=absent)
    return pa.Array.from_buffers(
        column.type, len(column), column.buffers()[:2], column.null_count, column.offset, children=[made]
    )


def _replaced(column: pa.Array, rows: list[int], values: pa.Array, lines: list[int]) -> pa.Array:
    """A column with some of other values in some rows, which are in order."""
    if not rows:
        return column
    index = np.arange(len(column), dtype=np.int64)
    index[rows] = np.array(lines) + len(column)
    return pa.concat_arrays([column, values.cast(column.type)]).take(pa.array(index))


def _ints(column: pa.Array, null: int) -> Ints:
    values: Ints = pc.fill_null(column.cast(pa.int64()), null).to_numpy(zero_copy_only=False)
    return values
