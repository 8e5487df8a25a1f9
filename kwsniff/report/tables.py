"""The tables of the report: their names, and their columns in order, each with its Arrow type, unit and
meaning. Columns are added, never renamed. docs/report.md lists them from here, and a test compares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd
import pyarrow as pa

from kwsniff.report.cube import PARTS
from kwsniff.report.percentiles import QUANTILES
from kwsniff.table import TIMESTAMP

TEXT, COUNT, REAL, FLAG = pa.string(), pa.int64(), pa.float64(), pa.bool_()


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table. Units are in the name: `_us` microseconds, `_ms` milliseconds, `_s` seconds,
    `_bytes` bytes, `_per_s` each second, `_ratio` a part of 1."""

    name: str
    kind: pa.DataType
    doc: str


def _percentiles(prefix: str, what: str) -> tuple[Column, ...]:
    def doc(quantile: float) -> str:
        return f"greatest {what}" if quantile == 1 else f"percentile {100 * quantile:g} of {what}"

    columns = [Column(f"{prefix}_{name}_us", REAL, doc(quantile)) for name, quantile in QUANTILES.items()]
    return tuple(columns)


FIGURES = (
    Column("calls", COUNT, "calls of any status; a request, or a response whose request is not captured"),
    Column("calls_per_s", REAL, "calls per second of covered time"),
    Column("request_bytes", COUNT, "bytes of the requests, with their 4 length bytes"),
    Column("response_bytes", COUNT, "bytes of the responses, with their 4 length bytes"),
    Column("records", COUNT, "records in them by their batch headers"),
    Column("record_bytes", COUNT, "bytes of record data in them, as sent, compressed"),
    *_percentiles("latency", "`latency_us` of answered calls that did not wait on purpose"),
    *_percentiles("duration", "`duration_us` of the same calls"),
    Column("waited_calls", COUNT, "answered calls that waited on purpose, see Waiting"),
    *_percentiles("waited", "`latency_us` of calls that waited on purpose"),
    Column("wait_overrun_max_us", REAL, "most by which an empty Fetch came later than its `max_wait_ms`"),
    Column("duration_sum_us", REAL, "sum of `duration_us` of answered calls that did not wait on purpose"),
    Column("duration_waited_sum_us", REAL, "sum of `duration_us` of calls that waited on purpose"),
    *(
        Column(f"{name[:-3]}_sum_us", REAL, f"sum of `{name}` of all calls; empty where none has it")
        for name in PARTS
    ),
    Column("errors", COUNT, "calls with a non-zero error code"),
    Column("error_ratio", REAL, "errors / calls"),
    Column("error_codes", COUNT, "non-zero error codes; a call of several partitions may have several"),
    Column(
        "errors_by_name", TEXT, "`NAME=calls (part of the row's calls)`, most frequent first, joined by `; `"
    ),
    Column("throttled_calls", COUNT, "calls whose response says that the client is throttled"),
    Column("throttle_ms", COUNT, "sum of the throttle times those responses name"),
    Column("throttle_max_ms", COUNT, "greatest of them"),
    Column("no_reply_expected", COUNT, "calls by status: Produce with acks=0, which is not answered"),
    Column("unanswered", COUNT, "calls by status: no response captured"),
    Column("orphan", COUNT, "calls by status: response without captured request"),
    Column("undecoded", COUNT, "calls by status: paired, but a body could not be decoded"),
    Column("truncated", COUNT, "calls by status: bytes of request or response not captured"),
    Column("in_flight_max", COUNT, "most requests a connection had outstanding when one of these was sent"),
    Column("first_time", TIMESTAMP, "first byte of the first of these calls"),
    Column("last_time", TIMESTAMP, "last byte of the last of these calls"),
)

STATUS_COLUMNS = ("no_reply_expected", "unanswered", "orphan", "undecoded", "truncated")

API = Column("api", TEXT, "name of the API; `key N` for a key without known name, empty if unknown")

TABLES: dict[str, tuple[Column, ...]] = {
    "api": (API, Column("api_key", COUNT, "its number"), *FIGURES),
    "client": (
        Column("client_id", TEXT, "as the client calls itself"),
        Column("client_ip", TEXT, "address it sends from"),
        Column("software", TEXT, "client libraries with version (ApiVersions, KIP-511), joined by `;`"),
        *FIGURES,
    ),
    "topic": (
        Column("topic", TEXT, "name of the topic, or its uuid if no message named it"),
        Column("partitions_seen", COUNT, "different partitions of it in data calls"),
        *FIGURES,
    ),
    "broker": (
        Column("broker", TEXT, "address and port; an IPv6 address in brackets"),
        *FIGURES,
    ),
    "error": (
        Column("error", TEXT, "name of the error, `ERROR_N` if it is not known"),
        Column("error_code", COUNT, "its number"),
        Column("retriable", FLAG, "clients may try again; empty if the error is not known"),
        API,
        Column("api_call_ratio", REAL, "these calls / all calls of the API"),
        Column("topics_affected", COUNT, "topics of these calls to which the error belongs"),
        Column("topics", TEXT, "their names, at most 20 in alphabetical order, joined by `;`"),
        Column("clients_affected", COUNT, "clients, by client id and address, that got it"),
        Column("clients", TEXT, "at most 20 of them as `client_id@address`, joined by `;`"),
        *(column for column in FIGURES if column.name not in {"errors", "error_ratio", "errors_by_name"}),
    ),
}


def typed(name: str, frame: pd.DataFrame) -> pd.DataFrame:
    """`frame` as table `name`: its columns, in order, Arrow-backed."""
    arrays = [_array(frame[column.name], column.kind) for column in TABLES[name]]
    table = pa.Table.from_arrays(arrays, names=[column.name for column in TABLES[name]])
    result: pd.DataFrame = table.to_pandas(types_mapper=pd.ArrowDtype)
    return result


def _array(values: pd.Series[Any], kind: pa.DataType) -> pa.Array:
    array = pa.array(values, from_pandas=True)
    return array.cast(kind)
