"""The tables of the report: their names, and their columns in order, each with its Arrow type, unit and
meaning. Columns are added, never renamed. docs/report.md lists them from here, and a test compares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from kwsniff.count.eventrows import BROKER_LEAST, PARTS
from kwsniff.count.percentiles import QUANTILES
from kwsniff.rows.schema import TIMESTAMP

TEXT, COUNT, REAL, FLAG = pa.string(), pa.int64(), pa.float64(), pa.bool_()


@dataclass(frozen=True, slots=True)
class ReportColumn:
    """One column of a table. Units are in the name: `_us` microseconds, `_ms` milliseconds, `_s` seconds,
    `_bytes` bytes, `_per_s` each second, `_ratio` a part of 1."""

    name: str
    kind: pa.DataType
    doc: str


def _percentiles(prefix: str, what: str) -> tuple[ReportColumn, ...]:
    def doc(quantile: float) -> str:
        return f"greatest {what}" if quantile == 1 else f"percentile {100 * quantile:g} of {what}"

    columns = [
        ReportColumn(f"{prefix}_{name}_us", REAL, doc(quantile)) for name, quantile in QUANTILES.items()
    ]
    return tuple(columns)


FIGURES = (
    ReportColumn(
        "calls", COUNT, "calls of any status; a request, or a response whose request is not captured"
    ),
    ReportColumn("calls_per_s", REAL, "calls per second of covered time"),
    ReportColumn("request_bytes", COUNT, "bytes of the requests, with their 4 length bytes"),
    ReportColumn("response_bytes", COUNT, "bytes of the responses, with their 4 length bytes"),
    ReportColumn("records", COUNT, "records in them by their batch headers"),
    ReportColumn("record_bytes", COUNT, "bytes of record data in them, as sent, compressed"),
    *_percentiles("latency", "`latency_us` of answered calls that did not wait on purpose"),
    *_percentiles("duration", "`duration_us` of the same calls"),
    ReportColumn("waited_calls", COUNT, "answered calls that waited on purpose, see Waiting"),
    *_percentiles("waited", "`latency_us` of calls that waited on purpose"),
    ReportColumn(
        "wait_overrun_max_us", REAL, "greatest `broker_us` of a Fetch that waited: by so much it came late"
    ),
    ReportColumn(
        "duration_sum_us", REAL, "sum of `duration_us` of answered calls that did not wait on purpose"
    ),
    ReportColumn("duration_waited_sum_us", REAL, "sum of `duration_us` of calls that waited on purpose"),
    *(
        ReportColumn(f"{name[:-3]}_sum_us", REAL, f"sum of `{name}` of all calls; empty where none has it")
        for name in (*PARTS, BROKER_LEAST)
    ),
    ReportColumn("errors", COUNT, "calls with a non-zero error code"),
    ReportColumn("error_ratio", REAL, "errors / calls"),
    ReportColumn("error_codes", COUNT, "non-zero error codes; a call of several partitions may have several"),
    ReportColumn(
        "errors_by_name", TEXT, "`NAME=calls (part of the row's calls)`, most frequent first, joined by `; `"
    ),
    ReportColumn("throttled_calls", COUNT, "calls whose response says that the client is throttled"),
    ReportColumn("throttle_ms", COUNT, "sum of the throttle times those responses name"),
    ReportColumn("throttle_max_ms", COUNT, "greatest of them"),
    ReportColumn("no_reply_expected", COUNT, "calls by status: Produce with acks=0, which is not answered"),
    ReportColumn("unanswered", COUNT, "calls by status: no response captured"),
    ReportColumn("orphan", COUNT, "calls by status: response without captured request"),
    ReportColumn("undecoded", COUNT, "calls by status: paired, but a body could not be decoded"),
    ReportColumn("truncated", COUNT, "calls by status: bytes of request or response not captured"),
    ReportColumn(
        "in_flight_max", COUNT, "most requests a connection had outstanding when one of these was sent"
    ),
    ReportColumn("first_time", TIMESTAMP, "first byte of the first of these calls"),
    ReportColumn("last_time", TIMESTAMP, "last byte of the last of these calls"),
)

STATUS_COLUMNS = ("no_reply_expected", "unanswered", "orphan", "undecoded", "truncated")

API = ReportColumn("api", TEXT, "name of the API; `key N` for a key without known name, empty if unknown")

TABLES: dict[str, tuple[ReportColumn, ...]] = {
    "api": (API, ReportColumn("api_key", COUNT, "its number"), *FIGURES),
    "client": (
        ReportColumn("client_id", TEXT, "as the client calls itself"),
        ReportColumn("client_ip", TEXT, "address it sends from"),
        ReportColumn("software", TEXT, "client libraries with version (ApiVersions, KIP-511), joined by `;`"),
        *FIGURES,
    ),
    "topic": (
        ReportColumn("topic", TEXT, "name of the topic, or its uuid if no message named it"),
        ReportColumn("partitions_seen", COUNT, "different partitions of it in data calls"),
        *FIGURES,
    ),
    "broker": (
        ReportColumn("broker", TEXT, "address and port; an IPv6 address in brackets"),
        *FIGURES,
    ),
    "error": (
        ReportColumn("error", TEXT, "name of the error, `ERROR_N` if it is not known"),
        ReportColumn("error_code", COUNT, "its number"),
        ReportColumn("retriable", FLAG, "clients may try again; empty if the error is not known"),
        API,
        ReportColumn("api_call_ratio", REAL, "these calls / all calls of the API"),
        ReportColumn("topics_affected", COUNT, "topics of these calls to which the error belongs"),
        ReportColumn("topics", TEXT, "their names, at most 20 in alphabetical order, joined by `;`"),
        ReportColumn("clients_affected", COUNT, "clients, by client id and address, that got it"),
        ReportColumn("clients", TEXT, "at most 20 of them as `client_id@address`, joined by `;`"),
        *(column for column in FIGURES if column.name not in {"errors", "error_ratio", "errors_by_name"}),
    ),
}


def typed(name: str, columns: Mapping[str, Any]) -> pa.Table:
    """Columns (arrays with NaN for what is not known, Arrow's, or lists) as table `name`, in its order."""
    arrays = [_array(columns[column.name], column.kind) for column in TABLES[name]]
    return pa.Table.from_arrays(arrays, names=[column.name for column in TABLES[name]])


def ordered(table: pa.Table, names: Sequence[str]) -> pa.Table:
    """The rows with the most calls first, those with as many by `names`."""
    columns = [table[name].to_pylist() for name in names]
    keys = [[(text is None, text or "") for text in texts] for texts in zip(*columns, strict=True)]
    calls = table["calls"].to_pylist()
    return table.take(pa.array(sorted(range(len(calls)), key=lambda row: (-calls[row], keys[row])), COUNT))


def _array(values: Any, kind: pa.DataType) -> pa.Array:
    if isinstance(values, list):
        return pa.array(values, kind)
    if isinstance(values, np.ndarray) and values.dtype.kind == "f":
        values = pa.array(values, mask=np.isnan(values))
    return (values if isinstance(values, pa.Array) else pa.array(values)).cast(kind)
