"""Makes EVENTS tables by hand: name the columns that matter, the others are null."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from kwsniff.rows.schema import EVENTS

START = 1_700_000_000_000_000
"""2023-11-14T22:13:20Z in microseconds."""


def event(**columns: Any) -> dict[str, Any]:
    """One row; refuses columns that EVENTS doesn't have."""
    unknown = set(columns) - set(EVENTS.names)
    assert not unknown, f"no such columns: {unknown}"
    return {name: columns.get(name) for name in EVENTS.names}


def call(at: int = 0, latency: float | None = 1000.0, **columns: Any) -> dict[str, Any]:
    """An answered call that begins `at` microseconds after START and takes 10 µs to send and to receive."""
    row: dict[str, Any] = {
        "event": "call",
        "capture": "a.pcap",
        "connection": "c1",
        "client_ip": "10.0.0.1",
        "client_port": 40000,
        "broker_ip": "10.0.0.9",
        "broker_port": 9092,
        "client_id": "app",
        "api_key": 3,
        "api": "Metadata",
        "api_version": 12,
        "status": "ok",
        "error_code": 0,
        "error_count": 0,
        "request_time": START + at,
        "request_end_time": START + at + 10,
        "request_bytes": 100,
        "in_flight": 0,
    }
    if latency is not None:
        row |= {
            "response_time": START + at + 10 + round(latency),
            "response_end_time": START + at + 20 + round(latency),
            "latency_us": float(latency),
            "duration_us": float(latency) + 20,
            "response_bytes": 200,
        }
    return event(**(row | columns))


def batch(*rows: dict[str, Any]) -> pa.RecordBatch:
    """The rows as one EVENTS batch."""
    return pa.RecordBatch.from_pylist(list(rows), schema=EVENTS)


def batches(rows: Iterable[dict[str, Any]], size: int) -> list[pa.RecordBatch]:
    """The rows in batches of `size`."""
    rows = list(rows)
    return [batch(*rows[i : i + size]) for i in range(0, len(rows), size)]
