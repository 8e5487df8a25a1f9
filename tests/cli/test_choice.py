"""What is taken of a capture and how it is told: time limits, zones, topic names, colours."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.analysis.conftest import Ended, kwsniff
from tests.samples import CAPTURES, sample

# What `decode` and `report` take, and how they tell it: --since, --until, --tz, --topic-ids, --color

THROTTLED = str(CAPTURES / "throttled.pcapng")


def times(kwsniff: Callable[..., Any], *options: str) -> list[str]:
    code, out, _ = kwsniff("decode", THROTTLED, "-f", "csv", "--columns", "time", *options)
    assert code == 0
    return [row["time"] for row in csv.DictReader(io.StringIO(out))]


def test_time_limits_mean_the_same_whatever_the_zone_they_are_in(kwsniff: Callable[..., Any]) -> None:
    """The sample was recorded at 01:50 UTC, in winter: 02:50 in Berlin."""
    every = times(kwsniff)
    late = [each for each in every if "2026-11-21T01:50:13" <= each < "2026-11-21T01:50:19"]
    assert 0 < len(late) < len(every)
    assert times(kwsniff, "--since", "01:50:13", "--until", "01:50:19") == late
    berlin = ("--tz", "Europe/Berlin")
    assert times(kwsniff, "--since", "02:50:13", "--until", "02:50:19", *berlin) == late
    assert (
        times(kwsniff, "--since", "2026-11-21T01:50:13Z", "--until", "2026-11-21T02:50:19", *berlin) == late
    )


def test_text_and_the_page_tell_times_in_the_zone(kwsniff: Callable[..., Any]) -> None:
    _, out, _ = kwsniff("decode", THROTTLED, "-c", "1", "--tz", "Asia/Kolkata", "-q")
    assert out.startswith("2026-11-21T07:20:00.840203+05:30")
    _, out, _ = kwsniff("report", THROTTLED, "--tz", "Europe/Berlin")
    assert "2026-11-21 02:50:00 to 02:50:23 CET" in out
    assert "  02:50:01  02:50:01\n" in out
    assert "           02:50:00 " in out


def test_the_report_is_of_the_calls_within_the_limits(kwsniff: Callable[..., Any]) -> None:
    _, out, _ = kwsniff("report", THROTTLED, "--since", "01:50:13", "--by", "api")
    assert "Fetch" in out
    assert "Produce" in out
    _, out, _ = kwsniff("report", THROTTLED, "--since", "01:50:14", "--by", "api")
    assert "Produce" not in out
    code, _, err = kwsniff("report", THROTTLED, "--since", "02:00")
    assert code == 0
    assert "--since left none of 42 calls" in err


def test_a_file_names_topics_that_no_packet_does(kwsniff: Callable[..., Any], tmp_path: Path) -> None:
    uuid = "0925acbc-e09e-452c-83a8-9eebe386ddeb"
    sample = str(CAPTURES / "stale-leader.pcapng.zst")
    _, before, _ = kwsniff("decode", sample, "-q")
    assert uuid in before
    (tmp_path / "ids.csv").write_text(f"{uuid},__consumer_offsets\n")
    _, after, _ = kwsniff("decode", sample, "-q", "--topic-ids", str(tmp_path / "ids.csv"))
    assert uuid not in after
    assert before.replace(uuid, "__consumer_offsets") == after


@pytest.mark.parametrize("command", ["decode", "report", "errors"])
@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--color", "allways"), "--color: 'allways' is none of auto, always, never (did you mean always?)"),
        (("--tz", "Berlin"), "--tz: there is no time zone 'Berlin'"),
        (("--since", "noon"), "--since: 'noon' is no ISO 8601 time"),
        (("--topic-ids", "/nowhere"), "--topic-ids: /nowhere: No such file or directory"),
    ],
)
def test_mistakes_are_one_line(
    kwsniff: Callable[..., Any], command: str, options: tuple[str, ...], says: str
) -> None:
    code, out, err = kwsniff(command, THROTTLED, *options)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert says in err


def test_colour_is_there_only_if_it_is_asked_for_where_there_is_no_terminal(
    kwsniff: Callable[..., Any],
) -> None:
    for command in ("decode", "report"):
        assert "\x1b[" in kwsniff(command, THROTTLED, "--color", "always")[1]
        assert "\x1b[" not in kwsniff(command, THROTTLED)[1]
        assert "\x1b[" not in kwsniff(command, THROTTLED, "--color", "never")[1]


def test_a_value_may_begin_with_a_dash(kwsniff: Callable[..., Any]) -> None:
    """As the column that is sorted the other way round does."""
    found = [
        kwsniff("slow", THROTTLED, "-f", "csv", "--sort", column)
        for column in ("-duration_us", "duration_us")
    ]
    backward, forward = (
        [row["duration_us"] for row in csv.DictReader(io.StringIO(out))] for _, out, _ in found
    )
    assert backward == forward[::-1] != forward


# Windows of time: heading, rates and trust are of the window

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
