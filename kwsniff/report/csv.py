"""Writes CSV files: UTF-8, a header line, comma, text in double quotes, nothing for null, times as ISO 8601
in UTC with microseconds. A file is written beside its place and then renamed, so that a reader never finds
half of one."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv

from kwsniff.report.text import spreadsheet_safe


def write_frame(path: Path, frame: pd.DataFrame) -> None:
    """Write one Arrow-backed frame. Raises OSError if the file cannot be written."""
    table = pa.Table.from_pandas(frame, preserve_index=False)
    write_batches(path, table.schema, table.combine_chunks().to_batches())


def write_batches(path: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    """Write batches of scalar columns one after another. Raises OSError if the file cannot be written."""
    shown = pa.schema([(field.name, _shown_type(field.type)) for field in schema])
    with replacing(path) as file, arrow_csv.CSVWriter(file, shown) as writer:
        for batch in batches:
            arrays = [_shown(column) for column in batch.columns]
            writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=shown))


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


def _shown_type(kind: pa.DataType) -> pa.DataType:
    return pa.string() if pa.types.is_timestamp(kind) else kind


def _shown(column: pa.Array) -> pa.Array:
    if pa.types.is_timestamp(column.type):
        return iso_times(column)
    return spreadsheet_safe(column) if pa.types.is_string(column.type) else column


def iso_times(column: pa.Array) -> pa.Array:
    """Times as `2023-11-14T22:13:20.000001Z`."""
    text = column.cast(pa.timestamp("us")).cast(pa.string())
    text = pc.utf8_replace_slice(text, 10, 11, "T")
    return pc.binary_join_element_wise(text, "Z", "")
