"""EVENTS as the rules see them: the rows of one kind of a batch, each column brought into NumPy once for all
rules.

A text column becomes its distinct values and a number for each row (`Coded`), so that grouping by it costs
no texts. A column that the batch lacks is one that is null in every row: rules name columns that a source
may not fill.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kwsniff.columns import places as places_of
from kwsniff.events import ANOMALY, CALL, CONNECTION
from kwsniff.report import lists
from kwsniff.report.arrays import integers, numbered, reals, valid

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
T = TypeVar("T")

UNKNOWN = -1
"""Number of a packet that is not known."""
NOT_A_CODE = -(1 << 40)
"""Stands for null among API keys and error codes."""


class Coded(NamedTuple):
    """A column as distinct values and the place of each row's among them."""

    values: list[Any]
    codes: Ints

    def at(self, rows: Ints) -> Coded:
        """The same of some rows."""
        return Coded(self.values, self.codes[rows])

    def equals(self, value: Any) -> Mask:
        """Which rows have this value."""
        wanted = np.array([each == value for each in self.values] or [False])
        found: Mask = wanted[self.codes] if len(self.codes) else np.zeros(0, np.bool_)
        return found

    def beginning(self, prefixes: tuple[str, ...]) -> Mask:
        """Which rows have a text that begins with one of these."""
        wanted = np.array([(each or "").startswith(prefixes) for each in self.values] or [False])
        found: Mask = wanted[self.codes] if len(self.codes) else np.zeros(0, np.bool_)
        return found

    def containing(self, text: str) -> Mask:
        """Which rows have a text with this in it."""
        wanted = np.array([text in (each or "") for each in self.values] or [False])
        found: Mask = wanted[self.codes] if len(self.codes) else np.zeros(0, np.bool_)
        return found


