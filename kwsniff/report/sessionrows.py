"""What calls of fetch sessions are given: collected call by call, and put into the columns of their batch."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from kwsniff.columns import NONE, numbers
from kwsniff.report import lists, patch
from kwsniff.report.arrays import integers
from kwsniff.report.course import Course, Offsets
from kwsniff.report.mentions import Ints, Key, Mentions, Topic
from kwsniff.report.stretch import Session
from kwsniff.schema import PARTITION, TEXTS


class Partitions(NamedTuple):
    """Partitions of some calls, one call after the other."""

    call: Ints
    size: Ints
    """How many of each call."""
    key: Ints
    """Which of `keys` each is."""
    offset: Ints
    """NONE if it is not known."""
    keys: list[Key]


class Shown:
    """The partitions of sessions at calls that brought nothing. Most calls of a session have the same ones,
    at offsets of their own."""

    def __init__(self) -> None:
        self._calls: list[int] = []
        self._views: list[int] = []
        self._made: dict[int, int] = {}
        self._of: list[tuple[int, Offsets, tuple[Key, ...]]] = []

    def add(self, call: int, of: int, session: Session) -> None:
        """A call; `of`: which session it is in the course of calls."""
        keys = session.shown
        if not keys:
            return
        if id(keys) not in self._made:
            self._made[id(keys)] = len(self._of)
            self._of.append((of, session.offsets, keys))
        self._calls.append(call)
        self._views.append(self._made[id(keys)])

    def found(self, course: Course, mentioned: list[Key]) -> Partitions | None:
        """All of them; None if there are none."""
        if not self._calls:
            return None
        number = {key: at for at, key in enumerate(mentioned)}
        keys = [key for _, _, some in self._of for key in some]
        offsets = [offsets.get(key) for _, offsets, some in self._of for key in some]
        size = np.array([len(some) for _, _, some in self._of])
        views, call = np.array(self._views), np.array(self._calls)
        key = lists.expanded(lists.starts(size)[views], size[views])
        session = np.repeat(np.array([of for of, _, _ in self._of])[views], size[views])
        numbers = np.array([number.get(each, -1) for each in keys])
        offset, there = course.at(np.repeat(call, size[views]), session, numbers[key])
        before = np.array([NONE if each is None else each for each in offsets], np.int64)
        return Partitions(call, size[views], key, np.where(there, offset, before[key]), keys)


class Given:
    """What the calls of a batch are given."""

    def __init__(self, rows: Ints) -> None:
        """`rows`: of the calls in their batch."""
        self._rows = rows
        self._lines: list[Ints] = []
        self._count = 0
        self._made: dict[int, int] = {}
        self._topics: list[tuple[Topic, ...]] = []
        self._held: list[tuple[Ints, Ints]] = []
        self._shown: list[Partitions] = []

    def line(self, topics: tuple[Topic, ...]) -> int:
        """The number of these topics, the same object as long as they stay."""
        line = self._made.setdefault(id(topics), len(self._topics))
        if line == len(self._topics):
            self._topics.append(topics)
        return line

    def take(self, lines: Ints, said: Mentions, held: tuple[Ints, Ints], shown: Partitions | None) -> None:
        """The next calls have these lines of topics; mentions of partitions that go by offsets of before, and
        those; partitions of calls that brought nothing."""
        self._held.append((said.place[held[0]], held[1]))
        if shown:
            self._shown.append(shown._replace(call=shown.call + self._count))
        self._lines.append(lines)
        self._count += len(lines)

    def into(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """`batch` with all this."""
        partitions = self._partitions(batch["partitions"])
        batch = patch.column(batch, "partitions", partitions)
        for name, place in (("topics", 0), ("topic_ids", 1)):
            batch = patch.column(batch, name, self._texts(batch[name], place))
        return batch

    def _texts(self, column: pa.ListArray, place: int) -> pa.ListArray | None:
        """Names or uuids of topics. Most calls of a session are about the same ones: made once."""
        values = [[topic[place] for topic in topics] for topics in self._topics]
        # Brokers of before give no uuids at all.
        some = np.array([any(each) or (place == 0 and bool(each)) for each in values], np.bool_)
        line = np.concatenate(self._lines)
        chosen = some[line]
        if not chosen.any():
            return None
        return patch.whole(column, self._rows[chosen], pa.array(values, TEXTS), line[chosen])

    def _partitions(self, column: pa.ListArray) -> pa.ListArray | None:
        places, offsets = (np.concatenate(each) for each in zip(*self._held, strict=True))
        if not len(places) and not self._shown:
            return None
        if len(places):
            structs = lists.spread(column).values
            fetched = _with(structs.field("fetch_offset"), places, offsets)
            column = patch.elements(column, patch.field(structs, "fetch_offset", fetched))
        if self._shown:
            shown = _joined(self._shown)
            column = patch.whole(column, self._rows[shown.call], _listed(shown), np.arange(len(shown.call)))
        return column


def _joined(parts: list[Partitions]) -> Partitions:
    before = lists.starts(np.array([len(part.keys) for part in parts]))
    key = np.concatenate([part.key + first for part, first in zip(parts, before.tolist(), strict=True)])
    call, size, offset = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("call", "size", "offset")
    )
    return Partitions(call, size, key, offset, [key for part in parts for key in part.keys])


def _with(column: pa.Array, places: Ints, offsets: Ints) -> pa.Array:
    found = integers(column, NONE).copy()
    found[places] = offsets
    return numbers(found, column.type)


def _listed(given: Partitions) -> pa.ListArray:
    """As a column of lists like `partitions`."""
    index = pa.array(given.key)
    columns: dict[str, Any] = {
        name: pa.array([key[at] for key in given.keys], PARTITION.field(name).type).take(index)
        for at, name in enumerate(("topic", "topic_id", "partition"))
    }
    columns["fetch_offset"] = numbers(given.offset, pa.int64())
    arrays = [columns.get(field.name, pa.nulls(len(index), field.type)) for field in PARTITION]
    structs = pa.StructArray.from_arrays(arrays, fields=list(PARTITION))
    return lists.rebuilt(structs, given.size, np.zeros(len(given.size), np.bool_))
