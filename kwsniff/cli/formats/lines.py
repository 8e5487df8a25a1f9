"""Columns of EVENTS as the kernel that writes lines takes them.

Theory of operation. What Arrow holds is given as it is: numbers, and the offsets and bytes of texts, the
columns one behind the other. A column without any value costs a comma. Whatever the kernel does not know is
made text by Arrow first: lists that name their topics in several ways, odd numbers. A column with a text
that is not plain ASCII, or looks like a formula, is made safe by `kwsniff.report.text`, all of it, and given
again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kwsniff.lines.machine import LineWriter, OddTextError
from kwsniff.lines.tables import DURATION, LIST, NONE, NUMBER, OWN, PLAIN, TEXT, TIME
from kwsniff.report.calls import LISTS, scalar_columns, scalar_schema
from kwsniff.report.csv import BODIES, OWN_WORDS
from kwsniff.report.text import json_printable, printable_column, spreadsheet_safe
from kwsniff.report.times import iso_times

Ints = NDArray[np.int64]
Described = dict[str, int]
MAX_DURATION = 1e10
"""Microseconds from which on Arrow writes an exponent."""
DASH, COLON = ord("-"), ord(":")


class Lines:
    """Makes lines of batches."""

    def __init__(self, names: list[str], *, compiled: bool | None = None) -> None:
        """`names` of the columns of EVENTS to write; `compiled` as of `LineWriter`."""
        self._names = names
        self._writer = LineWriter(compiled=compiled)

    def header(self) -> bytes:
        """The first line."""
        return ",".join(f'"{name}"' for name in self._names).encode() + b"\n"

    def of(self, batch: pa.RecordBatch) -> Iterator[memoryview]:
        """Lines of a batch; each to be taken before the next is asked for."""
        safe: set[str] = set()
        first = 0
        while first < len(batch):
            given = _Given(batch, self._names, safe)
            try:
                for row, text in self._writer.lines(*given.tables(), given.behind, first):
                    yield text
                    first = row
            except OddTextError as error:
                safe.add(given.names[error.column])
                continue
            return


class _Given:
    """The columns of a batch, described."""

    def __init__(self, batch: pa.RecordBatch, names: list[str], safe: set[str]) -> None:
        """`safe`: texts of these columns have to be made safe."""
        self._batch, self._safe = batch, safe
        self._count = len(batch)
        self._columns: list[Described] = []
        self.names: list[str] = []
        """Of the columns that have any value."""
        self._numbers: list[Ints] = []
        self._ends: list[Ints] = []
        self._texts: list[NDArray[np.uint8]] = []
        self._sizes = [0, 0, 0]
        commas = 0
        for name in names:
            column = batch.column(name)
            if column.null_count < self._count:
                self._add(name, column, commas)
                commas = 0
            commas += 1
        self.behind = commas - 1

    def tables(self) -> tuple[list[Described], Ints, Ints, NDArray[np.uint8], int]:
        """What the kernel takes: the columns, numbers, ends and text, and how many rows there are."""
        none = [np.zeros(0, np.int64)]
        return (
            self._columns,
            np.concatenate(self._numbers or none),
            np.concatenate(self._ends or none),
            np.concatenate(self._texts or [np.zeros(0, np.uint8)]),
            self._count,
        )

    def _add(self, name: str, column: pa.Array, commas: int) -> None:
        self.names.append(name)
        kind = column.type
        if name in LISTS:
            described = None if name in self._safe else self._list(name, column)
            if described is None:
                text = scalar_columns(self._batch, scalar_schema([name])).column(0)
                described = self._checked(name, text)
        elif pa.types.is_string(kind):
            described = self._checked(name, column)
        else:
            described = self._scalar(column)
        self._columns.append({"commas": commas, **described})

    # Numbers

    def _scalar(self, column: pa.Array) -> Described:
        kind = column.type
        if pa.types.is_integer(kind):
            return {"kind": NUMBER, "values": self._number(_integers(column))}
        if pa.types.is_timestamp(kind):
            micros = _integers(column.cast(pa.int64()))
            if ((micros >= 0) | (micros == NONE)).all():
                return {"kind": TIME, "values": self._number(micros)}
            return self._text(iso_times(column), OWN)
        if pa.types.is_floating(kind):
            thousandths = _thousandths(column)
            if thousandths is not None:
                return {"kind": DURATION, "values": self._number(thousandths)}
        return self._text(column.cast(pa.string()), PLAIN)

    def _number(self, values: Ints) -> int:
        return _put(self._numbers, values, self._sizes, 0)

    # Texts

    def _checked(self, name: str, column: pa.Array) -> Described:
        if name in BODIES:
            return self._text(printable_column(column, json_printable), OWN)
        if name in self._safe:
            return self._text(spreadsheet_safe(column), OWN)
        return self._text(column, OWN if name in OWN_WORDS else TEXT)

    def _text(self, column: pa.Array, kind: int) -> Described:
        return {"kind": kind, "values": self._there(column), "texts": self._bytes(column)}

    def _there(self, column: pa.Array) -> int:
        """Which rows have a value."""
        if not column.null_count:
            return -1
        return self._number(np.where(_valid(column), 0, NONE))

    def _bytes(self, column: pa.Array) -> int:
        buffers = column.buffers()
        offsets = _offsets(buffers[1], column)
        data = np.frombuffer(buffers[2] or b"", np.uint8)[offsets[0] : offsets[-1]]
        at = _put(self._texts, data, self._sizes, 2)
        return _put(self._ends, offsets + (at - offsets[0]), self._sizes, 1)

    # Lists

    def _list(self, name: str, column: pa.ListArray) -> Described | None:
        """A list column whose items are all written in the same way, else None."""
        offsets = _offsets(column.buffers()[1], column)
        items = column.values.slice(offsets[0], offsets[-1] - offsets[0])
        found = _ITEMS[name](self._batch, items)
        if found is None:
            return None
        texts, numbers, between = found
        if texts.null_count:
            return None
        described = {
            "kind": LIST,
            "values": self._there(column),
            "lists": _put(self._ends, offsets - offsets[0], self._sizes, 1),
            "texts": self._bytes(texts),
            "counts": -1,
        }
        if numbers is not None:
            described |= {"counts": self._number(_integers(numbers)), "between": between}
        return described


Items = tuple[pa.Array, pa.Array | None, int] | None
"""Texts of a list's items, the numbers behind them, and what stands between."""


