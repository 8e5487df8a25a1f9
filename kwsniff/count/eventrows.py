"""EVENTS as who counts them sees them: the rows of one kind of a batch, and what calls say of partitions.

Statistics, findings and the page ask for the same columns: an `EventBatch` that they share brings each into
NumPy once.

A column that the batch lacks is one that is null in every row: rules name columns that a source may not fill.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kwsniff.count.codes import Coded, Joint, combined, kinds_of
from kwsniff.count.topics import Named, Pairs
from kwsniff.rows import lists
from kwsniff.rows.arrays import NONE
from kwsniff.rows.arrays import places as places_of
from kwsniff.rows.columns import Floats, Ints, Mask, integers, reals, valid
from kwsniff.rows.events import ANOMALY, CALL, CONNECTION, EXCHANGE

T = TypeVar("T")

KEPT = 65_536
"""Rows up to which what was made of a column is kept; a single call may name 140,000 partitions."""

SCATTERED = 16
"""Rows of a stretch for each one asked for from which on only those are looked at, column by column."""

FETCHES = (1, 78)
WAITED = ("waited_us",)
"""Columns of EVENTS by which `waited` tells."""

NOT_A_CODE = -(1 << 40)
"""Stands for null among API keys and error codes."""

PARTS = (
    *("request_transfer_us", "queued_us", "throttled_us", "waited_us", "broker_us", "response_transfer_us"),
)
"""Parts that the time of a call falls into; they add up to its duration."""
BROKER_LEAST = "broker_least_us"
"""What of `broker_us` is certain."""

UNKNOWN = -1
"""Number of a packet that is not known."""


class EventRows:
    """Some rows of a batch: those of one kind."""

    def __init__(self, batch: pa.RecordBatch, which: Mask | None = None) -> None:
        """The rows of `batch` for which `which` is true, or all of them."""
        self._whole = batch
        self._which = which
        rows = np.arange(batch.num_rows, dtype=np.int64) if which is None else np.flatnonzero(which)
        self._count = len(rows)
        # From the first to the last of them; between those there may be others, which are left out last.
        first, end = (int(rows[0]), int(rows[-1]) + 1) if len(rows) else (0, 0)
        self._batch = batch if end - first == batch.num_rows else batch.slice(first, end - first)
        self._rows: Ints | None = None
        self._few: Ints | None = None
        """Where there are so few that columns are cut down to them before anything is made of them."""
        if SCATTERED * len(rows) < end - first:
            self._few = rows - first
        elif len(rows) < end - first:
            self._rows = rows - first
        self._names = frozenset(batch.schema.names)
        self._arrays: dict[str, pa.Array] = {}
        self._made: dict[tuple[str, str, int], Any] = {}

    def __len__(self) -> int:
        return self._count

    def column(self, name: str) -> pa.Array:
        """A column that there is, as it is in Arrow."""
        column = self._array(name)
        return column if self._rows is None else column.take(places_of(self._rows))

    def some(self, rows: Ints, names: Sequence[str]) -> pa.RecordBatch:
        """Some of these rows with those of these columns that there are, as they are in Arrow."""
        mine = self._rows if self._few is None else self._few
        columns = self._batch.select([name for name in names if name in self._names])
        return columns.take(places_of(rows if mine is None else mine[rows]))

    def unfiltered(self, name: str) -> pa.Array:
        """A column of the whole batch."""
        return self._whole.column(name)

    @cached_property
    def places(self) -> Ints:
        """For each row of the whole batch its number among these rows."""
        if self._which is None:
            return np.arange(self._count, dtype=np.int64)
        return np.cumsum(self._which, dtype=np.int64) - 1

    @cached_property
    def in_batch(self) -> Ints:
        """Where these rows are in the whole batch."""
        return np.arange(self._count, dtype=np.int64) if self._which is None else np.flatnonzero(self._which)

    def filled(self, name: str) -> bool:
        """Whether the batch has a value in this column, in these rows or in others between them."""
        if name not in self._names:
            return False
        column = self._array(name)
        return bool(column.null_count < len(column))

    def has(self, name: str) -> bool:
        """Whether any row has a value in this column."""
        return self.filled(name) and bool(self.known(name).any())

    def coded(self, name: str) -> Coded:
        """The distinct values (null is None) and which one each row has. A value that only other rows have
        may be there too."""
        return self.once("coded", name, lambda: self._encoded(name))

    def _encoded(self, name: str) -> Coded:
        if not self.filled(name):
            return Coded([None], np.broadcast_to(np.int64(0), len(self)))
        coded = kinds_of(self._array(name))
        return coded if self._rows is None else coded.at(self._rows)

    def ints(self, name: str, null: int = 0) -> Ints:
        """Whole numbers, times as microseconds, flags as 0 and 1; `null` where there is none."""
        if not self.filled(name):
            return np.broadcast_to(np.int64(null), len(self))
        return self.once("ints", name, lambda: self._mine(integers(self._array(name), null)), null)

    def floats(self, name: str) -> Floats:
        """Numbers, NaN where there is none."""
        if not self.filled(name):
            return np.broadcast_to(np.float64(np.nan), len(self))
        return self.once("floats", name, lambda: self._mine(reals(self._array(name))))

    def known(self, name: str) -> Mask:
        """Which rows have a value."""
        if not self.filled(name):
            return np.broadcast_to(np.False_, len(self))
        return self.once("known", name, lambda: self._mine(valid(self._array(name))))

    def first_known(self, *names: str, null: int) -> Ints:
        """The first of several columns of whole numbers that has a value; `null` where none has."""
        found = self.ints(names[0], NONE)
        for name in names[1:]:
            missing = found == NONE
            if not missing.any():
                return found
            found = np.where(missing, self.ints(name, NONE), found)
        return np.where(found == NONE, null, found)

    def is_in(self, name: str, values: tuple[int, ...]) -> Mask:
        """Which rows have one of these whole numbers."""
        numbers = self.ints(name, NOT_A_CODE)
        mask: Mask = numbers == values[0]
        for value in values[1:]:  # few: np.isin sorts, and the rules ask for dozens of sets
            mask |= numbers == value
        return mask

    def once(self, kind: str, name: str, make: Callable[[], T], null: int = 0) -> T:
        """What `make` gives of a column, made once but for whole columns of numbers of a huge batch."""
        if len(self) > KEPT and kind != "coded":
            return make()
        key = (kind, name, null)
        if key not in self._made:
            self._made[key] = make()
        made: T = self._made[key]
        return made

    def _array(self, name: str) -> pa.Array:
        if name not in self._arrays:
            column = self._batch.column(name)
            self._arrays[name] = column if self._few is None else column.take(places_of(self._few))
        return self._arrays[name]

    def _mine(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return values if self._rows is None else values[self._rows]

    @cached_property
    def broker(self) -> Coded:
        """Address and port of the broker as text, an IPv6 address in brackets."""
        return addresses(self.coded("broker_ip"), self.coded("broker_port"))

    @cached_property
    def client(self) -> Joint:
        """Client id and address."""
        return Joint.of(self.coded("client_id"), self.coded("client_ip"))

    @cached_property
    def time(self) -> Ints:
        return self.ints("time", UNKNOWN)

    @property
    def whole(self) -> EventRows:
        """All rows of which these are some."""
        return self

    @cached_property
    def in_time(self) -> Ints:
        """The rows in the order of time."""
        return np.argsort(self.time, kind="stable")

    @cached_property
    def rank(self) -> Ints:
        """The place of each row in the order of time: sorted once, for all that ask for the first or the
        last of some."""
        found = np.empty(len(self), np.int64)
        found[self.in_time] = np.arange(len(self))
        return found

    @cached_property
    def packet(self) -> Ints:
        """The packet that shows the row best: the response's, else the request's, the anomaly's, the
        connection's last."""
        found = np.full(len(self), UNKNOWN, np.int64)
        for name in ("last_packet", "packet", "request_packet", "response_packet"):
            found = np.where(self.known(name), self.ints(name), found)
        return found


