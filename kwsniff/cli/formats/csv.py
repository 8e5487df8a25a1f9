"""Events as CSV: a header, then one row per event; lists become text as in the report's calls.csv."""

from __future__ import annotations

from typing import IO

import pyarrow as pa
from pyarrow import csv

from kwsniff.cli.formats.sink import Sink
from kwsniff.report.calls import scalar_columns, scalar_schema
from kwsniff.report.csv import shown, shown_schema
from kwsniff.table import EVENTS


class CsvWriter:
    """Streams rows; the header stands even above no rows at all."""

    note = ""

    def __init__(self, stream: IO[bytes], columns: list[str] | None = None) -> None:
        self._scalars = scalar_schema(columns if columns is not None else EVENTS.names)
        self._shown = shown_schema(self._scalars)
        self._writer = csv.CSVWriter(Sink(stream), self._shown)

    def write(self, batch: pa.RecordBatch) -> None:
        """Write the rows of `batch`, which has the columns of EVENTS."""
        self._writer.write_batch(shown(scalar_columns(batch, self._scalars), self._shown))

    def close(self) -> None:
        """Nothing follows the last row."""
        self._writer.close()
