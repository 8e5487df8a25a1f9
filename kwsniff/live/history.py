"""What happened in each interval, by API: a CSV file that grows by a few rows each time.

The figures of an interval are of the calls that were completed in it. Its percentiles are exact up to
`kwsniff.report.condensed.LIMIT` calls an interval.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from kwsniff.report import waiting
from kwsniff.report.arrays import Ints
from kwsniff.report.codes import Codes
from kwsniff.report.condensed import Condensed
from kwsniff.report.csv import shown, shown_schema
from kwsniff.report.percentiles import QUANTILES
from kwsniff.table import TIMESTAMP

SCHEMA = pa.schema(
    [
        ("time", TIMESTAMP),
        ("interval_s", pa.float64()),
        ("api", pa.string()),
        ("calls", pa.int64()),
        ("errors", pa.int64()),
        ("unanswered", pa.int64()),
        ("latency_p50_us", pa.float64()),
        ("latency_p95_us", pa.float64()),
        ("latency_p99_us", pa.float64()),
        ("request_bytes", pa.int64()),
        ("response_bytes", pa.int64()),
    ]
)
"""`time` is the end of the interval, `interval_s` its length; the others are as in the report's api.csv."""

SUMS = ("calls", "errors", "unanswered", "request_bytes", "response_bytes")


class Interval:
    """The calls of one interval by API."""

    def __init__(self) -> None:
        self._apis = Codes()
        self._names: dict[int, str] = {}
        self._sums = {name: np.zeros(0, np.int64) for name in SUMS}
        self._latency = Condensed()

    def add(self, calls: pa.RecordBatch) -> None:
        """Count calls (EVENTS rows that are calls)."""
        api = self._apis.encode(calls["api_key"])
        self._learn(calls)
        columns = {
            "calls": np.ones(calls.num_rows, np.int64),
            "errors": (_ints(calls["error_code"]) != 0).astype(np.int64),
            "unanswered": _ints(pc.equal(calls["status"], "unanswered")),
            "request_bytes": _ints(calls["request_bytes"]),
            "response_bytes": _ints(calls["response_bytes"]),
        }
        for name, values in columns.items():
            known = self._sums[name]
            self._sums[name] = np.append(known, np.zeros(len(self._apis) - len(known), np.int64))
            np.add.at(self._sums[name], api, values)
        service = ~waiting.waited(calls)
        latency = calls["latency_us"].to_numpy(zero_copy_only=False)
        self._latency.add(api[service], latency[service])

    def rows(self, begin_ns: int, end_ns: int) -> pa.RecordBatch:
        """A row for each API that had calls, most first."""
        keys = self._apis.values
        order = np.argsort(-self._sums["calls"], kind="stable")
        found = self._latency.quantiles(np.arange(len(keys)), len(keys))
        columns: dict[str, Any] = {name: values[order] for name, values in self._sums.items()}
        columns |= {
            "time": [end_ns // 1000] * len(keys),
            "interval_s": [(end_ns - begin_ns) / 1e9] * len(keys),
            "api": [self._name(keys[code]) for code in order.tolist()],
        }
        for place, name in enumerate(QUANTILES):
            columns[f"latency_{name}_us"] = found[order, place]
        arrays = [pa.array(columns[field.name], from_pandas=True) for field in SCHEMA]
        typed = [array.cast(field.type) for array, field in zip(arrays, SCHEMA, strict=True)]
        return pa.RecordBatch.from_arrays(typed, schema=SCHEMA)

    def _learn(self, calls: pa.RecordBatch) -> None:
        pairs = pa.table({"key": calls["api_key"], "name": calls["api"]}).drop_null()
        for row in pairs.group_by(["key", "name"]).aggregate([]).to_pylist():
            self._names.setdefault(row["key"], row["name"])

    def _name(self, key: int | None) -> str | None:
        return None if key is None else self._names.get(key, f"key {key}")


class HistoryFile:
    """Appends to a history, or begins one. Rows are added by one write, so that `tail -f` can follow; who
    reads just then may find the last line unfinished, as the file system adds page by page."""

    def __init__(self, path: Path) -> None:
        """Raises OSError if it cannot be written, ValueError if the file that is there is no such history."""
        self._path = path
        self._start = _csv(SCHEMA.empty_table(), header=True)
        if not path.exists() or not path.stat().st_size:
            path.write_bytes(self._start)
            return
        with path.open("rb+") as file:
            if file.read(len(self._start)) != self._start:
                raise ValueError("has other columns")
            file.seek(-1, io.SEEK_END)
            if file.read() != b"\n":  # the session before was killed while it wrote
                file.write(b"\n")

    def append(self, rows: pa.RecordBatch) -> None:
        """Add rows. Raises OSError."""
        with self._path.open("ab", buffering=0) as file:
            if not file.tell():  # removed meanwhile, as by a rotation
                file.write(self._start)
            file.write(_csv(pa.Table.from_batches([rows]), header=False))


def _csv(table: pa.Table, *, header: bool) -> bytes:
    schema = shown_schema(table.schema)
    text = io.BytesIO()
    batches = [shown(batch, schema) for batch in table.to_batches()]
    csv.write_csv(pa.Table.from_batches(batches, schema), text, csv.WriteOptions(include_header=header))
    return text.getvalue()


def _ints(column: pa.Array) -> Ints:
    values: Ints = pc.fill_null(column.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
    return values
