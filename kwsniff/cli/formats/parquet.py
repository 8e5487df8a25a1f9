"""Events as Parquet: the schema of `kwsniff.table.EVENTS`, the same bytes for the same events."""

from __future__ import annotations

from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

from kwsniff.cli.formats.sink import Sink
from kwsniff.columns import parquet_options
from kwsniff.table import EVENTS

GROUP_ROWS = 32_768
GROUP_BYTES = 24 << 20
"""A row group ends at whichever comes first, so that bodies (`--full`) do not make it outgrow memory."""


class ParquetWriter:
    """Collects batches into row groups; the file is readable once `close` has written its footer."""

    note = ""

    def __init__(self, stream: IO[bytes], columns: list[str] | None = None) -> None:
        self._schema = EVENTS if columns is None else pa.schema([EVENTS.field(name) for name in columns])
        self._writer = pq.ParquetWriter(Sink(stream), self._schema, **parquet_options(self._schema))
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