class Picked:
    """Some rows of others, each as often as named, with what a tally asks of rows."""

    def __init__(self, rows: EventRows, which: Ints) -> None:
        self._rows, self._which = rows, which

    def coded(self, name: str) -> Coded:
        return self._rows.coded(name).at(self._which)

    @property
    def whole(self) -> EventRows:
        """All rows of which these are some."""
        return self._rows

    @property
    def rank(self) -> Ints:
        return self._rows.rank[self._which]


class Partitions(EventRows):
    """What `calls` say of single partitions: a row each; `row` is that of its call."""

    def __init__(self, calls: EventRows, name: str = "partitions") -> None:
        # Only calls have partitions: filtering the lists would change nothing but which call they are of.
        column = calls.unfiltered(name)
        spread = lists.spread(column)
        flat = spread.values if int(spread.size.sum()) == len(spread.values) else column.flatten()
        super().__init__(pa.RecordBatch.from_arrays(flat.flatten(), [field.name for field in flat.type]))
        self.row = calls.places[lists.parents(spread.size)]

    @cached_property
    def key(self) -> Coded:
        """The topic's name, or its uuid where the message gives no name."""
        topic = self.coded("topic")
        return named_or(topic, self.coded("topic_id")) if self.column("topic").null_count else topic

    @cached_property
    def place(self) -> Joint:
        """Topic and partition."""
        return Joint.of(self.key, self.coded("partition"))


class Topics(NamedTuple):
    """The topics that calls name, one after the other."""

    row: Ints
    """That of the call."""
    key: Coded
    """The topic's name, or its uuid where the message gives no name."""

    @classmethod
    def of(cls, calls: EventRows) -> Topics:
        """Those of calls with lists of names and of uuids. Where there is no list of names, that of uuids
        says how many there are."""
        rows = calls.in_batch
        topics, ids = (calls.unfiltered(name) for name in ("topics", "topic_ids"))
        names, uuids = lists.spread(topics), lists.spread(ids)
        size = names.size[rows]
        if topics.null_count:
            size = np.where(lists.is_null(topics)[rows], uuids.size[rows], size)
        key = _elements(names, rows, size)
        if key.equals(None).any():
            key = named_or(key, _elements(uuids, rows, size))
        return cls(lists.parents(size), key)


