"""EVENTS batches made by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from kwsniff.live.session import Health
from kwsniff.rows.schema import EVENTS

START = datetime(2024, 5, 1, 12, 0, 0, tzinfo=UTC)
START_NS = int(START.timestamp()) * 10**9


def call(at: float = 0.0, latency_ms: float | None = 1.0, **columns: Any) -> dict[str, Any]:
    """A call answered `at` so many seconds after START; without latency there is no answer."""
    answered = START + timedelta(seconds=at)
    asked = answered - timedelta(milliseconds=latency_ms or 0)
    row: dict[str, Any] = {
        "event": "call", "time": asked, "api_key": 3, "api": "Metadata", "api_version": 9, "status": "ok",
        "client_id": "app", "client_ip": "10.0.0.1", "client_port": 40000, "broker_ip": "10.0.0.9",
        "broker_port": 9092, "request_time": asked, "request_end_time": asked, "error_code": 0,
        "request_bytes": 10, "response_bytes": 20,
    }  # fmt: skip
    if latency_ms is not None:
        row |= {"response_time": answered, "response_end_time": answered, "latency_us": latency_ms * 1000}
    return row | columns


def batch(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    """Rows as EVENTS."""
    return pa.RecordBatch.from_pylist(rows, EVENTS)


def health(at: float, **counts: int) -> Health:
    """The health so many seconds after START."""
    return Health(("eth0",), START_NS, START_NS + round(at * 1e9), **counts)
