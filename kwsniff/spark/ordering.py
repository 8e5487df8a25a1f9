"""Rows put in order: those that wait to be written, and those of several sources that are in order each.

Theory of operation. Taking rows out of a batch costs half as much as writing them. So who chooses rows, by
their table, their hour, or because they are late, passes on the batch and the rows' places in it, and only
when rows are written are they taken, in their order. A batch stays in memory for the sake of a few rows
only up to a point: when most of its rows are gone, the others are taken out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kwsniff.rows.arrays import Columns, Ints, filled_columns, in_order, places, record_batch
from kwsniff.rows.columns import integers
from kwsniff.spark.resulttables import POSITION, LakeTable

WITHOUT_TIME = -3_600_000_000
"""Microseconds since 1970 that stand for no time: an hour before it."""
LEAST_SHARE = 2
"""One in so many rows of a batch waits, or it is let go."""


@dataclass(frozen=True, slots=True)
class Some:
    """Some rows of a batch, in their order."""

    columns: Columns
    """Of the whole batch; those of the table that have values."""
    count: int
    """Rows of the batch ..."""
    size: int
    """... and bytes of `columns`."""
    places: Ints
    """Where in the batch the rows are."""
    times: Ints
    """By which they are sorted, in microseconds since 1970 UTC ..."""
    positions: Ints
    """... and, at the same time, by these."""

    @classmethod
    def of(cls, table: LakeTable, batch: pa.RecordBatch, chosen: Ints | None = None) -> Some:
        """The rows of a batch, or those at these places; it may have more columns than the table."""
        columns = filled_columns(batch.select(table.schema.names))
        count = batch.num_rows
        at = np.arange(count) if chosen is None else chosen
        times = integers(batch[table.time], WITHOUT_TIME)
        positions = integers(batch[POSITION.name]) if POSITION.name in table.order else np.zeros_like(times)
        size = sum(column.nbytes for column in columns.values())
        return cls(columns, count, size, at, times[at], positions[at])

    def __len__(self) -> int:
        return len(self.places)

    @property
    def bytes(self) -> int:
        """Their share of the batch."""
        return self.size * len(self) // max(self.count, 1)

    def where(self, mask: NDArray[np.bool_]) -> Some:
        """Some of them."""
        return replace(self, places=self.places[mask], times=self.times[mask], positions=self.positions[mask])

    def apart(self) -> Some:
        """The same rows, without the batch if they are few of it."""
        if len(self) * LEAST_SHARE >= self.count:
            return self
        at = places(self.places)
        taken = {name: column.take(at) for name, column in self.columns.items()}
        columns = {name: column for name, column in taken.items() if column.null_count < len(column)}
        size = sum(column.nbytes for column in columns.values())
        return replace(self, columns=columns, count=len(self), size=size, places=np.arange(len(self)))


class Held:
    """Rows of one table that wait."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._waiting: list[Some] = []
        self.rows = self.bytes = 0

    def add(self, rows: Some) -> None:
        """Take rows."""
        if len(rows):
            rows = rows.apart()
            self._waiting.append(rows)
            self.rows += len(rows)
            self.bytes += rows.bytes

    def take(self, count: int | None = None) -> pa.RecordBatch:
        """So many rows, or all, first ones first, which then no longer wait."""
        waiting, self._waiting, self.rows, self.bytes = self._waiting, [], 0, 0
        times = np.concatenate([each.times for each in waiting])
        order = np.lexsort((np.concatenate([each.positions for each in waiting]), times))[:count]
        gone = np.zeros(len(times), np.bool_)
        gone[order] = True
        each_gone = np.split(gone, np.cumsum([len(each) for each in waiting])[:-1])
        batch = _taken(waiting, [bool(own.any()) for own in each_gone], order, self._schema)
        for own, mask in zip(waiting, each_gone, strict=True):
            self.add(own.where(~mask))
        return batch


def _taken(waiting: Sequence[Some], used: Sequence[bool], order: Ints, schema: pa.Schema) -> pa.RecordBatch:
    """The rows in this order of all that wait, which are of the batches that are `used`."""
    starts = np.cumsum([0, *(each.count * use for each, use in zip(waiting, used, strict=True))])
    at = np.concatenate([each.places + start for each, start in zip(waiting, starts[:-1], strict=True)])
    parts = [(each.columns, each.count) for each, use in zip(waiting, used, strict=True) if use]
    return record_batch(in_order(parts, at[order], schema), len(order), schema)


LATEST = 1 << 62
Source = tuple[int, Iterator[pa.RecordBatch]]
"""Rows that are in order, and a number that none of them is before."""


def merged(sources: Iterable[Source], order: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The rows of several sources in their order, some of each in memory at a time: as many go out as no
    source can still have something before. Columns of `order` are numbers or times."""
    closed = sorted(sources, key=lambda source: source[0])
    opened: list[_Read] = []
    while opened or closed:
        # A source that begins behind rows that are there is not wanted yet.
        while closed and (not opened or closed[0][0] <= min(each.safe for each in opened)):
            opened.append(_Read(closed.pop(0)[1], order[0]))
        upper = min(each.safe for each in opened)
        now = [rows for each in opened if (rows := each.before(upper)).num_rows]
        for each in opened:
            if each.safe == upper:
                each.extend()
        opened = [each for each in opened if each.more]
        if now:
            rows = pa.concat_tables(now).combine_chunks()
            if len(now) > 1:
                rows = rows.take(pc.sort_indices(rows, [(name, "ascending") for name in order]))
            yield from rows.to_batches()


class _Read:
    """The rows of a source that are still to be given, as far as they were read."""

    def __init__(self, source: Iterator[pa.RecordBatch], key: str) -> None:
        self._source, self._key = source, key
        self._rows: pa.Table | None = None
        self.safe = -LATEST
        """Rows that are before this one are all there."""
        self.extend()

    def extend(self) -> None:
        """Read on."""
        batch = next(self._source, None)
        if batch is None:
            self.safe = LATEST
            return
        read = pa.Table.from_batches([batch])
        self._rows = read if self._rows is None else pa.concat_tables([self._rows, read])
        if self._rows.num_rows:
            self.safe = int(self._keys()[-1])

    def before(self, key: int) -> pa.Table:
        """Take the rows before a number."""
        if self._rows is None:
            return pa.table({})
        count = int(np.searchsorted(self._keys(), key))
        rows, self._rows = self._rows.slice(0, count), self._rows.slice(count)
        return rows

    def _keys(self) -> Ints:
        """0 for rows without a time, which are in an hour of their own."""
        assert self._rows is not None
        keys: Ints = pc.fill_null(self._rows[self._key].cast(pa.int64()), 0).to_numpy()
        return keys

    @property
    def more(self) -> bool:
        """Whether there may be any."""
        return self.safe < LATEST or (self._rows is not None and self._rows.num_rows > 0)
