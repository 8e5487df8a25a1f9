"""The figures of the report, computed again with pandas from the columns of EVENTS alone."""

from __future__ import annotations

import pandas as pd
import pyarrow as pa
import pytest

import kwsniff
from kwsniff.report import Report
from tests.samples import sample

PARTS = (
    "request_transfer_us", "queued_us", "throttled_us", "waited_us", "broker_us", "response_transfer_us",
)  # fmt: skip
NAMES = [
    "java-groups",
    "throttled",
    "stuck-consumer",
    "slow-queue",
    "stale-leader",
    "kafka-0.10",
    "mock-errors",
]


def calls_of(name: str) -> pd.DataFrame:
    return kwsniff.calls(sample(name).paths)


def report_of(name: str) -> pd.DataFrame:
    return Report.from_events(kwsniff.events(sample(name).paths)).tables["api"].set_index("api")


@pytest.mark.parametrize("name", NAMES)
def test_the_parts_of_each_call_add_up_to_its_duration(name: str) -> None:
    calls = calls_of(name)
    known = calls[calls["broker_us"].notna()]
    assert len(known) > 10
    together = sum(known[part].astype(float) for part in PARTS)
    assert (together - known["duration_us"].astype(float)).abs().max() < 0.002
    for part in PARTS:
        assert known[part].min() >= 0
        assert calls[part].notna().equals(calls["broker_us"].notna())


@pytest.mark.parametrize("name", NAMES)
def test_counts_sums_and_percentiles_by_api_are_those_of_the_columns(name: str) -> None:
    """A call waited on purpose if `waited_us` is above 0; its latency says nothing about the broker."""
    calls, report = calls_of(name), report_of(name)
    served = calls[(calls["waited_us"].fillna(0) == 0) & calls["latency_us"].notna()]
    for api, rows in calls.groupby("api"):
        line = report.loc[api]
        assert line["calls"] == len(rows)
        assert line["errors"] == (rows["error_code"].fillna(0) != 0).sum()
        assert line["request_bytes"] == rows["request_bytes"].fillna(0).sum()
        assert line["response_bytes"] == rows["response_bytes"].fillna(0).sum()
        assert line["waited_calls"] == (rows["waited_us"].fillna(0) > 0).sum()
        latencies = served.loc[served["api"] == api, "latency_us"].astype(float)
        if len(latencies):
            assert line["latency_max_us"] == pytest.approx(latencies.max())
            nearest = latencies.quantile(0.5, interpolation="lower")
            assert nearest <= line["latency_p50_us"] <= latencies.quantile(0.5, interpolation="higher")
        for part in PARTS:
            told = line[f"{part.removesuffix('_us')}_sum_us"]
            assert (0 if pd.isna(told) else told) == pytest.approx(rows[part].astype(float).sum(), abs=0.01)


def test_a_fetch_held_back_by_a_quota_did_not_wait_on_purpose() -> None:
    calls = calls_of("throttled")
    (held,) = calls[calls["throttled_us"] > 1_000_000].to_dict(orient="records")
    assert (held["api"], held["waited_us"]) == ("Fetch", 0)


def test_events_say_nothing_else_when_only_some_columns_are_asked_for() -> None:
    from kwsniff.config import Config
    from kwsniff.offline import events

    few = frozenset(("event", "api", *PARTS))
    for name in ("kafka-python-kafka", "stuck-consumer"):
        whole = pa.Table.from_batches(list(events(sample(name).paths, Config()))).select(list(few))
        some = pa.Table.from_batches(list(events(sample(name).paths, Config(columns=few)))).select(list(few))
        assert some.equals(whole)
