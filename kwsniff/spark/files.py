"""Rows of a table as Parquet files in folders by date and hour, each file sorted by time.

Theory of operation. Rows come in the order in which they were completed, which is nearly that of their times.
So each file holds some rows back: when it has `HELD` of them it sorts them and writes the earlier half. A row
that comes after later ones were written (a request that nobody ever answered is known when its connection
ends) is *late*: such rows are kept apart, and are a sorted file of their own in the end.

At most `MAX_OPEN` hours are open, which hold `OPEN_BYTES` together: the one that was not written to for
longest is rarely wanted again. If it is, it gets a second file.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Self
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kwsniff.capture.place import Place
from kwsniff.rows.arrays import Ints, column, parquet_options
from kwsniff.spark.ordering import WITHOUT_TIME, Held, Some, merged
from kwsniff.spark.resulttables import TABLES, LakeTable

NOWHERE = "__HIVE_DEFAULT_PARTITION__"
"""Where rows without a time lie, as Spark and Hive name it."""
HOUR = 3_600_000_000
"""Microseconds."""
NO_HOUR = WITHOUT_TIME // HOUR
HELD = 1 << 16
HELD_BYTES = 48 << 20
"""Rows that a file holds back, and their bytes."""
MAX_OPEN = 48
OPEN_BYTES = 96 << 20
"""Hours whose files are open, and bytes of the rows that all of them hold back."""


class Writing:
    """What is written in a block: finished at its end, and gone if the block or that fails."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        finished = False
        try:
            if kind is None:
                self.finish()
                finished = True
        finally:
            if not finished:
                self.abandon()

    def finish(self) -> None:
        """Write what is left. Raises OSError."""
        raise NotImplementedError

    def abandon(self) -> None:
        """Leave nothing behind."""
        raise NotImplementedError


def undone(*steps: Callable[[], object]) -> None:
    """Do what takes back what was written, as far as that can be done."""
    for step in steps:
        with suppress(OSError, pa.ArrowException):
            step()


@dataclass(frozen=True, slots=True)
class Stored:
    """A file of a table."""

    table: str
    path: str
    """Below the place of the results."""
    hour: int
    """Since 1970 UTC; NO_HOUR for rows without a time."""
    rows: int
    bytes: int
    first: int | None = None
    last: int | None = None
    """Times of its first and last row, in microseconds since 1970 UTC."""


class SortedFile:
    """One new file of sorted rows, which are added in their order."""

    def __init__(self, table: LakeTable, place: Place, metadata: Mapping[str, str]) -> None:
        self._table, self.place = table, place
        self.rows = 0
        self.first: int | None = None
        self.last: int | None = None
        schema = table.schema
        self.schema = schema.with_metadata({**(schema.metadata or {}), **metadata})
        order = [pq.SortingColumn(schema.get_field_index(name)) for name in table.order]
        self._stream = place.create()
        self._writer = pq.ParquetWriter(
            self._stream, self.schema, sorting_columns=order, **parquet_options(self.schema)
        )

    def add(self, rows: pa.Table | pa.RecordBatch) -> None:
        """Write rows that are sorted, and later than those before. Raises OSError."""
        if rows.num_rows:
            times = rows[self._table.time].cast(pa.int64())
            self.first = times[0].as_py() if self.first is None else self.first
            self.last = times[-1].as_py()
            self.rows += rows.num_rows
            table = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
            self._writer.write_table(table.replace_schema_metadata(self.schema.metadata).combine_chunks())

    def close(self) -> int:
        """Finish the file; gives its size in bytes. Raises OSError."""
        self._writer.close()
        size: int = self._stream.tell()
        self._stream.close()
        return size

    def abandon(self) -> None:
        """Leave nothing behind."""
        undone(self._writer.close, self._stream.close, self.place.remove)