class EventRows:
    """The rows of one kind."""

    def __init__(self, batch: pa.RecordBatch, which: Mask | None = None) -> None:
        """The rows of `batch` for which `which` is true, or all of them."""
        self._whole = batch
        self._which = which
        rows = np.arange(batch.num_rows, dtype=np.int64) if which is None else np.flatnonzero(which)
        self._count = len(rows)
        # From the first to the last of them; between those there may be others, which are left out last.
        first, end = (int(rows[0]), int(rows[-1]) + 1) if len(rows) else (0, 0)
        self._batch = batch if end - first == batch.num_rows else batch.slice(first, end - first)
        self._rows: Ints | None = None if len(rows) == end - first else rows - first
        self._names = frozenset(batch.schema.names)
        self._arrays: dict[str, pa.Array] = {}
        self._made: dict[tuple[str, str, int], Any] = {}

    def __len__(self) -> int:
        return self._count

    def column(self, name: str) -> pa.Array:
        """A column that there is, as it is in Arrow."""
        column = self._array(name)
        return column if self._rows is None else column.take(places_of(self._rows))

    def unfiltered(self, name: str) -> pa.Array:
        """A column of the whole batch."""
        return self._whole.column(name)

    @cached_property
    def places(self) -> Ints:
        """For each row of the whole batch its number among these rows."""
        if self._which is None:
            return np.arange(self._count, dtype=np.int64)
        return np.cumsum(self._which, dtype=np.int64) - 1

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
        return self._once("coded", name, lambda: self._encoded(name))

    def _encoded(self, name: str) -> Coded:
        if not self.filled(name):
            return Coded([None], np.zeros(len(self), np.int64))
        coded = _coded(self._array(name))
        return coded if self._rows is None else coded.at(self._rows)

    def ints(self, name: str, null: int = 0) -> Ints:
        """Whole numbers, times as microseconds, flags as 0 and 1; `null` where there is none."""
        if not self.filled(name):
            return self._once("ints", name, lambda: np.full(len(self), null, np.int64), null)
        return self._once("ints", name, lambda: self._mine(integers(self._array(name), null)), null)

    def floats(self, name: str) -> Floats:
        """Numbers, NaN where there is none."""
        if not self.filled(name):
            return np.full(len(self), np.nan)
        return self._once("floats", name, lambda: self._mine(reals(self._array(name))))

    def known(self, name: str) -> Mask:
        """Which rows have a value."""
        if not self.filled(name):
            return np.zeros(len(self), np.bool_)
        return self._once("known", name, lambda: self._mine(valid(self._array(name))))

    def is_in(self, name: str, values: tuple[int, ...]) -> Mask:
        """Which rows have one of these whole numbers."""
        numbers = self.ints(name, NOT_A_CODE)
        mask: Mask = numbers == values[0]
        for value in values[1:]:  # few: np.isin sorts, and the rules ask for dozens of sets
            mask |= numbers == value
        return mask

    def _once(self, kind: str, name: str, make: Callable[[], T], null: int = 0) -> T:
        """What `make` gives of a column, made once."""
        key = (kind, name, null)
        if key not in self._made:
            self._made[key] = make()
        made: T = self._made[key]
        return made

    def _array(self, name: str) -> pa.Array:
        if name not in self._arrays:
            self._arrays[name] = self._batch.column(name)
        return self._arrays[name]

    def _mine(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return values if self._rows is None else values[self._rows]

    @cached_property
    def broker(self) -> Coded:
        """Address and port of the broker as text, an IPv6 address in brackets."""
        return _joined(self.coded("broker_ip"), self.coded("broker_port"))

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

    def _absent(self) -> Coded:
        return Coded([None], np.zeros(len(self), np.int64))


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

    def __init__(self, calls: EventRows) -> None:
        # Only calls have partitions: filtering the lists would change nothing but which call they are of.
        column = calls.unfiltered("partitions")
        flat = column.flatten()
        names = [flat.type.field(place).name for place in range(flat.type.num_fields)]
        super().__init__(pa.RecordBatch.from_arrays([pc.struct_field(flat, name) for name in names], names))
        self.row = calls.places[lists.parents(lists.lengths(column))]

    @cached_property
    def key(self) -> Coded:
        """The topic's name, or its uuid where the message gives no name."""
        topic = self.coded("topic")
        if not self.column("topic").null_count:
            return topic
        # By their numbers: texts would be copied. A topic may be called as another one's uuid is written.
        uuid = self.coded("topic_id")
        codes = np.where(topic.equals(None), len(topic.values) + uuid.codes, topic.codes)
        distinct = texts([*topic.values, *uuid.values])
        return Coded(distinct.values, distinct.codes[codes])


class EventBatch:
    """One EVENTS batch."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch
        self._made: dict[str, Any] = {}

    def once(self, name: str, make: Callable[[EventBatch], T]) -> T:
        """What `make` gives of this batch; several rules ask for it by its name."""
        if name not in self._made:
            self._made[name] = make(self)
        made: T = self._made[name]
        return made

    @cached_property
    def calls(self) -> EventRows:
        return self._of(CALL)

    @cached_property
    def anomalies(self) -> EventRows:
        return self._of(ANOMALY)

    @cached_property
    def connections(self) -> EventRows:
        return self._of(CONNECTION)

    @cached_property
    def partitions(self) -> Partitions:
        """Of the calls."""
        return Partitions(self.calls)

    def _of(self, kind: str) -> EventRows:
        kinds, codes = self._kinds
        mine = codes == (kinds.index(kind) if kind in kinds else UNKNOWN)
        return EventRows(self._batch, None if mine.all() else mine)

    @cached_property
    def _kinds(self) -> Coded:
        return _coded(self._batch.column("event"))


def _coded(column: pa.Array) -> Coded:
    close = numbered(column) if pa.types.is_integer(column.type) else None
    if close is not None:
        return Coded(*close)
    encoded = column.dictionary_encode(null_encoding="encode")
    return Coded(encoded.dictionary.to_pylist(), integers(encoded.indices))


def _joined(host: Coded, port: Coded) -> Coded:
    both = host.codes * max(len(port.values), 1) + port.codes
    kinds, codes = np.unique(both, return_inverse=True)
    pairs = [divmod(int(kind), max(len(port.values), 1)) for kind in kinds]
    return Coded([address(host.values[a], port.values[b]) for a, b in pairs], codes.astype(np.int64))


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
