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
Session = dict[Key, int | None]
"""The partitions of a session, each with the offset asked for last."""


class _Column(NamedTuple):
    """A list column of partitions, flattened: where each row's begin, and their fields."""

    first: list[int]
    size: list[int]
    keys: list[Key]
    offsets: list[int | None]


class _Named(NamedTuple):
    """What the calls of a batch are given."""

    topics: dict[int, list[Key]]
    """Of calls by row."""
    offsets: dict[int, int]
    """Of partitions by their place."""
    partitions: dict[int, list[tuple[Key, int | None]]]
    """Of calls by row: all there are, with the offset."""


class Sessions:
    """The fetch sessions of one input."""

    def __init__(self, *, sessions: int = MAX_SESSIONS, partitions: int = MAX_PARTITIONS) -> None:
        self._open: OrderedDict[tuple[Any, Any, int], Session] = OrderedDict()
        self._size = 0
        self._most, self._largest = partitions, sessions

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
        answered, asked = _column(batch["partitions"]), _column(batch["asked"])
        hosts = batch["broker_ip"].take(pa.array(rows)).to_pylist()
        ports = batch["broker_port"].take(pa.array(rows)).to_pylist()
        named = _Named({}, {}, {})
        for row, host, port in zip(rows.tolist(), hosts, ports, strict=True):
            key = (host, port, int(number[row]))
            if epoch[row] == 0:
                self._forget(key)
            session = self._session(key)
            before = len(session)
            self._take(session, asked, row)
            self._answer(session, answered, row, named)
            self._size += len(session) - before
            if epoch[row] > 0:
                named.topics[row] = _topics(session)
                if not answered.size[row]:
                    named.partitions[row] = list(session.items())[:MAX_SHOWN]
            self._bound()
        return _filled(batch, named)

    def _session(self, key: tuple[Any, Any, int]) -> Session:
        session = self._open.get(key)
        if session is None:
            session = self._open[key] = {}
        self._open.move_to_end(key)
        return session

    def _forget(self, key: tuple[Any, Any, int]) -> None:
        self._size -= len(self._open.pop(key, {}))

    def _take(self, session: Session, asked: _Column, row: int) -> None:
        """What only the request says."""
        if not asked.size[row]:
            return
        some = slice(asked.first[row], asked.first[row] + asked.size[row])
        for key, offset in zip(asked.keys[some], asked.offsets[some], strict=True):
            if offset is None:
                session.pop(key, None)
            else:
                session[key] = offset

    def _answer(self, session: Session, answered: _Column, row: int, named: _Named) -> None:
        """What the response says, with the request's offsets where it gave any."""
        if not answered.size[row]:
            return
        first = answered.first[row]
        some = slice(first, first + answered.size[row])
        pairs = zip(answered.keys[some], answered.offsets[some], strict=True)
        for place, (key, offset) in enumerate(pairs, first):
            known = session.get(key) if offset is None else offset
            session[key] = known
            if offset is None and known is not None:
                named.offsets[place] = known

    def _bound(self) -> None:
        while len(self._open) > self._largest or (self._size > self._most and len(self._open) > 1):
            _, session = self._open.popitem(last=False)
            self._size -= len(session)


def followed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """EVENTS batches in their order, with what fetch sessions are about filled in."""
    sessions = Sessions()
    for batch in batches:
        yield sessions.fill(batch)


def _topics(session: Session) -> list[Key]:
    """The topics of a session, each once."""
    return list({(key[0], key[1]): key for key in session}.values())


def _column(column: pa.ListArray) -> _Column:
    flat = column.flatten()
    count = lists.lengths(column)
    topic, uuid, offset = (pc.struct_field(flat, name) for name in ("topic", "topic_id", "fetch_offset"))
    partition = _ints(pc.struct_field(flat, "partition"), -1)
    keys = zip(_values(topic), _values(uuid), partition.tolist(), strict=True)
    return _Column(lists.starts(count).tolist(), count.tolist(), list(keys), _numbers(offset))


def _values(texts: pa.Array) -> list[str | None]:
    """Texts as Python's, each made once."""
    encoded = texts.dictionary_encode(null_encoding="encode")
    distinct = encoded.dictionary.to_pylist()
    return [distinct[code] for code in encoded.indices.to_numpy(zero_copy_only=False).tolist()]


def _numbers(column: pa.Array) -> list[int | None]:
    values: list[int | None] = _ints(column, 0).tolist()
    for place in np.flatnonzero(lists.is_null(column)).tolist() if column.null_count else ():
        values[place] = None
    return values


def _filled(batch: pa.RecordBatch, named: _Named) -> pa.RecordBatch:
    columns = {name: batch.column(name) for name in batch.schema.names}
    if named.topics:
        for name, place in (("topics", 0), ("topic_ids", 1)):
            columns[name] = _texts(columns[name], named.topics, place)
    if named.offsets or any(named.partitions.values()):
        columns["partitions"] = _partitions(columns["partitions"], named)
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=batch.schema)


def _texts(column: pa.ListArray, topics: dict[int, list[Key]], place: int) -> pa.Array:
    """Names or uuids of topics, in the rows that were given any."""
    given = {row: [key[place] for key in keys] for row, keys in topics.items() if keys}
    if place == 1:  # brokers of before give no uuids at all
        given = {row: ids for row, ids in given.items() if any(ids)}
    rows = list(given)
    return _replaced(column, rows, pa.array(list(given.values()), TEXTS))


def _partitions(column: pa.ListArray, named: _Named) -> pa.Array:
    """Partitions with the offsets known from before, and all of those of calls that brought none."""
    if named.offsets:
        column = _with_offsets(column, named.offsets)
    shown = {row: entries for row, entries in named.partitions.items() if entries}
    made = [
        [
            {"topic": topic, "topic_id": uuid, "partition": partition, "fetch_offset": offset}
            for (topic, uuid, partition), offset in entries
        ]
        for entries in shown.values()
    ]
    return _replaced(column, list(shown), pa.array(made, pa.list_(PARTITION)))


def _with_offsets(column: pa.ListArray, offsets: dict[int, int]) -> pa.ListArray:
    flat = column.flatten()
    fields = {field.name: pc.struct_field(flat, field.name) for field in PARTITION}
    values = np.zeros(len(flat), np.int64)
    missing = np.ones(len(flat), np.bool_)
    places = np.fromiter(offsets, np.int64, len(offsets))
    values[places] = np.fromiter(offsets.values(), np.int64, len(offsets))
    missing[places] = False
    fields["fetch_offset"] = pc.coalesce(fields["fetch_offset"], pa.array(values, mask=missing))
    structs = pa.StructArray.from_arrays(list(fields.values()), fields=list(PARTITION))
    return lists.rebuilt(structs, lists.lengths(column), lists.is_null(column)).cast(column.type)


def _replaced(column: pa.Array, rows: list[int], values: pa.Array) -> pa.Array:
    """A column with other values in some rows, which are in order."""
    if not rows:
        return column
    index = np.arange(len(column), dtype=np.int64)
    index[rows] = np.arange(len(rows)) + len(column)
    return pa.concat_arrays([column, values.cast(column.type)]).take(pa.array(index))


def _ints(column: pa.Array, null: int) -> Ints:
    values: Ints = pc.fill_null(column.cast(pa.int64()), null).to_numpy(zero_copy_only=False)
    return values
