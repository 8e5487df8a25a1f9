"""Events as CSV: a header, then one row per event; lists become text as in the report's calls.csv.

Compiled, a kernel writes the lines (`kwsniff.cli.formats.lines`), else Arrow does: the bytes are the same.
"""

from __future__ import annotations

from typing import IO

import pyarrow as pa

from kwsniff.native.code import WRITE, load
from kwsniff.table import EVENTS


class CsvWriter:
    """Streams rows; the header stands even above no rows at all."""

    note = ""

    def __init__(self, stream: IO[bytes], columns: list[str] | None = None) -> None:
        names = columns if columns is not None else EVENTS.names
        self._writer = _ByArrow(stream, names) if load(WRITE) is None else _ByKernel(stream, names)

    def write(self, batch: pa.RecordBatch) -> None:
        """Write the rows of `batch`, which has the columns of EVENTS."""
        self._writer.write(batch)

    def close(self) -> None:
        """Nothing follows the last row."""
        self._writer.close()


class _ByKernel:
    def __init__(self, stream: IO[bytes], names: list[str]) -> None:
        from kwsniff.cli.formats.lines import Lines

        self._stream, self._lines = stream, Lines(names)
        stream.write(self._lines.header())

    def write(self, batch: pa.RecordBatch) -> None:
        for text in self._lines.of(batch):
            self._stream.write(text)

    def close(self) -> None:
        pass


class _ByArrow:
    def __init__(self, stream: IO[bytes], names: list[str]) -> None:
        from pyarrow import csv

        from kwsniff.cli.formats.sink import Sink
        from kwsniff.report.calls import scalar_schema
        from kwsniff.report.csv import shown_schema

        self._scalars = scalar_schema(names)
        self._shown = shown_schema(self._scalars)
        self._writer = csv.CSVWriter(Sink(stream), self._shown)

    def write(self, batch: pa.RecordBatch) -> None:
        from kwsniff.report.calls import scalar_columns
        from kwsniff.report.csv import shown

        self._writer.write_batch(shown(scalar_columns(batch, self._scalars), self._shown))

    def close(self) -> None:
        self._writer.close()
