"""Fetch sessions: what a broker logged of its own, and rows made by hand."""

from __future__ import annotations

import base64
import gzip
import json
import uuid
from typing import Any

import pyarrow as pa
import pytest

from kwsniff.count.naming import named
from kwsniff.count.sessions import Sessions
from tests.report.events import batch, call
from tests.samples import CAPTURES, sample

Offsets = dict[tuple[str, int], int]


def hexadecimal(text: str) -> str:
    """A uuid as Kafka writes it, as `topic_ids` has it."""
    return str(uuid.UUID(bytes=base64.urlsafe_b64decode(text + "==")))


def of_the_log(name: str) -> dict[tuple[str, int], Offsets]:
    """What each incremental fetch was about, by client and correlation id, following KIP-227 through the
    requests that the broker logged."""
    text = gzip.decompress((CAPTURES / "expected" / f"{name}.requests.jsonl.gz").read_bytes()).decode()
    fetches = [
        row for row in map(json.loads, text.splitlines()) if row["requestHeader"]["requestApiKey"] == 1
    ]
    sessions: dict[tuple[str, int], Offsets] = {}
    about = {}
    for row in sorted(fetches, key=lambda row: row["requestHeader"]["correlationId"]):
        asked, answer = row["request"], row["response"]
        if asked["sessionEpoch"] < 0 or not answer["sessionId"]:
            continue
        key = (row["broker"], answer["sessionId"])
        if asked["sessionEpoch"] == 0:
            sessions[key] = {}
        session = sessions[key]
        for topic in asked["topics"]:
            for part in topic["partitions"]:
                session[hexadecimal(topic["topicId"]), part["partition"]] = part["fetchOffset"]
        for topic in asked["forgottenTopicsData"]:
            for partition in topic["partitions"]:
                session.pop((hexadecimal(topic["topicId"]), partition))
        if asked["sessionEpoch"] > 0:
            about[row["client"], row["requestHeader"]["correlationId"]] = dict(session)
    return about


@pytest.mark.parametrize("name", ["java-streams"])
def test_incremental_fetches_are_about_what_the_broker_knew_them_to_be(name: str) -> None:
    from kwsniff.config import Config
    from kwsniff.run.offline import events

    expected, seen = of_the_log(name), 0
    for rows in named(events(sample(name).paths, Config())):
        for row in rows.filter(pa.compute.greater(rows["session_epoch"], 0)).to_pylist():
            session = expected[f"{row['client_ip']}:{row['client_port']}", row["correlation_id"]]
            assert set(row["topic_ids"]) == {topic for topic, _ in session}
            parts = {(p["topic_id"], p["partition"]): p["fetch_offset"] for p in row["partitions"] or ()}
            assert parts.items() <= session.items()
            assert parts == session or row["record_bytes"]
            seen += 1
    assert seen == len(expected) > 20


def fetch(epoch: int, session: int = 7, **columns: Any) -> dict[str, Any]:
    return call(api_key=1, api="Fetch", session_id=session, session_epoch=epoch, **columns)


def asked(topic: str, partition: int, offset: int | None) -> dict[str, Any]:
    return {"topic": topic, "partition": partition, "fetch_offset": offset}


def filled(*rows: dict[str, Any], **limits: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = Sessions(**limits).fill(batch(*rows)).to_pylist()
    return found


def places(row: dict[str, Any]) -> list[tuple[str, int, int]]:
    return [(part["topic"], part["partition"], part["fetch_offset"]) for part in row["partitions"] or ()]


def test_a_session_keeps_what_was_asked_for_until_it_is_forgotten() -> None:
    rows = filled(
        fetch(0, topics=["a", "b"], partitions=[asked("a", 0, 5), asked("b", 1, 8)]),
        fetch(1),
        fetch(2, asked=[asked("a", 0, 6), asked("b", 1, None), asked("c", 0, 1)]),
        fetch(3, partitions=[{"topic": "c", "partition": 0, "records": 2}]),
    )
    assert [row["topics"] for row in rows] == [["a", "b"], ["a", "b"], ["a", "c"], ["a", "c"]]
    assert places(rows[1]) == [("a", 0, 5), ("b", 1, 8)]
    assert places(rows[2]) == [("a", 0, 6), ("c", 0, 1)]
    assert places(rows[3]) == [("c", 0, 1)]


def test_a_session_from_before_the_capture_is_known_as_far_as_its_calls_name_it() -> None:
    rows = filled(
        fetch(40),
        fetch(41, partitions=[{"topic": "a", "partition": 3, "records": 1}]),
        fetch(42),
        fetch(0, partitions=[asked("b", 0, 1)]),
        fetch(1),
    )
    assert [row["topics"] for row in rows] == [None, ["a"], ["a"], None, ["b"]]
    assert places(rows[2]) == [("a", 3, None)]


def test_brokers_and_sessions_are_told_apart_and_calls_without_a_session_are_left_alone() -> None:
    rows = filled(
        fetch(0, partitions=[asked("a", 0, 1)]),
        fetch(0, session=8, partitions=[asked("b", 0, 1)]),
        fetch(0, broker_port=9093, partitions=[asked("c", 0, 1)]),
        fetch(1),
        fetch(1, session=8),
        fetch(1, broker_port=9093),
        fetch(-1, session=0),
        call(api="Metadata", topics=["m"]),
    )
    assert [row["topics"] for row in rows[3:]] == [["a"], ["b"], ["c"], None, ["m"]]


def test_what_is_kept_is_bounded_and_what_was_used_longest_ago_goes_first() -> None:
    rows = filled(
        fetch(0, session=1, partitions=[asked("a", 0, 1)]),
        fetch(0, session=2, partitions=[asked("b", 0, 1)]),
        fetch(1, session=1),
        fetch(0, session=3, partitions=[asked("c", 0, 1)]),
        fetch(2, session=1),
        fetch(1, session=2),
        sessions=2,
    )
    assert [row["topics"] for row in rows] == [None, None, ["a"], None, ["a"], None]
    few = filled(
        fetch(0, session=1, partitions=[asked("a", n, 1) for n in range(5)]),
        fetch(0, session=2, partitions=[asked("b", n, 1) for n in range(5)]),
        fetch(1, session=1),
        partitions=8,
    )
    assert few[2]["topics"] is None


def test_the_metadata_log_has_the_same_uuid_in_every_cluster() -> None:
    """AAAAAAAAAAAAAAAAAAAAAQ: 21 letters of 6 bits and the last 4 bits of a 1."""
    fixed = str(uuid.UUID(bytes=base64.urlsafe_b64decode("AAAAAAAAAAAAAAAAAAAAAQ==")))
    (rows,) = named([batch(call(api="Fetch", topics=None, topic_ids=[fixed]))])
    assert rows["topics"].to_pylist() == [["__cluster_metadata"]]
