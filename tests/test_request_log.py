"""What was decoded against what the broker itself logged of each request it answered.

A broker of 4.4 writes header, request and response of a call as JSON, with every field as it read and wrote
it. The recorder keeps that log beside the capture: an account of the same calls, down to the last field, that
shares nothing with ours.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
import uuid
from collections import Counter
from typing import Any

import pytest

from tests.samples import CAPTURES, Row, names, sample

LOGGED = [name for name in names() if (CAPTURES / "expected" / f"{name}.requests.jsonl.gz").exists()]

Key = tuple[str, str, int]
"""Broker, client, correlation id."""


def logged(name: str) -> dict[Key, Row]:
    text = gzip.decompress((CAPTURES / "expected" / f"{name}.requests.jsonl.gz").read_bytes()).decode()
    rows = [json.loads(line) for line in text.splitlines()]
    found = {(row["broker"], row["client"], row["requestHeader"]["correlationId"]): row for row in rows}
    assert len(found) == len(rows)
    return found


def decoded(name: str) -> dict[Key, Row]:
    rows = [row for row in sample(name).events(full=True) if row["event"] == "call"]
    found = {
        (
            f"{row['broker_ip']}:{row['broker_port']}",
            f"{row['client_ip']}:{row['client_port']}",
            row["correlation_id"],
        ): row
        for row in rows
    }
    assert len(found) == len(rows)
    return found


CALLED = {"generation_id": "generation_id_or_member_epoch"}
"""Fields of TxnOffsetCommit that 4.4 gave other names, as the dissector says."""


def as_logged(body: Any) -> Any:
    """A decoded body in the broker's spelling: its names, its way to write a uuid, record data as a size."""
    if isinstance(body, list):
        return [as_logged(each) for each in body]
    if not isinstance(body, dict):
        return body
    made = {}
    for name, value in body.items():
        if name == "records":
            made["recordsSizeInBytes"] = sum(batch["size"] for batch in value or [])
        else:
            made[camel(CALLED.get(name, name))] = short(value) if name == "topic_id" else as_logged(value)
    return made


def short(topic_id: str) -> str:
    """A uuid as Kafka writes it."""
    return base64.urlsafe_b64encode(uuid.UUID(topic_id).bytes).decode().rstrip("=")


def camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)


@pytest.mark.parametrize("name", LOGGED)
def test_every_answer_that_the_broker_logged_was_decoded_and_no_other(name: str) -> None:
    answered = {key for key, row in decoded(name).items() if row["response"] is not None}
    assert answered == set(logged(name))
    assert len(answered) >= 16


@pytest.mark.parametrize("name", LOGGED)
def test_headers_are_those_that_the_broker_read(name: str) -> None:
    ours = decoded(name)
    for key, row in logged(name).items():
        header = row["requestHeader"]
        call = ours[key]
        read = (header["requestApiKey"], header["requestApiVersion"], header["clientId"])
        assert (call["api_key"], call["api_version"], call["client_id"]) == read
        assert call["api"].upper() == header["requestApiKeyName"].replace("_", "")


@pytest.mark.parametrize("name", LOGGED)
@pytest.mark.parametrize("direction", ["request", "response"])
def test_bodies_are_those_that_the_broker_read_and_wrote_field_by_field(name: str, direction: str) -> None:
    ours = decoded(name)
    for key, row in logged(name).items():
        assert as_logged(json.loads(ours[key][direction])) == row[direction], key


@pytest.mark.parametrize("name", LOGGED)
def test_errors_are_counted_as_the_broker_gave_them(name: str) -> None:
    ours = Counter((row["api_key"], row["error_code"]) for row in decoded(name).values() if row["error_code"])
    given: Counter[tuple[int, int]] = Counter()
    for row in logged(name).values():
        codes = [code for code in error_codes(row["response"]) if code]
        given.update((row["requestHeader"]["requestApiKey"], code) for code in codes[:1])
    assert ours == given
    assert ours


def error_codes(body: Any) -> list[int]:
    """All error codes of a logged response, in the order of its fields."""
    if isinstance(body, list):
        return [code for each in body for code in error_codes(each)]
    if not isinstance(body, dict):
        return []
    return [
        code
        for name, value in body.items()
        for code in ([value] if re.search("errorCode$|ErrorCode$", name) else error_codes(value))
    ]


WHAT_4_4_BROUGHT = {
    "java-streams": {
        (18, 5, 0),
        (28, 6, 0),
        (42, 3, 0),
        (42, 3, 134),
        (88, 1, 0),
        (89, 1, 0),
        (93, 0, 0),
        (93, 0, 135),
        (94, 0, 0),
        (94, 0, 136),
    },
    "misrouted": {(18, 5, 0), (18, 5, 129)},
}
"""API, version and error code."""


@pytest.mark.parametrize("name", WHAT_4_4_BROUGHT)
def test_the_samples_of_4_4_show_what_it_brought(name: str) -> None:
    seen = {(row["api_key"], row["api_version"], row["error_code"]) for row in decoded(name).values()}
    assert seen >= WHAT_4_4_BROUGHT[name]


def test_a_misrouted_client_names_the_cluster_it_was_led_away_from() -> None:
    refused = [row for row in decoded("misrouted").values() if row["error_code"] == 129]
    asked = [json.loads(row["request"]) for row in refused]
    assert {(body["cluster_id"], body["node_id"]) for body in asked} == {("kwsniffSamplesCluster0", 1)}
    assert {row["broker_port"] for row in refused} == {9092}


def test_offsets_in_transactions_name_their_topic_by_uuid() -> None:
    calls = sample("java-streams").calls
    uuids = {
        uuid
        for row in calls
        for topic, uuid in zip(row["topics"] or [], row["topic_ids"] or [], strict=False)
        if topic == "orders" and uuid
    }
    commits = [row for row in calls if row["api_key"] == 28]
    assert {tuple(row["topic_ids"]) for row in commits} == {tuple(uuids)}
    assert {row["group_id"] for row in commits} == {"tx-group"}
    assert {part["topic_id"] for row in commits for part in row["partitions"]} == uuids


def test_a_topology_that_a_member_described_is_what_the_group_is_described_with() -> None:
    calls = decoded("java-streams").values()
    told = next(json.loads(row["request"]) for row in calls if row["api_key"] == 93)
    groups = [
        group
        for row in calls
        if row["api_key"] == 89 and row["status"] == "ok"
        for group in json.loads(row["response"])["groups"]
        if group["topology_description"]
    ]
    assert groups
    assert all(group["topology_description"] == told["topology_description"] for group in groups)
