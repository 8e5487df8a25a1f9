from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.answers.conftest import Ended, files, said_by_clients

PRODUCING = ["librdkafka-produce", "java-groups", "kafka-python-kafka", "kafkajs-kafka", "sasl"]


@pytest.mark.parametrize("name", PRODUCING)
def test_clients_produce_what_they_say_they_did(name: str, answered: Callable[..., Any]) -> None:
    said = Counter((row["client_id"], row["topic"]) for row in said_by_clients(name, "produced"))
    uses = answered("clients", *files(name))["uses"]
    found = {(row["client"], row["topic"]): row["records"] for row in uses if row["does"] == "produces"}
    assert {key: found.get(key) for key in said} == dict(said)


@pytest.mark.parametrize("name", ["librdkafka-produce", "kafkajs-kafka"])
def test_settings_are_those_the_clients_say_they_had(name: str, answered: Callable[..., Any]) -> None:
    acks, codecs = defaultdict(set), defaultdict(set)
    for row in said_by_clients(name, "produced"):
        acks[row["client_id"]].add(row["acks"])
        codecs[row["client_id"]].add(row["codec"])
    settings = {row["client"]: row for row in answered("clients", *files(name))["settings"]}
    assert {client: set(settings[client]["acks"]) for client in acks} == acks
    assert {client: set(settings[client]["codecs"]) for client in codecs} == codecs


def test_a_producer_that_asks_for_an_id_is_idempotent(answered: Callable[..., Any]) -> None:
    settings = {row["client"]: row for row in answered("clients", *files("librdkafka-produce"))["settings"]}
    assert settings["rdkafka-none-acks-all"]["producer"] == "idempotent"
    assert settings["rdkafka-none-acks-1"]["producer"] == "plain"


def test_who_uses_a_topic_is_told_by_its_name(
    kwsniff: Callable[..., Ended], answered: Callable[..., Any]
) -> None:
    uses = answered("clients", *files("java-groups"), "--topic", "orders")["uses"]
    assert {row["topic"] for row in uses} == {"orders"}
    assert {row["does"] for row in uses} == {"produces", "consumes"}
    assert answered("clients", *files("java-groups"), "--topic", "refunds")["uses"] == []


def test_a_replica_is_no_consumer(answered: Callable[..., Any]) -> None:
    uses = answered("clients", *files("kafka-0.10"))["uses"]
    replicas = {row["client"] for row in uses if row["does"] == "replicates"}
    assert replicas == {"ReplicaFetcherThread-0-0", "ReplicaFetcherThread-0-1"}
    consumers = {row["client"] for row in uses if row["does"] == "consumes"}
    assert not any(client.startswith("ReplicaFetcher") for client in consumers)


def test_users_are_those_that_logged_in(answered: Callable[..., Any]) -> None:
    users = {row["client"]: row.get("user") for row in answered("clients", *files("sasl"))["clients"]}
    assert users["rdkafka-plain"] == users["rdkafka-scram-sha-256"] != None  # noqa: E711


def test_isolation_levels_are_in_the_bodies(answered: Callable[..., Any]) -> None:
    settings = answered("clients", *files("librdkafka-transactions"), "--full")["settings"]
    levels = {level for row in settings for level in row.get("isolation", [])}
    assert levels == {"read_committed", "read_uncommitted"}


def test_stored_events_give_the_same_answer(
    kwsniff: Callable[..., Ended], answered: Callable[..., Any], tmp_path: Path
) -> None:
    stored = str(tmp_path / "events.parquet")
    assert kwsniff("decode", "-q", *files("java-groups"), "-o", stored).code == 0
    assert answered("clients", stored) == answered("clients", *files("java-groups"))


@pytest.mark.parametrize("name", ["librdkafka-produce", "java-groups"])
def test_the_tables_are_as_they_were(name: str, golden: Callable[..., None]) -> None:
    golden(f"clients-{name}", "clients", *files(name))


@pytest.mark.parametrize("name", ["librdkafka-produce", "large-records", "librdkafka-groups", "java-groups"])
def test_groups_of_a_client_are_those_that_groups_gives_it(name: str, answered: Callable[..., Any]) -> None:
    """To look for a group's coordinator makes nobody a member."""
    found = defaultdict(set)
    for row in answered("groups", *files(name))["lag"]:
        if "client" in row:
            found[row["client"]].update(filter(None, [row.get("group")]))
    groups = {row.get("client"): set(row["groups"]) for row in answered("clients", *files(name))["clients"]}
    assert {client: groups[client] for client in found} == found
