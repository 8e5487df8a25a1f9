"""Each rule speaks about the captures that have its situation, and is silent about all others."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from functools import cache
from pathlib import Path

import pyarrow as pa
import pytest

from kwsniff.analysis.findings import RULES, Finding, Findings
from kwsniff.analysis.rule import NOT_SHOWN, OK
from kwsniff.config import Config
from kwsniff.run.offline import events
from kwsniff.spec.load import catalog
from tests.samples import CAPTURES, names, sample

GOLDEN = Path(__file__).parents[1] / "data" / "findings"
ERRORS = {code: (error.name, error.retriable) for code, error in catalog().errors.items()}

SITUATIONS = {
    "plaintext_on_tls": {"tls"},
    "tls_on_plaintext": {"tls-on-plaintext"},
    # Brokers that are started, ended or killed while others try to reach them, but for the last.
    "unreachable": {"kafka-0.10", "kafka-0.8", "quorum", "stale-leader", "wrong-listener"},
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
    "connection_churn": {"connection-churn"},
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
