from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from kwsniff.analysis.groups import Groups
from kwsniff.analysis.membership import share_text
from kwsniff.rows.schema import EVENTS
from tests.analysis.conftest import Ended, files
from tests.samples import sample

NAME = "librdkafka-groups"
NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


def assigned_by_clients(group: str) -> dict[str, list[str]]:
    """What each client says it was assigned, in order."""
    [client] = sample(NAME).note["clients"]
    found = defaultdict(list)
    for note in client["notes"]:
        if note["group"] == group and note["event"] == "assigned":
            found[note["client_id"]].append(share_text({"orders": note["partitions"]}))
    return found


@pytest.mark.parametrize("group", ["range", "static"])
def test_assignments_are_those_the_clients_say_they_got(group: str, answered: Callable[..., Any]) -> None:
    found = defaultdict(list)
    for row in answered("groups", *files(NAME), "--group", group)["rebalances"]:
        for text in row["after"]:
            client, _, share = text.partition(": ")
            found[client].append(share)
    assert found == assigned_by_clients(group)


def test_a_cooperative_group_ends_with_what_its_clients_hold(answered: Callable[..., Any]) -> None:
    rows = answered("groups", *files(NAME), "--group", "cooperative")["rebalances"]
    assert [row["after"] for row in rows] == [
        ["cooperative-first: orders[0-3]"],
        ["cooperative-first: orders[2-3]", "cooperative-second: nothing"],
        ["cooperative-first: orders[2-3]", "cooperative-second: orders[0-1]"],
        ["cooperative-first: orders[0-3]"],
    ]
    assert rows[2]["trigger"] == "the same members joined again"


def test_who_joined_and_left_is_told_with_the_generation(answered: Callable[..., Any]) -> None:
    rows = answered("groups", *files(NAME), "--group", "range")["rebalances"]
    assert [(row["generation"], row["trigger"]) for row in rows] == [
        (1, "range-first joined"),
        (2, "range-second joined"),
        (3, "range-second left"),
    ]
    assert [row["members"] for row in rows] == [1, 2, 1]
    assert all(row["duration_us"] > 0 for row in rows)


def test_the_coordinator_of_a_newer_group_assigns_in_heartbeats(answered: Callable[..., Any]) -> None:
    rows = answered("groups", *files(NAME), "--group", "kip848")["rebalances"]
    assert {row["kind"] for row in rows} == {"consumer (KIP-848)"}
    mine = [row["after"][0].partition(": ")[2] for row in rows if row["trigger"].startswith("kip848-first")]
    assert mine == ["orders[0-3]", "orders[0-1]", "orders[0-3]", "nothing"]


def test_share_groups_are_told(answered: Callable[..., Any]) -> None:
    members = answered("groups", *files("java-groups"), "--group", "java-share")["members"]
    assert {row["client"] for row in members} == {"java-share-first", "java-share-second"}


def test_consumers_that_read_everything_have_no_lag(answered: Callable[..., Any]) -> None:
    rows = answered("groups", *files(NAME))["lag"]
    ends: dict[int, int] = defaultdict(int)
    for call in sample(NAME).calls:
        for part in call["partitions"] or () if call["api"] == "Produce" else ():
            ends[part["partition"]] = part["base_offset"] + part["records"]
    assert {row["partition"]: row["high_watermark"] for row in rows} == ends
    assert {row["lag"] for row in rows} == {0}


def fetch(second: int, offset: int, end: int, start: int = 0) -> dict[str, Any]:
    part = {"topic": "orders", "partition": 0, "fetch_offset": offset, "high_watermark": end, "error_code": 0,
            "log_start_offset": start}  # fmt: skip
    return {
        "event": "call", "time": NOW + timedelta(seconds=second), "api_key": 1, "error_code": 0,
        "response_time": NOW + timedelta(seconds=second + 1), "client_ip": "10.0.0.5", "client_id": "app",
        "partitions": [part],
    }  # fmt: skip


def heartbeat() -> dict[str, Any]:
    return {
        "event": "call", "time": NOW, "api_key": 12, "error_code": 0, "group_id": "payments",
        "client_ip": "10.0.0.5", "client_id": "app", "request": '{"member_id":"m"}', "response": "{}",
    }  # fmt: skip


def lag(*rows: dict[str, Any]) -> dict[str, Any]:
    question = Groups()
    question.take(pa.RecordBatch.from_pylist(list(rows), schema=EVENTS))
    [row] = (row for row in question.tables()[2].rows if row["group"] is not None)
    return dict(row)


def test_a_consumer_that_stands_still_is_told_with_its_lag() -> None:
    row = lag(heartbeat(), fetch(0, 5, 100), fetch(10, 7, 110), fetch(70, 7, 200))
    assert (row["group"], row["high_watermark"], row["position"], row["lag"]) == ("payments", 200, 7, 193)
    assert row["stands_still_us"] == 60e6


