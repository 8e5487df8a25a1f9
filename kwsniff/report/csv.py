"""Writes CSV files: UTF-8, a header line, comma, text in double quotes, nothing for null, times as ISO 8601
in UTC with microseconds. A file is written beside its place and then renamed, so that a reader never finds
half of one."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
from pyarrow import csv as arrow_csv

from kwsniff.report.text import json_printable, printable_column, spreadsheet_safe
from kwsniff.report.times import iso_times

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
    return pa.schema([(field.name, _shown_type(field.type)) for field in schema])


def shown(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """`batch` with the columns of its `shown_schema`, text made safe for spreadsheets."""
    columns = [_shown(column, name) for name, column in zip(batch.schema.names, batch.columns, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _shown_type(kind: pa.DataType) -> pa.DataType:
    return pa.string() if pa.types.is_timestamp(kind) else kind


def _shown(column: pa.Array, name: str) -> pa.Array:
    if pa.types.is_timestamp(column.type):
        return iso_times(column)
    if name in OWN_WORDS or not pa.types.is_string(column.type):
        return column
    return printable_column(column, json_printable) if name in BODIES else spreadsheet_safe(column)
