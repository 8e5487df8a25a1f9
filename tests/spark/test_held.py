"""Rows that wait: in their order, whichever of their batches' rows they are, and without what is gone."""

from __future__ import annotations

import random
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest

from kwsniff.spark.ordering import Held, Some
from kwsniff.spark.resulttables import ANOMALIES, CALLS, ROWS, WINDOWS


def rows(first: int, micros: list[int], kinds: list[str]) -> pa.RecordBatch:
    """Rows with a text and a list, which say whose they are; only anomalies have a `code`."""
    made = [
        {
            "event": kind,
            "time": datetime.fromtimestamp(micro / 1e6, UTC),
            "position": first + number,
            "connection": f"connection {first + number}",
            **({"topics": [f"topic {first + number}"] * (number % 3)} if kind == "call" else {"code": kind}),
        }
        for number, (micro, kind) in enumerate(zip(micros, kinds, strict=True))
    ]
    return pa.RecordBatch.from_pylist(made, ROWS)


@pytest.mark.parametrize("seed", range(6))
def test_rows_are_taken_in_the_order_of_their_times(seed: int) -> None:
    chance = random.Random(seed)
    held = Held(CALLS.schema)
    waiting: list[dict[str, object]] = []
    position = 0
    for _ in range(30):
        count = chance.randrange(1, 60)
        micros = [chance.randrange(position, position + 100) for _ in range(count)]
        kinds = [chance.choice(["call", "call", "anomaly"]) for _ in range(count)]
        batch = rows(position, micros, kinds)
        position += count
        held.add(Some.of(CALLS, batch, CALLS.places(batch)))
        calls = [row for row in batch.to_pylist() if row["event"] == "call"]
        waiting += [{name: row[name] for name in CALLS.schema.names} for row in calls]
        assert held.rows == len(waiting)
        if held.rows and chance.random() < 0.5:
            count = chance.randrange(1, held.rows + 1)
            waiting.sort(key=lambda row: (row["time"], row["position"]))
            now, waiting = waiting[:count], waiting[count:]
            taken = held.take(count)
            assert taken.schema.equals(CALLS.schema, check_metadata=True)
            assert taken.to_pylist() == now
    assert held.rows == len(waiting) > 0


def test_rows_at_the_same_time_keep_their_order_in_a_table_without_positions() -> None:
    apis = [str(number) for number in range(200)]
    at = datetime(2026, 11, 21, tzinfo=UTC)
    batch = pa.RecordBatch.from_pylist([{"window_start": at, "api": api} for api in apis], WINDOWS.schema)
    held = Held(WINDOWS.schema)
    held.add(Some.of(WINDOWS, batch.slice(0, 150)))
    held.add(Some.of(WINDOWS, batch.slice(150)))
    assert [*held.take(70)["api"].to_pylist(), *held.take()["api"].to_pylist()] == apis


def test_a_batch_is_not_kept_for_few_of_its_rows() -> None:
    batch = rows(0, list(range(1000)), ["anomaly", *["call"] * 999])
    few = Some.of(ANOMALIES, batch, ANOMALIES.places(batch)).apart()
    assert (few.count, len(few)) == (1, 1)
    assert "topics" not in few.columns  # an anomaly has none
    whole = Some.of(CALLS, batch, CALLS.places(batch))
    assert whole.apart().columns["topics"] is whole.columns["topics"]

    held = Held(CALLS.schema)
    held.add(whole)
    before = held.bytes
    assert held.take(990)["position"].to_pylist() == list(range(1, 991))
    assert held.rows == 9
    assert 0 < held.bytes < before // 50
    assert np.array_equal(held.take()["position"], np.arange(991, 1000))
