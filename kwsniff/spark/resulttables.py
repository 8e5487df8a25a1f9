"""The tables of a result: which rows each has, its columns, how it is sorted, and what tells rows apart.

The columns of `calls`, `anomalies` and `connections` are those that `kwsniff.rows.schema` declares for their
kind of row. What each column means stays with it: in the metadata of the Arrow field, which Parquet keeps, as
`doc` and `unit`, and as `comment`, which Spark and Delta show."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kwsniff.analysis.lag import LAG
from kwsniff.analysis.rule import FINDINGS
from kwsniff.count.percentiles import QUANTILES
from kwsniff.rows.arrays import Ints
from kwsniff.rows.events import ANOMALY, CALL, CONNECTION, EXCHANGE
from kwsniff.rows.schema import COLUMNS, EVENTS, TIMESTAMP, Column, arrow_field

POSITION = pa.field(
    "position", pa.int64(), metadata={"doc": "sorts rows into the order of one process", "unit": "number"}
)
ROWS = pa.schema([*EVENTS, POSITION])
"""EVENTS with what orders them."""

_NUMPY = {pa.int64(): "Int64", pa.int32(): "Int32", pa.bool_(): "boolean"}
"""What pandas calls integers and flags that may be missing: without being told so, it makes them float."""


@dataclass(frozen=True)
class LakeTable:
    """One table of a result."""

    name: str
    kind: str | None
    """The kind of EVENTS rows that it holds; None: it is made of them."""
    meaning: str
    fields: tuple[pa.Field, ...]
    key: tuple[str, ...]
    """Columns that together tell its rows apart, and find the same row again in another run over the same
    packets: what to merge by."""
    time: str = "time"
    """The column by whose date and hour its rows lie in folders, and by which they are sorted."""

    @cached_property
    def schema(self) -> pa.Schema:
        """Its columns, documented, and what pandas is to make of them."""
        fields = [_commented(field) for field in self.fields]
        about = {"table": self.name, "meaning": self.meaning, "key": list(self.key)}
        return pa.schema(fields, {"kwsniff": json.dumps(about), "pandas": json.dumps(_pandas(fields))})

    @property
    def order(self) -> list[str]:
        """The columns by which the rows of a file are sorted."""
        return [self.time, "position"] if POSITION.name in self.schema.names else [self.time]

    def places(self, rows: pa.RecordBatch) -> Ints:
        """Which of EVENTS rows belong into it."""
        mine = pc.equal(rows["event"], self.kind)
        found: Ints = pc.indices_nonzero(mine).to_numpy().astype(np.int64)
        return found


def _columns(kind: str) -> tuple[pa.Field, ...]:
    chosen: Iterable[Column] = (each for each in COLUMNS if kind in each.kinds and each.name != "event")
    return (*map(arrow_field, chosen), POSITION)


CALLS = LakeTable(
    "calls", CALL, "requests with their responses", _columns(CALL),
    ("connection", "correlation_id", "time", "request_packet", "response_packet"),
)  # fmt: skip
EXCHANGES = LakeTable(
    "exchanges", EXCHANGE, "what is estimated to be calls of TLS connections", _columns(EXCHANGE),
    ("connection", "time", "request_packet"),
)  # fmt: skip
ANOMALIES = LakeTable(
    "anomalies", ANOMALY, "what is not as it should be", _columns(ANOMALY),
    ("capture", "connection", "packet", "time", "code", "detail"),
)  # fmt: skip
CONNECTIONS = LakeTable(
    "connections", CONNECTION, "TCP connections, when they end", _columns(CONNECTION), ("connection",)
)
FOUND = LakeTable(
    "findings", None, "what the rules found in all of the input", tuple(FINDINGS), ("code", "subject"),
    "first_time",
)  # fmt: skip
BEHIND = LakeTable(
    "lag", None, "how far consumers and groups were behind at last", tuple(LAG),
    ("group_id", "client_id", "client_ip", "topic", "partition"),
)  # fmt: skip
COUNTS = {
    "calls": "calls whose request was sent in the window",
    "errors": "responses with an error code",
    "unanswered": "requests without a response",
    "throttled_calls": "calls that the broker says it throttled",
    "waited_calls": "calls that waited on purpose",
    "connections": "connections with a call",
    "request_bytes": "bytes of the requests",
    "response_bytes": "bytes of the responses",
    "records": "records produced or fetched",
}


def _figure(name: str, kind: pa.DataType, doc: str) -> pa.Field:
    return pa.field(name, kind, metadata={"doc": doc})


WINDOWS = LakeTable(
    "windows", None, "calls of a stream by window of time, for each API and for all",
    (
        _figure("window_start", TIMESTAMP, "begin of the window"),
        _figure("window_end", TIMESTAMP, "its end"),
        _figure("api", pa.string(), "name of the API, null for all together"),
        *(_figure(name, pa.int64(), doc) for name, doc in COUNTS.items()),
        *(
            _figure(f"latency_{name}_us", pa.float64(), f"{name} of the latencies, without calls that waited")
            for name in QUANTILES
        ),
    ),
    ("window_start", "api"), "window_start",
)  # fmt: skip
OF_EVENTS = (CALLS, EXCHANGES, ANOMALIES, CONNECTIONS)
TABLES = {table.name: table for table in (*OF_EVENTS, FOUND, BEHIND, WINDOWS)}


def _commented(field: pa.Field) -> pa.Field:
    known = {key.decode(): value.decode() for key, value in (field.metadata or {}).items()}
    unit = f" [{known['unit']}]" if "unit" in known else ""
    return field.with_metadata({**known, "comment": known.get("doc", "") + unit})


def _pandas(fields: list[pa.Field]) -> dict[str, Any]:
    """The metadata that pandas writes itself, so that whole numbers with gaps stay whole when it reads."""
    columns = [
        {
            "name": field.name, "field_name": field.name, "pandas_type": str(field.type),
            "numpy_type": _NUMPY[field.type], "metadata": None,
        }
        for field in fields
        if field.type in _NUMPY
    ]  # fmt: skip
    return {"index_columns": [], "column_indexes": [], "columns": columns, "creator": {"library": "kwsniff"}}
