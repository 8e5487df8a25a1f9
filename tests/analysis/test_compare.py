from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwsniff.analysis.compare import Profile, cliffs_delta, compared
from kwsniff.rows.schema import EVENTS
from tests.analysis.conftest import Ended, files
from tests.samples import sample

A, B = "kafka-python-kafka", "kafka-python-tansu"
TIMES = st.lists(st.integers(0, 50).map(float), min_size=1, max_size=30)


@given(TIMES, TIMES)
def test_the_effect_is_what_counting_all_pairs_gives(a: list[float], b: list[float]) -> None:
    pairs = [(y > x) - (y < x) for x in a for y in b]
    assert cliffs_delta(np.array(a), np.array(b)) == pytest.approx(sum(pairs) / len(pairs))


def call(**columns: Any) -> dict[str, Any]:
    return {"event": "call", "api": "Produce", "api_key": 0, "status": "ok", "error_code": 0} | columns


def profile(*rows: dict[str, Any]) -> Profile:
    found = Profile()
    found.take(pa.RecordBatch.from_pylist(list(rows), schema=EVENTS))
    return found


def latency(a: list[float], b: list[float]) -> dict[str, Any]:
    sides = [profile(*[call(latency_us=time) for time in times]) for times in (a, b)]
    [row] = compared(*sides)[0].rows
    return dict(row)


def test_what_got_slower_is_told_with_its_effect_and_counts() -> None:
    row = latency([100.0 + each for each in range(40)], [200.0 + each for each in range(30)])
    assert (row["calls_a"], row["calls_b"], row["verdict"], row["effect"]) == (40, 30, "slower: large", 1.0)
    assert row["change"] == pytest.approx(214.5 / 119.5)
    assert row["p99_a_us"] is None


def test_a_few_slow_calls_make_no_difference() -> None:
    assert latency([100.0] * 50 + [9e6], [100.0] * 50)["verdict"] == "same"


def test_of_few_calls_nothing_is_claimed() -> None:
    assert latency([100.0] * 3, [900.0] * 100)["verdict"] == "only 3 calls"


def test_new_errors_and_errors_that_are_gone_are_told() -> None:
    a, b = profile(call(error_code=6), call()), profile(call(error_code=3), call(), call(), call())
    rows = {row["error"]: row for row in compared(a, b)[1].rows}
    assert rows["UNKNOWN_TOPIC_OR_PARTITION"]["verdict"] == "new"
    assert rows["UNKNOWN_TOPIC_OR_PARTITION"]["share_b"] == 0.25
    assert rows["NOT_LEADER_OR_FOLLOWER"]["verdict"] == "gone"


def test_clients_that_came_and_went_are_those_that_only_one_capture_has(answered: Callable[..., Any]) -> None:
    rows = answered("compare", *files("librdkafka-produce"), *files("librdkafka-groups"))["clients"]
    first = {row["client_id"] for row in sample("librdkafka-produce").calls}
    second = {row["client_id"] for row in sample("librdkafka-groups").calls}
    assert {row["client"] for row in rows if row["verdict"] == "went"} == first - second
    assert {row["client"] for row in rows if row["verdict"] == "came"} == second - first


def test_a_capture_differs_from_itself_in_nothing(answered: Callable[..., Any]) -> None:
    found = answered("compare", *files(A), *files(A))
    assert {row["effect"] for row in found["latency"] if "effect" in row} == {0.0}
    assert {row["verdict"] for row in found["errors"]} == {"in both"}
    assert found["clients"] == []


def test_stored_events_can_be_compared_with_a_capture(
    kwsniff: Callable[..., Ended], answered: Callable[..., Any], tmp_path: Path
) -> None:
    stored = str(tmp_path / "e.parquet")
    assert kwsniff("decode", "-q", *files(A), "-o", stored).code == 0
    assert answered("compare", stored, *files(B)) == answered("compare", *files(A), *files(B))


WHOLE = "librdkafka-groups"


def test_two_windows_of_one_input_are_compared_as_two_inputs_would_be(
    kwsniff: Callable[..., Ended], answered: Callable[..., Any], tmp_path: Path
) -> None:
    parts = [str(tmp_path / f"{side}.parquet") for side in "ab"]
    for part, bound in zip(parts, ("--until", "--since"), strict=True):
        assert kwsniff("decode", "-q", *files(WHOLE), bound, "01:31:30", "-o", part).code == 0
    right = answered("compare", *parts)
    windows = ("--a", "/01:31:30", "--b", "2026-11-21T01:31:30/")
    assert answered("compare", *files(WHOLE), *windows) == right
    assert answered("compare", *files(WHOLE), *files(WHOLE), *windows) == right
    zoned = ("--a", "/10:31:30", "--b", "10:31:30 / 11:00", "--tz", "Asia/Tokyo")
    assert answered("compare", *files(WHOLE), *zoned) == right
    ended = kwsniff("compare", *files(WHOLE), *windows)
    assert "pcapng, /01:31:30, 85 calls" in ended.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "name a second input, or two windows of this one: --a FROM/UNTIL --b FROM/UNTIL"),
        (("--a", "/01:31"), "name a second input"),
        (("--a", "01:31", "--b", "01:32/"), "--a: '01:31' is no window: FROM/UNTIL"),
        (("--a", "01:31/", "--b", "/"), "--b: '/' is no window"),
        (("--a", "01:31/noon", "--b", "01:32/"), "--a: 'noon' is no ISO 8601 time"),
        (("--a", "01:31/", "--b", "01:32/", "--since", "01:00"), "stand in place of --since and --until"),
    ],
)
def test_windows_that_are_wrong_are_refused(
    kwsniff: Callable[..., Ended], words: tuple[str, ...], said: str
) -> None:
    ended = kwsniff("compare", *files(WHOLE), *words)
    assert ended.code == 2
    assert said in ended.err


def test_a_window_without_calls_is_named(kwsniff: Callable[..., Ended]) -> None:
    ended = kwsniff("compare", *files(WHOLE), "--a", "01:31/", "--b", "03:00/04:00")
    assert ended.code == 0
    assert "B has no calls in 03:00/04:00 (UTC)" in ended.err
