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

from kwsniff.events import ANOMALY, CALL, CONNECTION
from kwsniff.report import lists

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
T = TypeVar("T")

UNKNOWN = -1
"""Number of a packet that is not known."""


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

    def __init__(self, batch: pa.RecordBatch, which: pa.Array | None = None) -> None:
        """The rows of `batch` for which `which` is true, or all of them."""
        self._batch = batch
        self._which = which
        self._count: int = batch.num_rows if which is None else which.true_count
        self._columns: dict[str, pa.Array] = {}
        self._coded: dict[str, Coded] = {}
        self._ints: dict[tuple[str, int], Ints] = {}

    def __len__(self) -> int:
        return self._count

    def column(self, name: str) -> pa.Array:
        """A column that there is, as it is in Arrow: only those asked for are filtered."""
        if name not in self._columns:
            column = self._batch.column(name)
            self._columns[name] = column if self._which is None else column.filter(self._which)
        return self._columns[name]

    def unfiltered(self, name: str) -> pa.Array:
        """A column of the whole batch."""
        return self._batch.column(name)

    @cached_property
    def _rows(self) -> Ints | None:
        """The rows of the whole batch that these are; None for all."""
        return None if self._which is None else np.flatnonzero(self._which.to_numpy(zero_copy_only=False))

    @cached_property
    def places(self) -> Ints:
        """For each row of the whole batch its number among these rows."""
        if self._which is None:
            return np.arange(self._count, dtype=np.int64)
        taken: Mask = self._which.to_numpy(zero_copy_only=False)
        return np.cumsum(taken, dtype=np.int64) - 1

    def filled(self, name: str) -> bool:
        """Whether the batch has a value in this column, in these rows or in others."""
        if name not in self._batch.schema.names:
            return False
        return bool(self._batch.column(name).null_count < self._batch.num_rows)

    def has(self, name: str) -> bool:
        """Whether any row has a value in this column."""
        if not self.filled(name):
            return False
        column = self.column(name)
        return bool(column.null_count < len(column))

    def coded(self, name: str) -> Coded:
        """The distinct values (null is None) and which one each row has."""
        if name not in self._coded:
            self._coded[name] = self._encoded(name) if self.filled(name) else self._absent()
        return self._coded[name]

    def _encoded(self, name: str) -> Coded:
        """A column by its numbers, of which these rows' are taken: texts would be copied. A value that only
        other rows have is there too."""
        if name in self._columns or self._rows is None:
            return _coded(self.column(name))
        return _coded(self._batch.column(name)).at(self._rows)

    def ints(self, name: str, null: int = 0) -> Ints:
        """Whole numbers, times as microseconds, flags as 0 and 1; `null` where there is none."""
        if (name, null) not in self._ints:
            known = self.filled(name)
            self._ints[name, null] = (
                _ints(self.column(name), null) if known else np.full(len(self), null, np.int64)
            )
        return self._ints[name, null]

    def floats(self, name: str) -> Floats:
        """Numbers, NaN where there is none."""
        if not self.filled(name):
            return np.full(len(self), np.nan)
        values: Floats = self.column(name).cast(pa.float64()).to_numpy(zero_copy_only=False)
        return values

    def known(self, name: str) -> Mask:
        """Which rows have a value."""
        if not self.filled(name):
            return np.zeros(len(self), np.bool_)
        mask: Mask = self.column(name).is_valid().to_numpy(zero_copy_only=False)
        return mask

    def is_in(self, name: str, values: tuple[int, ...]) -> Mask:
        """Which rows have one of these whole numbers."""
        numbers = self.ints(name, -(1 << 40))
        mask: Mask = numbers == values[0]
        for value in values[1:]:  # few: np.isin sorts, and the rules ask for dozens of sets
            mask |= numbers == value
        return mask

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
        # By their numbers: texts would be copied.
        uuid = self.coded("topic_id")
        codes = np.where(topic.equals(None), len(topic.values) + uuid.codes, topic.codes)
        return Coded([*topic.values, *uuid.values], codes)


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
        mine = pc.equal(self._batch.column("event"), kind)
        return EventRows(self._batch, None if mine.true_count == len(mine) else mine)


def _coded(column: pa.Array) -> Coded:
    encoded = column.dictionary_encode(null_encoding="encode")
    codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return Coded(encoded.dictionary.to_pylist(), codes)


def _ints(column: pa.Array, null: int) -> Ints:
    values: Ints = pc.fill_null(column.cast(pa.int64()), null).to_numpy(zero_copy_only=False)
    return values


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
