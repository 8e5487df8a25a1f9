"""The engine with interpreted kernels: the golden events of every sample, and what holds for all events."""

from __future__ import annotations

from functools import cache

import pytest

from kwsniff.capture.source import segments
from kwsniff.config import Config
from kwsniff.engine.analyze import Engine
from kwsniff.net.segments import segment_columns
from tests.samples import Row, names, sample
from tests.test_golden import as_golden, golden

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


@cache
def rows(name: str) -> list[Row]:
    return sample(name).events()


@pytest.mark.one_of(3)
@pytest.mark.parametrize("name", names())
def test_interpreted_kernels_yield_the_golden_events(name: str) -> None:
    assert as_golden(by_tables(name)) == golden(name)


@pytest.mark.parametrize("name", names())
def test_rows_come_in_the_order_of_the_packets_that_answered_them(name: str) -> None:
    calls = [row for row in rows(name) if row["event"] == "call" and row["status"] in ("ok", "error")]
    last = [(row["capture"], row["response_packet"]) for row in calls]
    captures = list(dict.fromkeys(capture for capture, _ in last))
    assert last == sorted(last, key=lambda each: (captures.index(each[0]), each[1]))


@pytest.mark.parametrize("name", names())
def test_where_the_time_of_a_call_went_adds_up_to_its_duration(name: str) -> None:
    for row in rows(name):
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
