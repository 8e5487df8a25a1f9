"""Each rule speaks about the captures that have its situation, and is silent about all others."""

from __future__ import annotations

import csv
import io
import json
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kwsniff.analysis.findings import RULES, Finding, Findings
from kwsniff.analysis.rule import NOT_SHOWN, OK
from kwsniff.config import Config
from kwsniff.run.offline import events
from kwsniff.spec.load import catalog
from tests.analysis.wide import SCHEMA
from tests.samples import CAPTURES, names, sample

GOLDEN = Path(__file__).parents[1] / "data" / "findings"
ERRORS = {code: (error.name, error.retriable) for code, error in catalog().errors.items()}

SITUATIONS = {
    "plaintext_on_tls": {"tls"},
    "tls_on_plaintext": {"tls-on-plaintext"},
    # Brokers that are started, ended or killed while others try to reach them, but for the last.
    "unreachable": {"kafka-0.10", "kafka-0.8", "quorum", "stale-leader", "wrong-listener"},
    "tls_handshake_failed": {"tls", "tls-failures"},  # clients that do not know the CA; the second has more
    "certificate_expires": set(),  # this one and weak_tls: at ports of tls-failures that have to be named
    "tls_without_resumption": {"tls-failures"},
    "weak_tls": set(),
    "authentication_failed": {"sasl"},
    "not_authorized": {"sasl"},
    "password_in_clear": {"sasl", "sasl-0.10"},
    "stale_leader": {"stale-leader"},
    "slow_broker": {"slow-broker"},
    # Clients that send before they are answered: on purpose, or because a broker is gone or slow.
    "slow_queue": {"slow-queue", "tiny-batches", "stale-leader"},
    "zero_windows": {"slow-reader"},
    "consumer_falls_behind": {"stuck-consumer"},
    "throttled": {"throttled", "exceeded-quota"},
    "quota_exceeded": {"exceeded-quota"},
    "retransmissions": {"lossy-network"},
    "rebalances": {"rebalance-leave", "rebalance-timeout"},
    "member_expelled": {"rebalance-leave", "rebalance-timeout"},  # one of each does not poll in time
    "consumer_stands_still": {"stuck-consumer"},
    "hot_partition": {"hot-partition"},
    "uncompressed": {"hot-partition"},
    "tiny_batches": {"tiny-batches"},
    "metadata_storm": {"metadata-storm", "connection-churn"},
    "api_versions_storm": {"connection-churn"},
    "connection_churn": {"connection-churn", "tls-failures"},
    "old_client": {"kafka-0.8"},
}
"""By how the captures were recorded (captures/README.md)."""
ANYWHERE = {"errors", "unanswered"}
"""Compared with the events instead."""


@cache
def findings(name: str) -> list[Finding]:
    rules = Findings()
    for batch in events(sample(name).paths, Config()):
        rules.take(batch)
    return rules.found(ERRORS)


def told(name: str) -> list[Finding]:
    return [each for each in findings(name) if each.severity not in (OK, NOT_SHOWN)]


@cache
def samples_by_code() -> dict[str, set[str]]:
    places: dict[str, set[str]] = defaultdict(set)
    for name in names():
        for each in told(name):
            places[each.code].add(name)
    return places


@pytest.mark.parametrize("code", [rule.code for rule in RULES if rule.code not in ANYWHERE])
def test_a_rule_speaks_about_its_situation_and_nothing_else(code: str) -> None:
    assert samples_by_code().get(code, set()) == SITUATIONS[code]


