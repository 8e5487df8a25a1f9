"""What is answered of clients: `clients` and `upgrade-check`."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kwsniff.analysis.upgrade import UpgradeCheck
from kwsniff.rows.schema import EVENTS
from tests.analysis.conftest import Ended, files, said_by_clients

# Clients

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


@pytest.mark.parametrize("name", ["librdkafka-produce", "large-records", "librdkafka-groups", "java-groups"])
def test_groups_of_a_client_are_those_that_groups_gives_it(name: str, answered: Callable[..., Any]) -> None:
    """To look for a group's coordinator makes nobody a member."""
    found = defaultdict(set)
    for row in answered("groups", *files(name))["lag"]:
        if "client" in row:
            found[row["client"]].update(filter(None, [row.get("group")]))
    groups = {row.get("client"): set(row["groups"]) for row in answered("clients", *files(name))["clients"]}
    assert {client: groups[client] for client in found} == found


# Upgrade

BROKER = {"broker_ip": "10.0.0.9", "broker_port": 9092}
WHO = {"client_ip": "10.0.0.5", "client_id": "app", "connection": "c1", **BROKER}


def call(key: int, version: int, **columns: Any) -> dict[str, Any]:
    return {"event": "call", "api_key": key, "api_version": version, "latency_us": 1.0, **WHO, **columns}


def asks(version: int, offered: dict[int, tuple[int, int]] | None = None, **columns: Any) -> dict[str, Any]:
    keys = [
        {"api_key": key, "min_version": low, "max_version": high}
        for key, (low, high) in (offered or {}).items()
    ]
    body = json.dumps({"error_code": 0, "api_keys": keys}) if offered else None
    return call(18, version, response=body, **columns)


def end(syn: bool = True) -> dict[str, Any]:
    return {"event": "connection", "connection": "c1", "syn": syn}


def verdicts(target: str, *rows: dict[str, Any]) -> dict[str, str]:
    """The verdict on each API that the release does not serve as it is used, and of the client."""
    question = UpgradeCheck(target)
    question.take(pa.RecordBatch.from_pylist(list(rows), schema=EVENTS))
    clients, apis = question.tables()
    found = {row["api"]: row["verdict"] for row in apis.rows}
    return found | {row["client"]: row["verdict"] for row in clients.rows}


OLD, NEW = {1: (0, 3), 18: (0, 0)}, {1: (0, 11), 18: (0, 3)}


def test_a_client_that_uses_the_newest_its_broker_offers_does_not_break() -> None:
    found = verdicts("4.0", asks(3, OLD, software_name="librdkafka"), call(1, 3), end())
    assert found == {"Fetch": "will negotiate", "app": "will negotiate"}


def test_a_client_that_was_offered_newer_ones_and_took_the_old_one_breaks() -> None:
    assert verdicts("4.0", asks(3, NEW), call(1, 3), end())["app"] == "breaks"


def test_a_client_that_never_asks_breaks() -> None:
    assert verdicts("4.0", call(1, 3), end())["app"] == "breaks"


def test_of_a_client_joined_in_the_middle_nothing_is_known() -> None:
    assert verdicts("4.0", call(1, 3), end(syn=False))["app"] == "unknown"
    assert verdicts("4.0", call(1, 3))["app"] == "unknown"


def test_without_what_the_broker_answered_nothing_is_known() -> None:
    assert verdicts("4.0", asks(3), call(1, 3), end())["app"] == "unknown"


def test_a_broker_offers_at_least_what_it_served_to_others() -> None:
    other = call(1, 12, client_id="modern", connection="c2")
    assert verdicts("4.0", asks(3), call(1, 3), other, end())["app"] == "breaks"


def test_of_an_old_client_that_takes_the_newest_on_offer_nothing_is_known() -> None:
    assert verdicts("4.0", asks(0, OLD), call(1, 3), end())["app"] == "unknown"


def test_what_is_served_is_no_matter() -> None:
    assert verdicts("4.0", asks(3, NEW), call(1, 11), end()) == {"app": "ok"}
    assert verdicts("3.9", asks(3, NEW), call(1, 3), end()) == {"app": "ok"}


def test_a_version_that_is_too_new_is_negotiated() -> None:
    assert verdicts("2.8", asks(3, {1: (4, 17), 18: (0, 4)}), call(1, 17), end())["app"] == "will negotiate"


def test_produce_is_advertised_from_0_by_4_and_served_from_3() -> None:
    assert verdicts("4.1", asks(3, {0: (0, 9), 18: (0, 3)}), call(0, 2), end())["app"] == "breaks"


def test_join_group_0_was_refused_by_the_first_4_only() -> None:
    rows = asks(3, {11: (0, 9), 18: (0, 3)}), call(11, 1), end()
    assert verdicts("4.0.0", *rows)["app"] == "breaks"
    assert verdicts("4.0.1", *rows) == {"app": "ok"}
    assert verdicts("4.0", *rows) == {"app": "ok"}


def test_brokers_among_themselves_are_left_out() -> None:
    rows = [call(6, 5), call(1, 3), call(1, 3, client_id="broker-1-fetcher-0"), end()]
    assert verdicts("4.0", *rows) == {}


def test_controllers_and_brokers_of_a_real_cluster_are_no_clients(answered: Callable[..., Any]) -> None:
    rows = answered("upgrade-check", "--target", "4.3", *files("quorum"))
    names = {row["client"] for row in rows["clients"]}
    assert not any(name.isdecimal() or name.startswith(("broker-", "raft-client")) for name in names)
    assert {row["verdict"] for row in rows["clients"]} == {"ok"}


@pytest.mark.parametrize("target", ["4.0", "4.1", "4.2", "4.3", "4.4"])
def test_clients_of_today_with_an_old_broker_do_not_break(target: str, answered: Callable[..., Any]) -> None:
    rows = answered("upgrade-check", "--target", target, *files("kafka-0.10-clients"))["clients"]
    assert {row["verdict"] for row in rows} == {"will negotiate"}
    assert {row["software"].split()[0] for row in rows} == {"kafka-python", "confluent-kafka-python"}


def test_clients_of_0_8_break(answered: Callable[..., Any]) -> None:
    rows = answered("upgrade-check", "--target", "4.0", *files("kafka-0.8"), code=1)["clients"]
    assert {row["verdict"] for row in rows if row["client"].startswith("ancient-")} == {"breaks"}


@pytest.mark.parametrize("name", ["librdkafka-produce", "java-groups", "kafka-python-kafka", "kafkajs-kafka"])
def test_clients_of_today_with_a_broker_of_today_work(name: str, answered: Callable[..., Any]) -> None:
    rows = answered("upgrade-check", "--target", "4.3", *files(name))["clients"]
    assert {row["verdict"] for row in rows} == {"ok"}


def test_a_release_that_is_not_known_is_an_error(kwsniff: Callable[..., Ended]) -> None:
    ended = kwsniff("upgrade-check", "--target", "9.9", *files("kafka-0.8"))
    assert ended.code == 2
    assert "--target: brokers of 0.8.0 to 4.4 are known, not 9.9" in ended.err
