"""Events on their way to their place, in files that tasks write and read themselves.

A file has a name of its own for each attempt at a task; the attempt that succeeds tells it. Rows have a
`position`: sorted by it, those of all files are in the order of one process.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa

from kwsniff.capture.place import Place
from kwsniff.engine.analyze import Ints
from kwsniff.run.part import Emitted
from kwsniff.spark import ordering
from kwsniff.spark.files import Folders, Stored, Writing, rows_of, undone
from kwsniff.spark.results import as_rows
from kwsniff.spark.resulttables import OF_EVENTS, ROWS, TABLES

PLACE = ("position", "rank", "number")
"""What rows are sorted by: rows that one packet settled of several connections have the same position."""
STAGED = pa.schema([*ROWS, pa.field("rank", pa.int64()), pa.field("number", pa.int64())])
"""ROWS, and what orders those of the same position (`kwsniff.engine.emitter`); `number` is also that of the
connection in the run that told it."""
RUN_BITS = 52
"""Bits of a position below the number of the run."""
ROWS_AT_ONCE = 1 << 14
GROUP_BYTES = 16 << 20
"""Rows wait until there are `ROWS_AT_ONCE` of them, or so many bytes: few at a time are slow to read."""


@dataclass(frozen=True, slots=True)
class Staged:
    """A file of rows."""

    path: str
    rows: int
    bytes: int
    named: bool
    """Rows in it give names to topics' uuids, or may do so."""
    split: int | None = None
    """The split whose events they are: they may have to be put right."""
    table: str | None = None
    """The table of an earlier version whose file it is: its rows are counted, and stay where they are."""
    sessions: str | None = None
    """The file with its calls of fetch sessions, which may go on in others (`kwsniff.spark.learnt`)."""
    first: int | None = None
    end: int | None = None
    """Positions between which its split's rows are in this file: `end` and those behind are in the next one;
    None for the split's own beginning and end."""


class StagedFile(Writing):
    """Rows as Arrow's own format, which is written and read several times as fast as Parquet. Raises OSError.

    They are compressed with lz4: zstd would make them 40 % smaller, and take twice as long to write and read.
    """

    def __init__(self, place: Place, schema: pa.Schema = ROWS) -> None:
        """`place` gives the beginning of the name; rows are ROWS or STAGED."""
        self._schema = schema
        stem, dot, suffix = place.url.rpartition(".")
        self._place = Place(f"{stem}-{uuid4().hex[:12]}{dot}{suffix}")
        self._rows, self._named = 0, False
        self._waiting: list[pa.RecordBatch] = []
        self._count = self._bytes = self._size = 0
        self._stream = self._place.create()
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        self._writer = pa.ipc.new_file(self._stream, schema, options=options)

    def finish(self) -> None:
        self._flush()
        self._writer.close()
        self._size = self._stream.tell()
        self._stream.close()

    def abandon(self) -> None:
        undone(self._writer.close, self._stream.close, self._place.remove)

    def add(self, batch: pa.RecordBatch) -> None:
        """Take rows."""
        self._rows += batch.num_rows
        self._named = self._named or batch["topic_ids"].null_count < batch.num_rows
        self._waiting.append(batch)
        self._count += batch.num_rows
        self._bytes += batch.nbytes
        if self._count >= ROWS_AT_ONCE or self._bytes >= GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        waiting, self._waiting, self._count, self._bytes = self._waiting, [], 0, 0
        if waiting:
            self._writer.write_table(pa.Table.from_batches(waiting, self._schema).combine_chunks())

    @property
    def written(self) -> int:
        """Bytes so far, without rows that wait."""
        size: int = self._stream.tell()
        return size

    def emitted(self, split: int | None = None) -> Staged:
        """What was written, once it is."""
        return Staged(self._place.url, self._rows, self._size, self._named, split)


def stored(path: str, columns: Iterable[str] = ROWS.names, table: str | None = None) -> Iterator[Any]:
    """The rows of a `StagedFile`, or of a file of a table, or some columns of them. Raises OSError."""
    wanted = list(columns)
    if table is not None:
        known = [name for name in wanted if name in TABLES[table].schema.names]
        for batch in rows_of(Place(path), known, ROWS_AT_ONCE):
            yield as_rows(batch, str(TABLES[table].kind)).select(wanted)
        return
    included = [STAGED.get_field_index(name) for name in wanted]
    with Place(path).open() as source:
        file = pa.ipc.open_file(source, options=pa.ipc.IpcReadOptions(included_fields=included))
        for index in range(file.num_record_batches):
            yield file.get_batch(index).select(wanted)


class Tables(Writing):
    """Rows into the files of their tables: what one task writes. Raises OSError."""

    def __init__(
        self, out: Place, below: Mapping[str, str], name: str, metadata: Mapping[str, Mapping[str, str]]
    ) -> None:
        """`below` names the directory in `out` for each table; files are called `name` and more."""
        self._folders = [
            Folders(table, out, below[table.name], name, metadata.get(table.name)) for table in OF_EVENTS
        ]

    def finish(self) -> None:
        for folders in self._folders:
            folders.finish()

    def abandon(self) -> None:
        for folders in self._folders:
            folders.abandon()

    def add(self, batch: pa.RecordBatch) -> None:
        """Take rows (ROWS)."""
        for table, folders in zip(OF_EVENTS, self._folders, strict=True):
            folders.add(batch, table.places(batch))

    @property
    def stored(self) -> list[Stored]:
        """What was written, once the block is over."""
        return [each for folders in self._folders for each in folders.stored]


def positioned(batch: pa.RecordBatch, keys: Ints, run: int) -> pa.RecordBatch:
    """EVENTS as ROWS, with the keys that order them as positions behind those of earlier runs."""
    return pa.RecordBatch.from_arrays([*batch.columns, pa.array(keys + (run << RUN_BITS))], schema=ROWS)


def placed(emitted: Emitted, run: int) -> pa.RecordBatch:
    """Rows of a part as STAGED, behind those of earlier runs."""
    place = (emitted.keys + (run << RUN_BITS), emitted.ranks, emitted.numbers)
    return pa.RecordBatch.from_arrays([*emitted.batch.columns, *map(pa.array, place)], schema=STAGED)


def ascending(positions: Ints, last: int) -> Ints:
    """The same, but later ones where one is not behind the one before, or the first not behind `last`: rows
    that one packet settled stay in their order."""
    steps = np.arange(len(positions))
    made: Ints = np.maximum.accumulate(np.maximum(positions - steps, last + 1)) + steps
    return made


def merged(sources: Iterable[Iterator[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
    """The rows of several sources in the order of their positions, in which each one's batches are."""
    return ordering.merged([(0, map(_in_order, source)) for source in sources], ["position"])


def _in_order(batch: pa.RecordBatch) -> pa.RecordBatch:
    positions = batch["position"].to_numpy()
    if (positions[1:] < positions[:-1]).any():
        return batch.take(pa.array(np.argsort(positions, kind="stable")))
    return batch
