"""What is told of a window of time is of that window: heading, rates and trust; and rates of some calls are
over the time that was looked at."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.analysis.conftest import Ended, kwsniff
from tests.samples import sample

__all__ = ["kwsniff"]

NAME = "rebalance-timeout"
Row = dict[str, Any]


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return sample(NAME).events()


def reported(kwsniff: Callable[..., Ended], *options: str) -> tuple[dict[str, Any], str]:
    ended = kwsniff("report", f"{NAME}.pcapng.zst", "--json", *options)
    assert ended.code == 0, ended.err
    return json.loads(ended.out), ended.err


def middle(rows: list[Row]) -> tuple[datetime, datetime]:
    """Two seconds in the midst of the capture."""
    begin = min(row["time"] for row in rows if row["event"] == "call")
    end = max(row["last_time"] for row in rows if row["event"] == "connection")
    since = (begin + (end - begin) / 2).replace(microsecond=0)
    return since, since + timedelta(seconds=2)


@pytest.mark.parametrize("form", ["%Y-%m-%dT%H:%M:%SZ", "%H:%M:%S"])
def test_rates_of_a_window_divide_by_its_seconds(
    kwsniff: Callable[..., Ended], rows: list[Row], form: str
) -> None:
    since, until = middle(rows)
    report, trust = reported(kwsniff, "--since", f"{since:{form}}", "--until", f"{until:{form}}")
    inside = [row for row in rows if row["event"] == "call" and since <= row["time"] < until]
    assert report["summary"]["calls"] == len(inside)
    assert report["summary"]["covered_s"] == 2.0
    for name in ("first_time", "last_time"):
        assert (
            datetime.fromisoformat(report["summary"][name]) == {"first_time": since, "last_time": until}[name]
        )
    for row in report["api"]:
        assert row["calls_per_s"] == sum(each["api"] == row["api"] for each in inside) / 2.0
    there = [
        row for row in rows
        if row["event"] == "connection" and row["first_time"] <= until and row["last_time"] >= since
    ]  # fmt: skip
    assert f"In the time asked for: {len(there)} connections:" in trust
    paired = sum(row["latency_us"] is not None for row in inside)
    assert f"{len(inside)} calls: {paired} paired" in trust


def test_a_window_that_is_wider_than_the_capture_covers_the_capture(
    kwsniff: Callable[..., Ended], rows: list[Row]
) -> None:
    whole, _ = reported(kwsniff)
    wide, _ = reported(kwsniff, "--since", "2020-01-01", "--until", "2100-01-01")
    assert wide["summary"] == whole["summary"]


def test_rates_of_some_calls_divide_by_the_time_of_all(
    kwsniff: Callable[..., Ended], rows: list[Row]
) -> None:
    whole, _ = reported(kwsniff)
    some, _ = reported(kwsniff, "--where", "api == 'JoinGroup'")
    assert some["summary"]["covered_s"] == whole["summary"]["covered_s"]
    (all_of_it,) = (row for row in whole["api"] if row["api"] == "JoinGroup")
    assert [row["calls_per_s"] for row in some["api"]] == [all_of_it["calls_per_s"]]
