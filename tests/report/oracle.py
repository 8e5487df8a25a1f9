"""The same statistics in plain Python, row by row and with numpy.percentile: nothing here is shared with the
code under test."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

Row = dict[str, Any]

PARTS = ("request_transfer", "queued", "throttled", "waited", "broker", "response_transfer", "broker_least")
PERCENTILES = {"p50": 50, "p90": 90, "p95": 95, "p99": 99, "p999": 99.9, "max": 100}


def waits(row: Row) -> bool:
    return row["latency_us"] is not None and (row["waited_us"] or 0.0) > 0


def figures(rows: list[Row]) -> Row:
    """The figures of a group of calls; percentiles of nothing are None."""
    service = [row for row in rows if row["latency_us"] is not None and not waits(row)]
    waited = [row for row in rows if waits(row)]
    result: Row = {
        "calls": len(rows),
        "request_bytes": sum(row["request_bytes"] or 0 for row in rows),
        "response_bytes": sum(row["response_bytes"] or 0 for row in rows),
        "waited_calls": len(waited),
        "errors": sum(bool(row["error_code"]) for row in rows),
        "throttled_calls": sum((row["throttle_ms"] or 0) > 0 for row in rows),
        "throttle_ms": sum(row["throttle_ms"] or 0 for row in rows),
        "throttle_max_ms": max(row["throttle_ms"] or 0 for row in rows),
        "in_flight_max": max(
            (row["in_flight"] for row in rows if row["in_flight"] is not None), default=None
        ),
    }
    for status in ("no_reply_expected", "unanswered", "orphan", "undecoded", "truncated"):
        result[status] = sum(row["status"] == status for row in rows)
    for prefix, column, group in (
        ("latency", "latency_us", service),
        ("duration", "duration_us", service),
        ("waited", "latency_us", waited),
    ):
        values = [row[column] for row in group]
        for name, percent in PERCENTILES.items():
            result[f"{prefix}_{name}_us"] = float(np.percentile(values, percent)) if values else None
    result["duration_sum_us"] = sum(row["duration_us"] or 0.0 for row in rows if not waits(row))
    result["duration_waited_sum_us"] = sum(row["duration_us"] for row in waited)
    for part in PARTS:
        known = [row[f"{part}_us"] for row in rows if row.get(f"{part}_us") is not None]
        result[f"{part}_sum_us"] = sum(known) if known else None
    result["error_ratio"] = result["errors"] / len(rows)
    return result


def grouped(rows: Iterable[Row], key: Callable[[Row], Iterable[Any]]) -> dict[Any, list[Row]]:
    """Rows by each of the keys they have."""
    groups: dict[Any, list[Row]] = {}
    for row in rows:
        for value in key(row):
            groups.setdefault(value, []).append(row)
    return groups


def error_names(rows: list[Row]) -> Counter[str]:
    return Counter(row["error"] for row in rows if row["error_code"])
