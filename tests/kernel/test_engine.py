"""The engine over tables, interpreted, against the other engine: every sample, event for event."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any

import pytest

from kwsniff.arrow import segment_columns
from kwsniff.capture.source import segments
from kwsniff.config import Config
from kwsniff.kernel.engine import Engine
from tests.samples import Row, names, sample

PARTS = (
    "request_transfer_us", "queued_us", "throttled_us", "waited_us", "broker_us", "response_transfer_us",
)  # fmt: skip


@cache
def by_tables(name: str) -> list[Row]:
    config = Config(kernels="never")
    engine = Engine(config, compiled=False)
    batches = [
        made for batch in segments(sample(name).paths, config) for made in engine.feed(segment_columns(batch))
    ]
    return [row for batch in [*batches, *engine.finish()] for row in batch.to_pylist()]


def plain(value: Any) -> Any:
    """A value without what is null inside it."""
    if isinstance(value, list):
        return tuple(plain(item) for item in value)
    if isinstance(value, dict):
        return tuple((key, plain(value[key])) for key in sorted(value) if value[key] is not None)
    return value


def told(rows: list[Row], columns: frozenset[str]) -> Counter[Any]:
    return Counter(plain({name: row[name] for name in columns - different(row)}) for row in rows)


def different(row: Row) -> set[str]:
    """Columns of a row in which the other engine says less: it takes a TLS alert for a length."""
    if row["code"] == "frame_size_invalid":
        return {"detail"}
    return {"client_id"} if row["event"] == "connection" else set()


@pytest.mark.parametrize("name", names())
def test_a_sample_has_the_events_of_the_other_engine(name: str) -> None:
    expected = sample(name).events(kernels="never", tables=False)
    filled = frozenset(column for row in expected for column, value in row.items() if value is not None)
    # Of these the other engine fills less: for connections only, or without what only a request has.
    columns = filled - {"partitions", "user", "security"}
    assert told(by_tables(name), columns) == told(expected, columns)


@pytest.mark.parametrize("name", names())
def test_rows_come_in_the_order_of_the_packets_that_answered_them(name: str) -> None:
    calls = [row for row in by_tables(name) if row["event"] == "call" and row["status"] in ("ok", "error")]
    last = [(row["capture"], row["response_packet"]) for row in calls]
    captures = list(dict.fromkeys(capture for capture, _ in last))
    assert last == sorted(last, key=lambda each: (captures.index(each[0]), each[1]))


@pytest.mark.parametrize("name", names())
def test_where_the_time_of_a_call_went_adds_up_to_its_duration(name: str) -> None:
    for row in by_tables(name):
        if row["event"] == "call" and row["duration_us"] is not None and row["latency_us"] is not None:
            parts = [row[part] for part in PARTS]
            assert all(part >= 0 for part in parts)
            assert sum(parts) == pytest.approx(row["duration_us"], abs=0.002)


def test_requests_behind_a_slow_one_are_queued() -> None:
    queued = [
        row["queued_us"] for row in by_tables("slow-queue") if row["event"] == "call" and row["queued_us"]
    ]
    assert max(queued) > 10_000


def test_a_throttled_client_is_muted() -> None:
    assert any(row["throttled_us"] for row in by_tables("throttled") if row["event"] == "call")
