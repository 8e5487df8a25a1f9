"""Tables of an answer: named columns with kinds, and rows of plain values. How they are printed is not their
concern."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kwsniff.rows.events import CALL, CONNECTION
from kwsniff.rows.schema import EVENTS, TIMESTAMP

Row = dict[str, Any]

Kind = Literal["text", "list", "count", "duration", "bytes", "time", "ratio", "flag", "factor", "number"]
TEXT, LIST, COUNT, DURATION, BYTES, TIME, RATIO, FLAG, FACTOR, NUMBER = get_args(Kind)
TYPES = {
    TEXT: pa.string(),
    LIST: pa.list_(pa.string()),
    TIME: TIMESTAMP,
    FLAG: pa.bool_(),
    COUNT: pa.int64(),
    BYTES: pa.int64(),
    **dict.fromkeys((DURATION, RATIO, FACTOR, NUMBER), pa.float64()),
}
"""A duration is in microseconds, a ratio a part of 1, a factor how many times."""


def columns(names: str) -> frozenset[str]:
    """Columns of EVENTS by their names, which stand in one text. Raises KeyError."""
    return frozenset(EVENTS.field(name).name for name in names.split())


class AnswerField(NamedTuple):
    """One column of a table."""

    name: str
    kind: Kind
    heading: str
    """As people see it."""
    meaning: str
    rank: int = 0
    """How soon it is left out where room is short: the greatest first, 0 never."""

    @property
    def type(self) -> pa.DataType:
        """Of its values in Arrow."""
        return TYPES[self.kind]


@dataclass(slots=True)
class AnswerTable:
    """Rows of one sort. `top` of them are shown unless more are asked for."""

    name: str
    title: str
    fields: tuple[AnswerField, ...]
    rows: Sequence[Row] = ()
    top: int = 20

    def arrow(self) -> pa.Table:
        """The rows as an Arrow table."""
        columns = [pa.array([row.get(f.name) for row in self.rows], f.type) for f in self.fields]
        return pa.Table.from_arrays(columns, names=[f.name for f in self.fields])

    def sorted_by(self, name: str, *, turned: bool = False) -> None:
        """Sort by a column: texts and times from the least, numbers from the greatest; nulls last."""
        kind = next(f.kind for f in self.fields if f.name == name)
        descending = (kind not in (TEXT, LIST, TIME)) != turned
        have = [row for row in self.rows if row.get(name) is not None]
        have.sort(key=lambda row: row[name], reverse=descending)
        self.rows = have + [row for row in self.rows if row.get(name) is None]


@dataclass
class Seen:
    """When something was seen: what answers keep of it has the names of their columns."""

    first_time: datetime | None = None
    last_time: datetime | None = None

    def see(self, first: datetime | None, last: datetime | None) -> None:
        """Note that it was seen at some time."""
        if first is not None:
            self.first_time = first if self.first_time is None else min(self.first_time, first)
        if last is not None:
            self.last_time = last if self.last_time is None else max(self.last_time, last)


class Sample:
    """Numbers, at most `size` of them: of more, each has the same chance to be among those that are kept."""

    def __init__(self, size: int, random: np.random.Generator) -> None:
        self._size, self._random = size, random
        self.count = 0
        """Numbers that came."""
        self.kept: list[float] = []

    def add(self, values: Sequence[float]) -> None:
        """Take numbers."""
        for value in values:
            self.count += 1
            if len(self.kept) < self._size:
                self.kept.append(value)
            elif (at := int(self._random.integers(self.count))) < self._size:
                self.kept[at] = value


def topics_of(call: Row) -> list[str | None]:
    """The topics that a call names, or their uuids where it gives no name."""
    topics = call["topics"] or ()
    ids = [*(call["topic_ids"] or ()), *[None] * len(topics)]
    return [name or uuid for name, uuid in zip(topics, ids, strict=False)]


def names_of(call: Row) -> dict[str, str]:
    """The topics of a call by uuid."""
    pairs = zip(call["topic_ids"] or (), call["topics"] or (), strict=False)
    parts = ((part["topic_id"], part["topic"]) for part in call["partitions"] or ())
    return {uuid: name for uuid, name in (*pairs, *parts) if uuid and name}


def merged(values: Sequence[str | None]) -> list[str]:
    """Each text once, in order, without nulls."""
    return list(dict.fromkeys(value for value in values if value is not None))


# Batches of events counted by some of their columns, by Arrow: what comes of it is few rows of plain
# values.


def calls_of(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows that are calls."""
    is_call = pc.equal(batch["event"], CALL)
    return batch if is_call.true_count == batch.num_rows else batch.filter(is_call)


def ends_of(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows that are connections."""
    return batch.filter(pc.equal(batch["event"], CONNECTION))


def grouped(
    batch: pa.RecordBatch, keys: Sequence[str], sums: Sequence[tuple[str, str]] = ()
) -> list[dict[str, Any]]:
    """One row for each combination of `keys`; `sums` are columns with an Arrow aggregation, whose result
    goes by `column_aggregation`."""
    if not batch.num_rows:
        return []
    wanted = list(dict.fromkeys((*keys, *(name for name, _ in sums))))
    table = pa.Table.from_batches([batch.select(wanted)])
    rows: list[dict[str, Any]] = (
        table.group_by(list(keys), use_threads=False).aggregate(list(sums)).to_pylist()
    )
    return rows


def exploded(batch: pa.RecordBatch, name: str, fields: Sequence[str], keys: Sequence[str]) -> pa.RecordBatch:
    """A row for each item of a list column, with `fields` of the item and `keys` of its event. An item that
    has no name for its topic is given its uuid."""
    lists = batch[name]
    items = lists.flatten()
    rows = pc.list_parent_indices(lists)
    columns = {key: batch[key].take(rows) for key in keys}
    for field in fields:
        columns[field] = pc.struct_field(items, field)
    if "topic" in columns:
        columns["topic"] = pc.coalesce(columns["topic"], pc.struct_field(items, "topic_id"))
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
