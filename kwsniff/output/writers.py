"""Writes CSV and Parquet by Arrow.

CSV is UTF-8 with a header line, comma, text in double quotes, nothing for null, times as ISO 8601
in UTC with microseconds. A file is written beside its place and then renamed, so that a reader never finds
half of one."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv
from pyarrow import parquet

from kwsniff.output.text import (
    iso_times,
    json_printable,
    printable_column,
    replaced,
    spreadsheet_safe,
    text_bytes,
)
from kwsniff.rows.arrays import lists, parquet_options
from kwsniff.rows.schema import EVENTS

OWN_WORDS = frozenset(
    ("event", "connection", "api", "status", "error", "unanswered_because", "code", "security")
)
"""Columns of EVENTS whose texts are kwsniff's own, so that nothing in them needs to be made safe."""


BODIES = frozenset(("request", "response"))
"""Columns of EVENTS that hold JSON, and are to stay JSON."""


def write_table(path: Path, table: pa.Table) -> None:
    """Write one table. Raises OSError if the file cannot be written."""
    write_batches(path, table.schema, table.to_batches())


def write_batches(path: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    """Write batches of scalar columns one after another. Raises OSError if the file cannot be written."""
    schema = shown_schema(schema)
    with replacing(path) as file, arrow_csv.CSVWriter(file, schema) as writer:
        for batch in batches:
            writer.write_batch(shown(batch, schema))


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file that takes the place of `path` when the block ends well, and vanishes when it doesn't."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with beside.open("wb") as file:
            yield file
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def shown_schema(schema: pa.Schema) -> pa.Schema:
    """What scalar columns become in CSV: times are text, the others stay."""
    is_time = pa.types.is_timestamp
    return pa.schema([(each.name, pa.string() if is_time(each.type) else each.type) for each in schema])


def shown(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """`batch` with the columns of its `shown_schema`, text made safe for spreadsheets."""
    columns = [_shown(column, name) for name, column in zip(batch.schema.names, batch.columns, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _shown(column: pa.Array, name: str) -> pa.Array:
    if pa.types.is_timestamp(column.type):
        return iso_times(column)
    if name in OWN_WORDS or not pa.types.is_string(column.type):
        return column
    return printable_column(column, json_printable) if name in BODIES else spreadsheet_safe(column)


class Sink:
    """What Arrow's writers write to: a binary stream that knows how far it has come, as they ask and a pipe
    cannot tell."""

    closed = False

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._position = 0

    def write(self, data: bytes) -> int:
        if not self._stream.closed:  # a writer that is given up writes its footer when it is finalized
            self._stream.write(data)
        self._position += len(data)
        return len(data)

    def tell(self) -> int:
        return self._position

    def flush(self) -> None:
        self._stream.flush()

    def close(self) -> None:
        """The stream belongs to the caller."""

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False


GROUP_ROWS = 32_768
GROUP_BYTES = 24 << 20
"""A row group ends at whichever comes first, so that bodies (`--full`) do not make it outgrow memory."""


class ParquetWriter:
    """Events as Parquet, the same bytes for the same events: batches are collected into row groups. The file
    is readable once `close` has written its footer."""

    note = ""

    def __init__(self, stream: IO[bytes], columns: list[str] | None = None) -> None:
        self._schema = EVENTS if columns is None else pa.schema([EVENTS.field(name) for name in columns])
        self._writer = parquet.ParquetWriter(Sink(stream), self._schema, **parquet_options(self._schema))
        self._waiting: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Take the rows of `batch`; their bytes may follow later."""
        # Group boundaries depend on rows alone where they can, so that batch sizes leave the file as it is.
        while batch.num_rows:
            part = batch.slice(0, GROUP_ROWS - self._rows)
            self._take(part.select(self._schema.names))
            batch = batch.slice(part.num_rows)

    def _take(self, part: pa.RecordBatch) -> None:
        self._waiting.append(part)
        self._rows += part.num_rows
        self._bytes += part.nbytes
        if self._rows >= GROUP_ROWS or self._bytes >= GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._waiting:
            table = pa.Table.from_batches(self._waiting, self._schema)
            self._writer.write_table(table, row_group_size=GROUP_ROWS)
        self._waiting, self._rows, self._bytes = [], 0, 0

    def close(self) -> None:
        """Write the last row group and the footer."""
        self._flush()
        self._writer.close()


# Events as JSON Lines: one object per event, columns without a value left out.
#
# Theory of operation: no Python object is made per row. Every column becomes a column of JSON texts by
# Arrow kernels, nested ones from the inside out; the texts of a row are joined, nulls skipped, and wrapped.
# braces.

READY = ("request", "response")
"""Columns whose texts are JSON already."""
SLICE_ROWS = 4096
SLICE_BYTES = 8 << 20
"""Making the text of a slice takes several times its size."""

_ESCAPED = r'["\\]|[^ -~]'
_SUSPICIOUS = np.zeros(256, dtype=bool)
_SUSPICIOUS[[*range(0x20), ord('"'), ord("\\"), *range(0x7F, 0x100)]] = True
"""Bytes of text that may have to be escaped."""


class JsonlWriter:
    """Writes each row as an object on a line of its own, in UTF-8."""

    note = ""

    def __init__(self, stream: IO[bytes], columns: list[str] | None = None) -> None:
        self._stream = stream
        self._columns = columns if columns is not None else EVENTS.names

    def write(self, batch: pa.RecordBatch) -> None:
        """Write the rows of `batch`, which has the columns of EVENTS."""
        rows = SLICE_ROWS
        if batch.nbytes > SLICE_BYTES:
            rows = max(1, min(rows, batch.num_rows * SLICE_BYTES // batch.nbytes))
        for start in range(0, batch.num_rows, rows):
            self._stream.write(self._lines(batch.slice(start, rows)))

    def _lines(self, batch: pa.RecordBatch) -> memoryview:
        members = [
            _joined([json.dumps(name) + ":", printable_column(values, json_printable)])
            if name in READY
            else json_texts(values, json.dumps(name) + ":")
            for name in self._columns
            if (values := batch[name]).null_count < len(values)
        ]
        return text_bytes(_joined(["{", _listed(members, len(batch)), "}\n"])).data

    def close(self) -> None:
        """Nothing follows the last line."""


def _joined(parts: list[Any]) -> pa.Array:
    """The parts of each row one after the other; null if one is null."""
    return pc.binary_join_element_wise(*parts, "")


def _listed(members: list[pa.Array], rows: int) -> pa.Array:
    """The members of each row with commas between them, nulls left out."""
    if not members:
        return pa.repeat("", rows)
    some = functools.reduce(pc.or_, (member.is_valid() for member in members))
    if not pc.all(some).as_py():
        # Arrow 26 drops a row whose every part is null and skipped, so that later rows would move up.
        members = [pc.if_else(some, members[0], ""), *members[1:]]
    return pc.binary_join_element_wise(*members, ",", null_handling="skip")


def json_texts(values: pa.Array, before: str = "") -> pa.Array:
    """Each value as JSON text behind `before`; null stays null."""
    type_ = values.type
    if pa.types.is_string(type_):
        return _joined([before + '"', replaced(values, _SUSPICIOUS, _ESCAPED, _quoted), '"'])
    if pa.types.is_timestamp(type_):
        return _joined([before + '"', iso_times(values), '"'])
    if pa.types.is_list(type_):
        return _lists(values, before)
    if pa.types.is_struct(type_):
        return _objects(values, before)
    texts = values.cast(pa.string())
    if pa.types.is_floating(type_):
        # JSON knows no infinity and no NaN.
        texts = pc.if_else(pc.fill_null(pc.is_finite(values), True), texts, "null")
    return _joined([before, texts]) if before else texts


def _quoted(text: str) -> str:
    return json_printable(json.dumps(text, ensure_ascii=False)[1:-1])


def _lists(values: pa.Array, before: str) -> pa.Array:
    """A text for each list: the items' texts joined, `null` standing for an item without value."""
    items = pc.fill_null(json_texts(values.flatten()), "null")
    lengths = pc.fill_null(pc.list_value_length(values), -1).to_numpy(zero_copy_only=False)
    joined = pc.binary_join(lists(lengths.astype(np.int64), items, pa.list_(items.type)), ",")
    return _joined([before + "[", joined, "]"])


def _objects(values: pa.Array, before: str) -> pa.Array:
    members = [
        json_texts(part, json.dumps(field.name) + ":")
        for field, part in zip(values.type, values.flatten(), strict=True)
        if part.null_count < len(part)
    ]
    texts = _joined([before + "{", _listed(members, len(values)), "}"])
    return pc.if_else(values.is_valid(), texts, None) if values.null_count else texts
