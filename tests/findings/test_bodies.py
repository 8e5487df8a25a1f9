"""Rules whose columns are not filled by every source, on recorded captures: here plain Python fills the
columns from the bodies and the packet times of the calls, sharing nothing with the engine."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from kwsniff.analysis.findings import Finding, Findings
from kwsniff.analysis.rule import NOT_SHOWN, OK
from tests.findings.wide import SCHEMA
from tests.samples import sample

Row = dict[str, Any]


def found(rows: list[Row]) -> list[Finding]:
    rules = Findings()
    rules.take(pa.RecordBatch.from_pylist(rows, schema=SCHEMA))
    return [each for each in rules.found() if each.severity not in (OK, NOT_SHOWN)]


def with_positions(rows: list[Row]) -> list[Row]:
    """Fetch positions, high watermarks and commits, from the bodies; sessions are followed by connection."""
    names: dict[str, str] = {}
    for row in rows:
        for topic, uuid in zip(row["topics"] or [], row["topic_ids"] or [], strict=False):
            names |= {uuid: topic} if topic else {}
    sessions: dict[tuple[str, str, int], int] = {}
    for row in rows:
        request, response = (json.loads(row[name] or "{}") for name in ("request", "response"))
        if row["api"] == "Fetch":
            row["partitions"] = list(_fetched(row, request, response, names, sessions))
        elif row["api"] == "OffsetCommit":
            row["partitions"] = [
                {
                    "topic": topic.get("name") or names.get(topic.get("topic_id")),
                    "partition": part["partition_index"],
                    "committed_offset": part["committed_offset"],
                    "error_code": row["error_code"],
                }
                for topic in request.get("topics", [])
                for part in topic["partitions"]
            ]
    return rows


def _fetched(row: Row, request: Row, response: Row, names: dict[str, str], sessions: dict[Any, int]) -> Any:
    for topic in request.get("topics", []):
        for part in topic["partitions"]:
            sessions[row["connection"], topic["topic_id"], part["partition"]] = part["fetch_offset"]
    for topic in response.get("responses", []):
        for part in topic["partitions"]:
            place = (row["connection"], topic["topic_id"], part["partition_index"])
            yield {
                "topic": names.get(topic["topic_id"]), "partition": part["partition_index"],
                "fetch_offset": sessions.get(place), "high_watermark": part["high_watermark"],
            }  # fmt: skip


def test_the_consumers_that_lag_are_found_and_the_quick_one_is_not() -> None:
    behind = found(with_positions(sample("stuck-consumer").events(full=True)))
    groups = {each.subject for each in behind if each.code == "consumer_falls_behind"}
    assert groups == {"billing", "reports"}
    sent = sample("stuck-consumer").note["clients"][0]["notes"][0]["sent"]
    (reports,) = (each for each in behind if each.subject == "reports")
    assert reports.numbers["came"] <= sent / 2  # of two partitions
    assert reports.numbers["lag_last"] + reports.numbers["committed"] <= sent / 2
    (still,) = (each for each in behind if each.code == "consumer_stands_still")
    assert still.subject == "billing-stuck@127.0.0.1"


def test_samples_whose_consumers_keep_up_do_not_lag() -> None:
    for name in ("java-groups", "librdkafka-groups", "rebalance-leave"):
        rows = with_positions([row for row in sample(name).events(full=True) if row["api"] != "ShareFetch"])
        assert [each for each in found(rows) if each.code == "consumer_falls_behind"] == []


def test_reasons_tell_who_left_and_who_did_not_poll_in_time() -> None:
    rows = sample("rebalance-leave").events(full=True)
    for row in rows:
        if row["api"] == "LeaveGroup":
            row["reason"] = json.loads(row["request"])["members"][0]["reason"]
    told = {each.code: each for each in found(rows)}
    assert told["member_expelled"].subject == "shipping-busy@127.0.0.1"
    assert (
        "the consumer is being closed 4, consumer poll timeout has expired. 1" in told["rebalances"].sentence
    )


def test_a_queue_on_one_connection_is_found_where_the_time_went() -> None:
    """A broker handles one request of a connection at a time, none before the answer to the one before."""
    rows = sample("slow-queue").events()
    free: dict[str, Any] = {}
    for row in sorted((row for row in rows if row["latency_us"]), key=lambda row: row["request_time"]):
        begins = max(free.get(row["connection"], row["request_end_time"]), row["request_end_time"])
        row["queued_us"] = (begins - row["request_end_time"]).total_seconds() * 1e6
        waits = row["latency_us"] - row["queued_us"]
        row["waited_us"] = waits if row["api"] == "Fetch" else 0.0
        row["broker_us"] = 0.0 if row["api"] == "Fetch" else waits
        row["broker_least_us"] = row["broker_us"]
        free[row["connection"]] = row["response_end_time"]
    (queue,) = found(rows)
    assert (queue.code, queue.subject) == ("slow_queue", "one-connection@127.0.0.1")
    assert queue.numbers["queued_calls"] == 30
    assert queue.numbers["p95_us"] > 240_000
