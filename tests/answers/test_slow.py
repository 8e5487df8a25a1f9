from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from scapy.utils import PcapReader

from kwsniff.analysis.slow import TIMES, Slow
from kwsniff.rows.schema import EVENTS
from tests.answers.conftest import Ended, files
from tests.samples import sample

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize("name", ["librdkafka-produce", "kafka-python-kafka", "throttled"])
def test_the_slowest_calls_took_as_long_as_their_packets_are_apart(
    name: str, answered: Callable[..., Any]
) -> None:
    with PcapReader(sample(name).paths[0]) as packets:
        times = {number: float(packet.time) for number, packet in enumerate(packets, 1)}
    calls = {f"{row['connection']}#{row['correlation_id']}": row for row in sample(name).calls}
    rows = answered("slow", *files(name), "--top", "20")["calls"]
    assert len(rows) == 20
    for row in rows:
        call = calls[row["call"]]
        apart = times[call["response_packet"]] - times[call["request_packet"]]
        assert row["duration_us"] >= (apart - 1e-6) * 1e6
        if call["request_time"] == call["request_end_time"]:
            assert row["duration_us"] == pytest.approx(apart * 1e6, abs=2)


def test_no_call_that_is_left_out_took_longer(answered: Callable[..., Any]) -> None:
    rows = answered("slow", *files("java-groups"), "--waiting", "--top", "5")["calls"]
    durations = sorted((row["duration_us"] or 0 for row in sample("java-groups").calls), reverse=True)
    assert [row["duration_us"] for row in rows] == durations[:5]


def test_calls_that_wait_on_purpose_are_left_out_and_counted(
    kwsniff: Callable[..., Ended], answered: Callable[..., Any]
) -> None:
    rows = answered("slow", *files("librdkafka-groups"), "--top", "0")["calls"]
    everything = answered("slow", *files("librdkafka-groups"), "--top", "0", "--waiting")["calls"]
    waiting = [row for row in everything if row not in rows]
    assert {row["api"] for row in waiting} == {"JoinGroup", "SyncGroup", "Fetch"}
    ended = kwsniff("slow", "-q", *files("librdkafka-groups"))
    assert "waited on purpose and are left out: --waiting" in ended.err


def call(**columns: Any) -> dict[str, Any]:
    row = {"event": "call", "time": NOW, "status": "ok", "api": "Produce", "api_key": 0, "client_id": "app"}
    return row | columns


def tables(*rows: dict[str, Any]) -> tuple[list[Any], list[Any]]:
    question = Slow()
    question.take(pa.RecordBatch.from_pylist(list(rows), schema=EVENTS))
    calls, clients = question.tables()
    return list(calls.rows), list(clients.rows)


def test_where_the_time_went_is_told() -> None:
    parts = dict.fromkeys(TIMES, 0.0) | {"broker_us": 100.0, "queued_us": 900.0}
    [row], [client] = tables(call(duration_us=1000.0, latency_us=1000.0, **parts))
    assert row["mostly"] == client["mostly"] == "behind other requests 90%"
    assert client["queued_us"] == 900.0


def test_what_may_have_been_waiting_for_data_is_not_called_the_brokers() -> None:
    parts = dict.fromkeys(TIMES, 0.0) | {"broker_us": 950.0, "broker_least_us": 50.0}
    [row], [client] = tables(call(duration_us=1000.0, latency_us=1000.0, **parts))
    assert row["mostly"] == client["mostly"] == "broker or waiting 90%"


def test_what_is_not_known_is_not_told() -> None:
    question = Slow()
    question.take(pa.RecordBatch.from_pylist([call(duration_us=1000.0, latency_us=1000.0)], schema=EVENTS))
    assert question.tables()[0].rows[0]["mostly"] is None
    assert question.notes() == ["these events say how long a call took, not where its time went"]


def test_high_percentiles_need_a_hundred_calls() -> None:
    _, [client] = tables(*[call(duration_us=float(at), latency_us=1.0) for at in range(99)])
    assert (client["calls"], client["p50_us"], client["p99_us"], client["max_us"]) == (99, 49.0, None, 98.0)
    _, [client] = tables(*[call(duration_us=float(at), latency_us=1.0) for at in range(101)])
    assert client["p99_us"] == 99.0


def test_the_tables_are_as_they_were(golden: Callable[..., None]) -> None:
    golden("slow-throttled", "slow", *files("throttled"))