@pytest.mark.parametrize("name", names())
def test_the_findings_of_a_sample_are_its_golden_ones(name: str, request: pytest.FixtureRequest) -> None:
    text = _table(told(name)).replace(f"{CAPTURES}/", "")
    path = GOLDEN / f"{name}.csv"
    if request.config.getoption("--update-golden"):
        GOLDEN.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def _table(rows: list[Finding]) -> str:
    text = io.StringIO()
    columns = ["severity", "code", "subject", "finding", "numbers", "evidence", "command"]
    writer = csv.DictWriter(text, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(each.row() for each in rows)
    return text.getvalue()


@pytest.mark.parametrize("name", names())
def test_every_packet_given_as_evidence_is_one_of_the_events(name: str) -> None:
    rows = sample(name).events()
    columns = ("request_packet", "response_packet", "packet", "first_packet", "last_packet")
    known = {(row["capture"], row[column]) for row in rows for column in columns if row[column] is not None}
    for each in told(name):
        assert {(p.capture, p.number) for p in each.evidence if p.number >= 0} <= known


@pytest.mark.parametrize("name", names())
def test_unanswered_and_failed_calls_are_those_of_the_events(name: str) -> None:
    calls = sample(name).calls
    for each in told(name):
        if each.code == "unanswered":
            mine = [c for c in calls if c["unanswered_because"] in ("connection_reset", "connection_closed")]
            mine = [c for c in mine if c["api"] not in ("Fetch", "ShareFetch", "JoinGroup", "SyncGroup")]
            assert 0 < each.numbers["calls"] <= len(mine)
        if each.code == "errors":
            code = each.numbers["error_code"]
            assert each.numbers["answers"] == sum(call["error_code"] == code for call in calls)


def test_the_clients_own_words_agree_with_what_is_found() -> None:
    """What the recorded clients noted of themselves, not the packets."""
    notes = sample("stale-leader").note["clients"][0]["notes"]
    (stale,) = (each for each in told("stale-leader") if each.code == "stale_leader")
    assert f"127.0.0.{notes[0]['killed_node']}:9092" in stale.sentence
    assert stale.numbers["answers"] == 60
    (tiny,) = (each for each in told("tiny-batches") if each.code == "tiny_batches")
    assert tiny.numbers["batches"] == len(sample("tiny-batches").note["clients"][0]["produced"])
    produced = sample("hot-partition").note["clients"][0]["produced"]
    on_one = [each["partition"] for each in produced]
    share = max(on_one.count(number) for number in set(on_one)) / len(on_one)
    (hot,) = (each for each in told("hot-partition") if each.code == "hot_partition")
    assert hot.numbers["share_ratio"] == pytest.approx(share, abs=0.01)
    stopped = sum(
        each["event"] == "stopped" for each in sample("rebalance-timeout").note["clients"][0]["notes"]
    )
    (expelled,) = (each for each in told("rebalance-timeout") if each.code == "member_expelled")
    assert expelled.numbers["times"] == stopped


def test_retransmissions_are_those_that_the_kernel_of_the_senders_counted() -> None:
    """Of all segments it sent again, tshark knows those without data (SYN, FIN), which we do not count."""
    network = sample("lossy-network").note["network"]
    rows = [row for row in sample("lossy-network").events() if row["event"] == "connection"]
    ours = {side: sum(row[f"{side}_retransmissions"] for row in rows) for side in ("client", "broker")}
    assert sum(ours.values()) + len(network["tshark"]["empty"]) == network["sent_again"]
    for side, count in ours.items():  # it takes some that came within 3 ms for packets out of order
        assert 0 <= count - len(network["tshark"][side]) <= 2


def test_a_refused_change_is_one_that_the_client_was_told_of() -> None:
    """Beside those it was told of the client asked once more by itself, for the topic it waited for."""
    note = sample("exceeded-quota").note["clients"][0]
    (refused,) = (each for each in told("exceeded-quota") if each.code == "quota_exceeded")
    assert refused.numbers["answers"] == len(note["errors"]) + 1
    asked = {row["asked"]: row for row in note["notes"]}
    throttle = [row["throttle_ms"] for row in sample("exceeded-quota").calls if row["error_code"] == 89]
    assert throttle[:3] == [row["throttle_ms"] for row in asked.values() if row["result"] == "refused"]


@pytest.mark.parametrize(
    "name", ["stale-leader", "rebalance-leave", "stuck-consumer", "sasl", "tls", "rotation"]
)
@pytest.mark.one_of(6)
@pytest.mark.parametrize("size", [1, 7, 100])
def test_parts_of_an_input_merge_to_the_findings_of_the_whole(name: str, size: int) -> None:
    whole = pa.Table.from_batches(list(events(sample(name).paths, Config())))
    parts = []
    for begin in range(0, whole.num_rows, size):
        part = Findings()
        for batch in whole.slice(begin, size).combine_chunks().to_batches():
            part.take(batch)
        parts.append(part)
    first, *others = parts
    for other in others:
        first.merge(other)
    assert first.found(ERRORS) == findings(name)


def test_no_golden_table_is_left_over() -> None:
    assert sorted(path.stem for path in GOLDEN.iterdir()) == names()


# Rules whose columns are not filled by every source: plain Python fills them here

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
