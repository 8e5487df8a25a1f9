"""Events as CSV: a header, then one row per event, lists flattened into one text each.

A list is written with `;` between its items; of partitions, each is `topic:partition:error_code:records`.
A text that a spreadsheet would take for a formula gets a leading apostrophe.
"""

from __future__ import annotations

from typing import IO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from kwsniff.cli.formats.times import iso_times
from kwsniff.table import EVENTS

FORMULA = "^[=+@\t\r-]"
SLICE_ROWS = 16_384


class CsvWriter:
    """Streams rows; the header stands even above no rows at all."""

    def __init__(self, stream: IO[bytes], columns: list[str] | None = None) -> None:
        self._stream = stream
        self._columns = columns if columns is not None else EVENTS.names
        self._stream.write((",".join(self._columns) + "\n").encode())

    def write(self, batch: pa.RecordBatch) -> None:
        """Write the rows of `batch`, which has the columns of EVENTS."""
        options = pa.csv.WriteOptions(include_header=False, quoting_style="needed")
        for start in range(0, batch.num_rows, SLICE_ROWS):
            part = batch.slice(start, SLICE_ROWS)
            flat = pa.table({name: flattened(part[name]) for name in self._columns})
            sink = pa.BufferOutputStream()
            pa.csv.write_csv(flat, sink, options)
            self._stream.write(sink.getvalue())

    def close(self) -> None:
        """Nothing follows the last row."""


def flattened(values: pa.Array) -> pa.Array:
    """A column of numbers, truths or safe texts."""
    type_ = values.type
    if pa.types.is_timestamp(type_):
        return iso_times(values)
    if pa.types.is_string(type_):
        return _harmless(values)
    return values


def _harmless(texts: pa.Array) -> pa.Array:
    suspicious = pc.fill_null(pc.match_substring_regex(texts, FORMULA), False)
    if not pc.any(suspicious).as_py():
        return texts
    return pc.if_else(suspicious, pc.binary_join_element_wise("'", texts, ""), texts)