def test_a_consumer_that_moves_stands_still_no_longer_than_since_it_moved() -> None:
    assert lag(heartbeat(), fetch(0, 5, 100), fetch(10, 100, 110))["stands_still_us"] == 0
    assert lag(heartbeat(), fetch(0, 5, 100), fetch(10, 110, 110))["stands_still_us"] is None


def test_the_end_is_the_newest_that_anybody_was_told() -> None:
    other = fetch(80, 250, 260) | {"client_id": "other"}
    row = lag(heartbeat(), fetch(0, 5, 100), fetch(10, 7, 110), other)
    assert (row["high_watermark"], row["position"], row["lag"]) == (260, 7, 253)


def test_what_retention_deleted_is_no_lag() -> None:
    assert lag(heartbeat(), fetch(0, 5, 100), fetch(10, 7, 110, start=90))["lag"] == 20


def test_a_position_that_only_a_request_names_counts() -> None:
    """Within a session a response leaves out what has no news (KIP-227)."""
    asked = [{"topic": "orders", "partition": 0, "fetch_offset": 97}]
    idle = fetch(10, 0, 0) | {"partitions": None, "asked": asked}
    assert lag(heartbeat(), fetch(0, 5, 100), idle)["lag"] == 3


UUID = "e4597805-fefe-49df-90ea-713dbef5ec8e"


def test_the_last_position_counts_whether_it_was_told_by_name_or_by_uuid() -> None:
    by_uuid = fetch(5, 40, 100)
    by_uuid["partitions"][0] |= {"topic": None, "topic_id": UUID}
    names = {**heartbeat(), "topics": ["orders"], "topic_ids": [UUID]}
    row = lag(names, by_uuid, fetch(10, 90, 100))
    assert (row["position"], row["lag"]) == (90, 10)
    later = fetch(20, 95, 100)
    later["partitions"][0] |= {"topic": None, "topic_id": UUID}
    row = lag(names, fetch(10, 90, 100), later)
    assert (row["position"], row["lag"]) == (95, 5)
    row = lag(names, by_uuid, fetch(10, 90, 100), later)
    assert (row["position"], row["lag"]) == (95, 5)


@pytest.mark.parametrize("key", [8, 28])
def test_commits_within_a_transaction_are_counted(key: int) -> None:
    part = {"topic": "orders", "partition": 0, "committed_offset": 7, "error_code": 0}
    commit = {**heartbeat(), "api_key": key, "request": None, "response": None, "partitions": [part]}
    row = lag(fetch(0, 5, 10), commit)
    assert (row["committed"], row["commit_lag"], row["commits"]) == (7, 3, 1)


def test_events_without_bodies_say_so(kwsniff: Callable[..., Ended], tmp_path: Any) -> None:
    stored = str(tmp_path / "e.parquet")
    assert kwsniff("decode", "-q", *files(NAME), "-o", stored).code == 0
    assert "calls have no bodies: read the capture to see more" in kwsniff("groups", stored).err


def test_a_member_was_last_seen_when_it_committed_last() -> None:
    commit = {
        **heartbeat(), "api_key": 8, "time": NOW + timedelta(seconds=50), "request": None, "response": None,
        "member_id": "m",
        "partitions": [{"topic": "orders", "partition": 0, "committed_offset": 7, "error_code": 0}],
    }  # fmt: skip
    question = Groups()
    question.take(pa.RecordBatch.from_pylist([heartbeat(), commit], schema=EVENTS))
    [member] = question.tables()[1].rows
    assert (member["first_time"], member["last_time"]) == (NOW, NOW + timedelta(seconds=50))


def test_a_member_was_first_seen_when_it_was_given_its_id() -> None:
    join = {**heartbeat(), "api_key": 11, "request": '{"member_id":""}'}
    refused = {"error_code": 79, "response": '{"error_code":79,"member_id":"m"}'}
    taken = {"time": NOW + timedelta(seconds=2), "response": '{"member_id":"m","generation_id":1}'}
    question = Groups()
    question.take(pa.RecordBatch.from_pylist([join | refused, join | taken], schema=EVENTS))
    [member] = question.tables()[1].rows
    assert member["first_time"] == NOW


def test_a_streams_heartbeat_without_tasks_changes_no_assignment(answered: Callable[..., Any]) -> None:
    """KIP-1071: null is no change. The members read both partitions until they left."""
    rows = answered("groups", *files("java-streams"), "--group", "streams-app")["rebalances"]
    given = [row["after"] for row in rows if row["trigger"] == "java-44-streams-1 assigned"]
    assert given == [[f"java-44-streams-1: 0[{parts}]"] for parts in ("0-1", "0", "0-1")]
