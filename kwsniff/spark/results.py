"""Reading a result: its tables as they were published last, wherever they lie."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from kwsniff.spark import manifest
from kwsniff.spark.files import rows_of
from kwsniff.spark.manifest import Manifest, OutputError
from kwsniff.spark.resulttables import OF_EVENTS, ROWS, TABLES
from kwsniff.spark.storage import Place


class Results:
    """The result in `out`, as it was when this was made: `Results("results").table("calls").to_pandas()`.

    Raises:
        OutputError: there is none.
        OSError: it cannot be read.
    """

    def __init__(self, out: Any) -> None:
        self.place = Place.of(out)
        found = manifest.read(self.place)
        if found is None:
            raise OutputError(f"{self.place}: holds no results")
        self.manifest: Manifest = found

    def files(self, table: str) -> list[str]:
        """The Parquet files of a table, as paths or URLs."""
        return [(self.place / file.path).url for file in self.manifest.tables.get(table, ())]

    def table(self, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows of a table (one of `kwsniff.spark.resulttables.TABLES`), by time within each file, or some
        columns of them."""
        schema = TABLES[name].schema
        wanted = schema if columns is None else pa.schema([schema.field(each) for each in columns])
        batches = [batch for url in self.files(name) for batch in rows_of(Place(url), wanted.names)]
        return pa.Table.from_batches([batch.cast(wanted) for batch in batches], wanted)

    def events(self) -> pa.Table:
        """Calls, anomalies and connections as rows of EVENTS with `position`, in the order of one process."""
        parts = []
        for table in OF_EVENTS:
            for batch in self.table(table.name).to_batches():
                parts.append(as_rows(batch, str(table.kind)))
        return pa.Table.from_batches(parts, ROWS).sort_by("position")


def as_rows(batch: pa.RecordBatch, kind: str) -> pa.RecordBatch:
    """Rows of a table as EVENTS with positions."""
    known = set(batch.schema.names)
    arrays = [
        batch[field.name].cast(field.type)
        if field.name in known
        else pa.array([kind] * batch.num_rows, field.type)
        if field.name == "event"
        else pa.nulls(batch.num_rows, field.type)
        for field in ROWS
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=ROWS)
