from __future__ import annotations

from typing import Any

import pytest

from kwsniff.live.screen.lastminute import ScreenStatistics
from kwsniff.live.screen.screenrows import CALLS, PENDING
from tests.live.screen.events import START, batch, call, health


def last(statistics: ScreenStatistics, grouping: str, name: str | None) -> list[dict[str, Any]]:
    groups = statistics.snapshot().groups
    assert groups is not None
    group = groups[grouping]
    row = next(row for row, key in enumerate(group.keys) if key is not None and key[0] == name)
    return group.recent.of(int(group.owners[row]))


@pytest.mark.parametrize("step", [1, 7, 500])
def test_the_last_calls_of_a_row_are_kept_however_busy_the_others_are(step: int) -> None:
    statistics = ScreenStatistics()
    rare = [call(0.1 * number, number + 1, client_id="rare") for number in range(CALLS + 5)]
    for row in rare:
        statistics.add(batch([row]))
    busy = [call(5 + number / 1000, client_id="busy") for number in range(3 * PENDING)]
    for first in range(0, len(busy), step * 100):
        statistics.add(batch(busy[first : first + step * 100]))
        statistics.snapshot()
    got = last(statistics, "client", "rare")
    assert [row["latency_us"] for row in got] == [1000.0 * n for n in range(CALLS + 5, 5, -1)]
    assert len(last(statistics, "client", "busy")) == CALLS
    assert last(statistics, "client", "busy")[0]["time"] == busy[-1]["time"]


def test_a_call_keeps_what_is_shown_of_it() -> None:
    statistics = ScreenStatistics()
    statistics.add(
        batch([call(1, 2, error_code=3, error="UNKNOWN", topics=["a", "b"], client_id="me", group_id="g")])
    )
    for grouping, name in (("api", "Metadata"), ("client", "me"), ("topic", "b"), ("group", "g")):
        (row,) = last(statistics, grouping, name)
        assert row["time"] == call(1, 2)["time"]
        assert row["time"] > START
        assert (row["topic"], row["topics"], row["error"], row["client_id"]) == ("a", 2, "UNKNOWN", "me")


def test_a_row_s_next_name_has_none_of_its_calls() -> None:
    statistics = ScreenStatistics()
    statistics.add(batch([call(1, client_id="before")]))
    statistics.tick(health(1))
    statistics.tick(health(100))
    statistics.add(batch([call(101, client_id="after")]))
    assert [row["client_id"] for row in last(statistics, "client", "after")] == ["after"]


def test_remembered_calls_stay_few() -> None:
    statistics = ScreenStatistics()
    for number in range(80):
        rows = [call(number / 10, client_id=f"client-{place}", topics=[f"t{place}"]) for place in range(100)]
        statistics.add(batch(rows))
        groups = statistics.snapshot().groups
        assert groups is not None
        for group in groups.values():
            assert sum(table.num_rows for table in group.recent.tables) <= PENDING + 200 * CALLS


def test_a_topic_given_by_uuid_is_shown_by_its_name() -> None:
    statistics = ScreenStatistics()
    uuid = "8a0b6a5e-7f64-4a5e-9f52-7c3f4dfe4c11"
    statistics.add(batch([call(1, topics=["orders"], topic_ids=[uuid])]))
    statistics.snapshot()
    statistics.add(
        batch([call(2, topics=[None, None], topic_ids=[uuid, uuid[::-1]], api="Fetch", api_key=1)])
    )
    (row,) = last(statistics, "api", "Fetch")
    assert (row["topic"], row["topics"]) == ("orders", 2)
