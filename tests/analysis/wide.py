"""EVENTS with the columns that rules ask for and that a source may not fill yet: made by hand, row by row."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from kwsniff.analysis.findings import Finding, Findings
from kwsniff.analysis.rule import NOT_SHOWN, OK
from kwsniff.rows.schema import EVENTS, PARTITION
from tests.report.events import START, call

LONG, REAL, TEXT = pa.int64(), pa.float64(), pa.string()
MORE = {
    **dict.fromkeys(("queued_us", "throttled_us", "waited_us", "broker_us", "waited_open_us"), REAL),
    **dict.fromkeys(("request_transfer_us", "response_transfer_us"), REAL),
    **dict.fromkeys(("closed_by", "reason", "tls_alert"), TEXT),
    **dict.fromkeys(("generation", "first_packet", "last_packet"), LONG),
    **dict.fromkeys(("client_retransmissions", "broker_retransmissions"), LONG),
    **dict.fromkeys(("client_zero_windows", "broker_zero_windows"), LONG),
    "advertised": pa.list_(pa.struct([("node_id", pa.int32()), ("host", TEXT), ("port", pa.int32())])),
}
IN_PARTITIONS = {"high_watermark": LONG, "fetch_offset": LONG, "committed_offset": LONG}


def schema() -> pa.Schema:
    """EVENTS with MORE, each column once."""
    known = {field.name for field in PARTITION}
    more = [(name, kind) for name, kind in IN_PARTITIONS.items() if name not in known]
    partition = pa.struct([*PARTITION, *(pa.field(*each) for each in more)])
    fields = {field.name: field.type for field in EVENTS} | {"partitions": pa.list_(partition)}
    return pa.schema([(name, kind) for name, kind in ({**MORE, **fields}).items()])


SCHEMA = schema()


def row(at: int = 0, latency: float | None = 1000.0, **columns: Any) -> dict[str, Any]:
    """An answered call, as `tests.report.events.call` makes it, with any column of SCHEMA."""
    assert set(columns) <= set(SCHEMA.names)
    own = {name: columns.pop(name) for name in list(columns) if name not in EVENTS.names}
    made = call(at=at, latency=latency, **columns) | own
    made["time"] = made["request_time"]
    return made


def fetch(at: int, offset: int, end: int, **columns: Any) -> dict[str, Any]:
    """A Fetch of orders[0] from an offset, when the partition ended at `end`."""
    part = {"topic": "orders", "partition": 0, "error_code": 0, "fetch_offset": offset, "high_watermark": end}
    return row(at, api_key=1, api="Fetch", partitions=[part], **columns)


def connection(at: int = 0, lasts: int = 1_000_000, **columns: Any) -> dict[str, Any]:
    """A connection that carried something."""
    made: dict[str, Any] = {
        "event": "connection", "capture": "a.pcap", "client_ip": "10.0.0.1", "broker_ip": "10.0.0.9",
        "broker_port": 9092, "time": START + at, "first_time": START + at, "last_time": START + at + lasts,
        "client_packets": 100, "broker_packets": 100, "client_bytes": 1000, "broker_bytes": 1000, "syn": True,
        "fin": True, "rst": False, "handshake_us": 100.0, "security": "plaintext", "frames": 20,
    }  # fmt: skip
    return made | columns


def found(*rows: dict[str, Any], split: int | None = None) -> list[Finding]:
    """What the rules find in the rows but for `ok` and `not_shown`."""
    return [each for each in taken(*rows, split=split).found() if each.severity not in (OK, NOT_SHOWN)]


def taken(*rows: dict[str, Any], split: int | None = None) -> Findings:
    """The rules after they took the rows, in batches of `split`."""
    rules = Findings()
    for begin in range(0, len(rows), split or len(rows) or 1):
        part = rows[begin : begin + (split or len(rows))]
        rules.take(pa.RecordBatch.from_pylist(list(part), schema=SCHEMA))
    return rules


def codes(*rows: dict[str, Any]) -> list[str]:
    """The codes of what is found."""
    return [each.code for each in found(*rows)]