def _topics(batch: pa.RecordBatch, items: pa.Array) -> Items:
    topics, ids = batch["topics"], batch["topic_ids"]
    if topics.null_count and pc.any(pc.and_(topics.is_null(), ids.is_valid())).as_py():
        return None  # named by uuid alone
    return items, None, 0


def _partitions(_: pa.RecordBatch, items: pa.StructArray) -> Items:
    topic = pc.struct_field(items, "topic")
    if topic.null_count:
        topic = pc.coalesce(topic, pc.struct_field(items, "topic_id"), "")
    return topic, pc.struct_field(items, "partition"), DASH


_ITEMS: dict[str, Callable[[pa.RecordBatch, Any], Items]] = {
    "topics": _topics,
    "topic_ids": lambda _, items: (items, None, 0),
    "partitions": _partitions,
    "asked": _partitions,
    "advertised": lambda _, items: (pc.struct_field(items, "host"), pc.struct_field(items, "port"), COLON),
    "resources": lambda *_: None,
}


def _put(parts: list[NDArray[Any]], values: NDArray[Any], sizes: list[int], which: int) -> int:
    """Add to what is laid one behind the other; where it is."""
    at = sizes[which]
    parts.append(values)
    sizes[which] += len(values)
    return at


def _offsets(buffer: pa.Buffer, column: pa.Array) -> Ints:
    return np.frombuffer(buffer, np.int32, len(column) + 1, column.offset * 4).astype(np.int64)


def _valid(column: pa.Array) -> NDArray[np.bool_]:
    bits = np.unpackbits(np.frombuffer(column.buffers()[0], np.uint8), bitorder="little")
    return bits[column.offset : column.offset + len(column)].view(np.bool_)


def _values(column: pa.Array) -> NDArray[Any]:
    width = column.type.bit_width // 8
    letter = "f" if pa.types.is_floating(column.type) else "i"
    return np.frombuffer(column.buffers()[1], f"{letter}{width}", len(column), column.offset * width)


def _integers(column: pa.Array) -> Ints:
    values = _values(column).astype(np.int64)
    return np.where(_valid(column), values, NONE) if column.null_count else values


def _thousandths(column: pa.Array) -> Ints | None:
    """Microseconds as whole thousandths; None if they are not, or too long to be written so."""
    values = _values(column)
    if column.null_count:
        valid = _valid(column)
        values = np.where(valid, values, 0.0)
    if np.signbit(values).any() or not (values < MAX_DURATION).all():
        return None
    thousandths = np.rint(values * 1000.0).astype(np.int64)
    if (thousandths / 1000.0 != values).any():
        return None
    return np.where(valid, thousandths, NONE) if column.null_count else thousandths