class _Hour:
    """The rows of one hour: a file, and late rows."""

    def __init__(self, make: Callable[[], SortedFile], schema: pa.Schema) -> None:
        self._make = make
        self._waiting, self._late = Held(schema), Held(schema)
        self._mark: int | None = None
        """Time of the last row that was written."""
        self._file: SortedFile | None = None
        self.files: list[SortedFile] = []

    def add(self, rows: Some) -> None:
        if self._mark is not None:
            early = rows.times < self._mark
            if early.any():
                self._late.add(rows.where(early))
                if self._late.bytes >= HELD_BYTES:
                    self._write_late()
                rows = rows.where(~early)
        self._waiting.add(rows)
        if self._waiting.rows >= HELD or self._waiting.bytes >= HELD_BYTES:
            self._write(self._waiting.rows // 2)

    @property
    def bytes(self) -> int:
        """Of what waits."""
        return self._waiting.bytes + self._late.bytes

    def _write(self, count: int | None = None) -> None:
        """Write the first ones, or all."""
        if not self._waiting.rows:
            return
        if self._file is None:
            self._file = self._new()
        self._file.add(self._waiting.take(count))
        self._mark = self._file.last

    def _write_late(self) -> None:
        if self._late.rows:
            self._new().add(self._late.take())

    def _new(self) -> SortedFile:
        made = self._make()
        self.files.append(made)
        return made

    def finish(self) -> None:
        self._write()
        self._write_late()


class Folders(Writing):
    """The rows of one table that one task writes, `PLACE/date=2026-11-21/hour=7/NAME-….parquet`. Raises
    OSError."""

    def __init__(
        self, table: LakeTable, root: Place, below: str, name: str, metadata: Mapping[str, str] | None = None
    ) -> None:
        """Files lie in the directory `below` of `root`."""
        self._table, self._root, self._below, self._name = table, root, below, name
        self._metadata = metadata or {}
        self._open: dict[int, _Hour] = {}
        """Latest last."""
        self.stored: list[Stored] = []
        """What was written, once the block is over."""

    def finish(self) -> None:
        for hour in list(self._open):
            self._close(hour)

    def abandon(self) -> None:
        undone(*(file.abandon for each in self._open.values() for file in each.files))
        undone(*((self._root / known.path).remove for known in self.stored))

    def add(self, rows: pa.RecordBatch, places: Ints | None = None) -> None:
        """Take rows of the table, or those at these places of rows that may have more columns."""
        if not (rows.num_rows if places is None else len(places)):
            return
        some = Some.of(self._table, rows, places)
        hours = some.times // HOUR
        if (hours == hours[0]).all():
            self._put(int(hours[0]), some)
            return
        for hour in pc.unique(column(hours, pa.int64())).to_pylist():
            self._put(hour, some.where(hours == hour))

    def _put(self, hour: int, rows: Some) -> None:
        self._hour(hour).add(rows)
        while len(self._open) > 1 and sum(each.bytes for each in self._open.values()) > OPEN_BYTES:
            self._close(next(iter(self._open)))

    def add_sorted(self, hour: int, rows: Iterable[pa.RecordBatch]) -> None:
        """Take rows of one hour that are sorted already, as one file."""
        known = self._hour(hour)
        known.files.append(self._file(hour))
        for some in rows:
            known.files[-1].add(some)

    def _hour(self, hour: int) -> _Hour:
        known = self._open.pop(hour, None)
        if known is None:
            if len(self._open) >= MAX_OPEN:
                self._close(next(iter(self._open)))
            known = _Hour(lambda: self._file(hour), self._table.schema)
        self._open[hour] = known
        return known

    def _file(self, hour: int) -> SortedFile:
        name = f"{self._name}-{uuid4().hex[:12]}.parquet"
        return SortedFile(self._table, self._root / self._below / folder(hour) / name, self._metadata)

    def _close(self, hour: int) -> None:
        self._open[hour].finish()
        for file in self._open.pop(hour).files:
            path = file.place.relative_to(self._root)
            size = file.close()
            self.stored.append(Stored(self._table.name, path, hour, file.rows, size, file.first, file.last))


def folder(hour: int) -> str:
    """Where rows of an hour since 1970 UTC lie."""
    date, number = partition(hour)
    return f"date={date or NOWHERE}/hour={NOWHERE if number is None else number}"


def partition(hour: int) -> tuple[str | None, int | None]:
    """Date and hour of the day; None for rows without a time."""
    if hour == NO_HOUR:
        return None, None
    time = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(hours=hour)
    return f"{time:%Y-%m-%d}", time.hour


def rows_of(place: Place, columns: Sequence[str] | None = None, at_once: int = 1 << 15) -> Iterator[Any]:
    """The rows of a Parquet file, some thousands at a time. Raises OSError."""
    with place.open() as stream, pq.ParquetFile(stream) as file:
        yield from file.iter_batches(at_once, columns=None if columns is None else list(columns))


# Small files of a table made into larger ones: the same rows, sorted, in new files. Only files of one hour
# are joined, and only ones that are small. Those that were joined stay until no manifest names them.

SMALL = 4 << 20
"""Bytes of a file that counts as small, of which a stream goes on making more: some ten thousand calls."""
TINY, SEVERAL = 1 << 20, 4
"""The same where no more will come, and how many of an hour are joined: it costs as much as writing did."""
FULL = 32 << 20
FULL_ROWS = 500_000
"""What is joined at a time."""
AT_ONCE = 1 << 14
"""Rows of a file that are read at a time."""


def bundles(
    files: Iterable[Stored], least: int = 2, *, small: int = SMALL, over: Container[int] = frozenset()
) -> list[list[Stored]]:
    """Files below `small` bytes to be joined, at least `least` each, or two of hours that are `over`; those
    that are well as they are are in none."""
    hours: dict[tuple[str, int], list[Stored]] = {}
    for file in files:
        if file.bytes < small and file.rows < FULL_ROWS:
            hours.setdefault((file.table, file.hour), []).append(file)
    found: list[list[Stored]] = []
    for (_, hour), together in hours.items():
        own: list[list[Stored]] = []
        size = rows = 0
        for file in together:
            if not own or size + file.bytes > FULL or rows + file.rows > FULL_ROWS:
                own.append([])
                size = rows = 0
            own[-1].append(file)
            size, rows = size + file.bytes, rows + file.rows
        wanted = 2 if hour in over else least
        found += [bundle for bundle in own if len(bundle) >= wanted]
    return found


def joined(
    bundle: Sequence[Stored], root: Place, below: str, metadata: Mapping[str, Any] | None = None
) -> Stored:
    """The rows of a bundle in one new file in the directory `below` of `root`. Raises OSError."""
    table = TABLES[bundle[0].table]
    names = table.schema.names
    files = [rows_of(root / file.path, names, AT_ONCE) for file in bundle]
    sources = [
        (file.first or 0, (batch.cast(table.schema) for batch in rows))
        for file, rows in zip(bundle, files, strict=True)
    ]
    with Folders(table, root, below, "joined", metadata) as folders:
        folders.add_sorted(bundle[0].hour, merged(sources, table.order))
    return folders.stored[0]