def _elements(spread: lists.Spread, rows: Ints, size: Ints) -> Coded:
    """The first so many elements of some lists; null where a list has fewer."""
    coded = kinds_of(spread.values)
    own = spread.size[rows]
    if np.array_equal(own, size):
        return coded.at(spread.places(rows, size))
    parent = lists.parents(size)
    place = np.arange(len(parent), dtype=np.int64) - lists.starts(size)[parent]
    there = place < own[parent]
    codes = np.full(len(parent), len(coded.values), np.int64)
    codes[there] = coded.codes[(spread.begin[rows][parent] + place)[there]]
    return Coded([*coded.values, None], codes)


def named_or(names: Coded, others: Coded) -> Coded:
    """Names, and others where they are null."""
    # By their numbers: texts would be copied. A topic may be called as another one's uuid is written.
    codes = np.where(names.equals(None), len(names.values) + others.codes, names.codes)
    distinct = texts([*names.values, *others.values])
    return Coded(distinct.values, distinct.codes[codes])


class EventBatch:
    """One EVENTS batch."""

    def __init__(self, batch: pa.RecordBatch, *, estimates: bool = False) -> None:
        """With `estimates` the exchanges of TLS connections are among the calls."""
        self.rows = batch
        self._estimates = estimates
        self._made: dict[str, Any] = {}

    @classmethod
    def of(cls, batch: pa.RecordBatch | EventBatch) -> EventBatch:
        """A batch that may be seen as one already."""
        return batch if isinstance(batch, EventBatch) else cls(batch)

    def once(self, name: str, make: Callable[[EventBatch], T]) -> T:
        """What `make` gives of this batch; several rules ask for it by its name."""
        if name not in self._made:
            self._made[name] = make(self)
        made: T = self._made[name]
        return made

    @cached_property
    def calls(self) -> EventRows:
        if not self._estimates:
            return self._of(CALL)
        return self._rows(self._kinds.equals(CALL) | self._kinds.equals(EXCHANGE))

    @property  # not kept: a batch that refers to itself would live on
    def counted(self) -> EventBatch:
        """As those see it who count: with the exchanges of TLS connections among the calls."""
        return EventBatch(self.rows, estimates=True) if EXCHANGE in self._kinds.values else self

    @cached_property
    def exchanges(self) -> EventRows:
        return self._of(EXCHANGE)

    @cached_property
    def anomalies(self) -> EventRows:
        return self._of(ANOMALY)

    @cached_property
    def connections(self) -> EventRows:
        return self._of(CONNECTION)

    @cached_property
    def others(self) -> EventRows:
        """What is no call."""
        return EventRows(self.rows, ~self._kinds.equals(CALL))

    @cached_property
    def partitions(self) -> Partitions:
        """Of the calls."""
        return Partitions(self.calls)

    @cached_property
    def asked(self) -> Partitions:
        """Those that only the requests of calls name."""
        return Partitions(self.calls, "asked")

    @cached_property
    def named(self) -> Named:
        """Topics of any rows that are named with their uuid."""
        return Named.of(Pairs.of(*(self.rows.column(name) for name in ("topics", "topic_ids"))))

    @cached_property
    def topics(self) -> Topics:
        """Of the calls."""
        return Topics.of(self.calls)

    def _of(self, kind: str) -> EventRows:
        return self._rows(self._kinds.equals(kind))

    def _rows(self, which: Mask) -> EventRows:
        return EventRows(self.rows, None if which.all() else which)

    @cached_property
    def _kinds(self) -> Coded:
        return kinds_of(self.rows.column("event"))


def addresses(host: Coded, port: Coded) -> Coded:
    """Hosts and ports as `address` shows them."""
    codes, rows = combined([host.codes, port.codes], [len(host.values), len(port.values)])
    pairs = zip(host.codes[rows].tolist(), port.codes[rows].tolist(), strict=True)
    return Coded([address(host.values[a], port.values[b]) for a, b in pairs], codes)


def address(host: str | None, port: int | None) -> str | None:
    """`10.0.0.1:9092`, `[fd00::1]:9092`, or None."""
    if host is None:
        return None
    shown = f"[{host}]" if ":" in host else host
    return shown if port is None else f"{shown}:{port}"


def texts(values: list[str | None]) -> Coded:
    """A list of texts as a column."""
    numbers = {value: number for number, value in enumerate(dict.fromkeys(values))}
    codes = np.fromiter((numbers[value] for value in values), np.int64, len(values))
    return Coded(list(numbers) or [None], codes)


def waited(batch: pa.RecordBatch | EventRows) -> Mask:
    """Which calls waited on purpose: those of which EVENTS say for how long. `kwsniff.engine.callcolumns` has
    the rule."""
    calls = batch if isinstance(batch, EventRows) else EventRows(batch)
    found: Mask = calls.floats("waited_us") > 0  # NaN is not
    return found
