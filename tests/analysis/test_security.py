"""Who may do what: `audit` and `auth`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kwsniff.analysis.audit import ACTIONS, changes_of
from kwsniff.analysis.auth import Auth
from kwsniff.spec.load import catalog
from tests.analysis.conftest import Ended, files, said_by_clients
from tests.report.events import START, batch, call, event
from tests.samples import sample

# Audit


def changes(answered: Callable[..., Any], name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = answered("audit", *files(name))["changes"]
    return found


def test_each_resource_of_a_call_has_its_own_result(answered: Callable[..., Any]) -> None:
    deleted = [row for row in changes(answered, "librdkafka-admin") if row["api"] == "DeleteTopics"]
    assert {row["name"]: row["result"] for row in deleted} == {
        "orders": "ok", "payments": "ok", "missing": "UNKNOWN_TOPIC_OR_PARTITION"
    }  # fmt: skip


@pytest.mark.parametrize("name", ["librdkafka-admin", "java-admin"])
def test_refusals_that_the_admin_client_got_are_among_the_results(
    name: str, answered: Callable[..., Any]
) -> None:
    refused = {
        catalog().error(row["code"]).name
        for row in said_by_clients(name, "errors")
        if (row["code"] or 0) > 0 and not row["what"].startswith(("describe", "list", "produce", "fetch"))
    }
    results = {row["result"] for row in changes(answered, name)}
    assert refused <= results | {"GROUP_ID_NOT_FOUND", "TRANSACTIONAL_ID_NOT_FOUND"}


def test_what_was_set_is_told_and_a_trial_is_marked(answered: Callable[..., Any]) -> None:
    rows = changes(answered, "librdkafka-admin")
    created = {(row["name"], row["result"]): row for row in rows if row["api"] == "CreateTopics"}
    assert created["orders", "ok"]["detail"] == "3 partitions, replication default, retention.ms=3600000"
    assert [row["name"] for row in rows if row.get("validate_only")] == ["dry-run"]
    altered = [row["detail"] for row in rows if row["api"] == "IncrementalAlterConfigs"]
    assert altered[0] == "retention.ms=7200000"


def test_quotas_are_those_the_sample_sets(answered: Callable[..., Any]) -> None:
    [quota] = [row for row in changes(answered, "throttled") if row["type"] == "quota"]
    assert (quota["name"], quota["detail"]) == (
        "client-id java-greedy", "producer_byte_rate=2000, consumer_byte_rate=2500"
    )  # fmt: skip


def test_no_password_is_in_any_format(kwsniff: Callable[..., Ended]) -> None:
    for form in ("text", "csv", "json"):
        out = kwsniff("audit", "-q", *files("librdkafka-admin"), "-f", form, "--wide").out
        assert "alice" in out
        assert "SCRAM-SHA-256" in out
        assert "salt" not in out


def test_stored_events_without_bodies_name_topics_and_say_what_is_missing(
    kwsniff: Callable[..., Ended], tmp_path: Path
) -> None:
    stored = str(tmp_path / "e.parquet")
    assert kwsniff("decode", "-q", *files("librdkafka-admin"), "-o", stored).code == 0
    ended = kwsniff("audit", stored)
    assert "topic orders" in ended.out
    assert "calls have no bodies: read the capture" in ended.err


def test_a_capture_without_changes_gives_none(kwsniff: Callable[..., Ended]) -> None:
    assert kwsniff("audit", "-q", *files("midstream")).out == ""


def test_every_action_is_an_api_with_fields_it_looks_at() -> None:
    for key, action in ACTIONS.items():
        api = catalog().api(key)
        fields = {field.name for field in api.response.fields}
        assert not action.results or fields & set(action.results), api.name


def test_a_request_of_nothing_changes_nothing() -> None:
    for key in ACTIONS:
        for change, code in changes_of(key, {}, {}):
            assert code is None
            assert change.detail is not None


def test_what_brokers_send_on_to_the_controller_is_told(answered: Callable[..., dict[str, Any]]) -> None:
    """The topic that the recorder had created, through a broker (captures/clients/quorum_client.py)."""
    (change,) = (
        row for row in answered("audit", *files("quorum"))["changes"] if row["result"].startswith("sent on")
    )
    assert (change["api"], change["type"], change["name"]) == ("CreateTopics", "topic", "orders")
    assert change["user"] == "ANONYMOUS"
    assert change["client"] == "quorum-setup"


# Auth


def test_who_could_not_connect_is_among_the_failures(answered: Callable[..., Any]) -> None:
    said = {row["client_id"] for row in said_by_clients("sasl", "errors") if row["what"] == "connect"}
    failures = answered("auth", *files("sasl"))["failures"]
    assert {row["client"] for row in failures} == said
    assert {row["error"] for row in failures} == {"SASL_AUTHENTICATION_FAILED"}


def test_who_could_produce_logged_in(answered: Callable[..., Any]) -> None:
    said = {row["client_id"] for row in said_by_clients("sasl", "produced")}
    logins = answered("auth", *files("sasl"))["logins"]
    clients = {name for row in logins if row["ok"] for name in row["clients"]}
    assert said <= clients


def test_mechanisms_and_users_are_those_of_the_connections(answered: Callable[..., Any]) -> None:
    expected = Counter(
        (row["user"], row["sasl_mechanism"])
        for row in sample("sasl").events()
        if row["event"] == "connection" and row["frames"]
    )
    logins = answered("auth", *files("sasl"))["logins"]
    found = {(row.get("user"), row["mechanism"]): row["connections"] for row in logins}
    assert found == expected


def test_passwords_and_tokens_in_the_clear_are_told(answered: Callable[..., Any]) -> None:
    clear = {row["mechanism"]: row["clear"] for row in answered("auth", *files("sasl"))["logins"]}
    assert clear["PLAIN"] == "password and data"
    assert clear["OAUTHBEARER"] == "token and data"
    assert clear["SCRAM-SHA-256"] == "data"


def test_refusals_are_told_with_user_and_resource(answered: Callable[..., Any]) -> None:
    denied = answered("auth", *files("sasl"))["denied"]
    assert {row["user"] for row in denied} == {"bob"}
    assert ("Metadata", "orders") in {(row["api"], row["about"]) for row in denied}
    groups = [row for row in denied if row["error"] == "GROUP_AUTHORIZATION_FAILED"]
    calls = [row for row in sample("sasl").calls if row["error"] == "GROUP_AUTHORIZATION_FAILED"]
    assert sum(row["count"] for row in groups) == len(calls)


def test_a_refusal_of_the_oldest_way_is_a_closed_connection(answered: Callable[..., Any]) -> None:
    failures = answered("auth", *files("sasl-0.10"))["failures"]
    assert {(row["client"], row["error"]) for row in failures} == {
        ("rdkafka-wrong", "closed without an answer")
    }  # fmt: skip


def test_what_tls_hides_is_counted(kwsniff: Callable[..., Ended]) -> None:
    ended = kwsniff("auth", "-q", *files("tls"))
    ends = [row for row in sample("tls").events() if row["event"] == "connection"]
    encrypted = sum(row["security"] == "tls" for row in ends)
    assert f"{encrypted} connections are encrypted: who authenticates in them is not seen" in ended.err


def test_the_rows_of_a_connection_belong_to_the_calls_that_were_asked_for(
    answered: Callable[..., Any],
) -> None:
    logins = answered("auth", *files("sasl"), "--where", 'client == "rdkafka-plain"')["logins"]
    assert [(row["user"], row["mechanism"], row["clients"]) for row in logins] == [
        ("alice", "PLAIN", ["rdkafka-plain"])
    ]


@pytest.mark.parametrize("name", ["librdkafka-groups", "java-groups"])
def test_without_authentication_nobody_fails(name: str, answered: Callable[..., Any]) -> None:
    found = answered("auth", *files(name))
    assert found["failures"] == found["denied"] == []
    assert {row["mechanism"] for row in found["logins"]} == {"none"}


AUTHENTICATE: dict[str, Any] = {"api_key": 36, "api": "SaslAuthenticate", "time": START}
HANDSHAKE: dict[str, Any] = {"api_key": 17, "api": "SaslHandshake", "time": START}
ORPHAN: dict[str, Any] = {"api_key": None, "api": None, "status": "orphan", "client_id": None, "time": START}
SILENT: dict[str, Any] = {"latency": None, "status": "unanswered", "error_code": None}


@pytest.mark.parametrize(
    ("calls", "end", "outcome"),
    [
        ([HANDSHAKE, AUTHENTICATE], {"fin": True}, "ok"),
        ([HANDSHAKE, AUTHENTICATE | SILENT], {"fin": True}, "failed"),
        ([HANDSHAKE, AUTHENTICATE | SILENT], {"fin": False}, None),
        ([HANDSHAKE, AUTHENTICATE | SILENT], {"fin": True, "broker_missing_bytes": 40}, None),
        ([HANDSHAKE, ORPHAN], {"fin": True, "client_missing_bytes": 74}, None),
    ],
)
def test_a_login_whose_answer_is_not_there_did_not_go_well(
    calls: list[dict[str, Any]], end: dict[str, Any], outcome: str | None
) -> None:
    """A broker that hangs up has refused; what the capture lacks tells nothing."""
    missing: dict[str, Any] = {"client_missing_bytes": 0, "broker_missing_bytes": 0}
    known: dict[str, Any] = {"sasl_mechanism": "PLAIN", "security": "plaintext", "frames": 4, "rst": False}
    auth = Auth()
    auth.take(batch(*(call(**each) for each in calls),
                    event(event="connection", connection="c1", **missing | known | end)))  # fmt: skip
    (row,) = auth.tables()[0].rows
    assert (row["ok"], row["failed"]) == (int(outcome == "ok"), int(outcome == "failed"))


def test_a_refusal_names_what_was_refused_and_each_answer_counts() -> None:
    """Of one connection: a topic of a list, a partition, and then a whole answer of the same API."""
    denied: dict[str, Any] = {"status": "error", "error_code": 29, "error_count": 1, "time": START}
    made: dict[str, Any] = {"api_key": 19, "api": "CreateTopics", "topics": ["mine", "theirs"]}
    names = [{"name": "mine", "error_code": 0}, {"name": "theirs", "error_code": 29}]
    sent: dict[str, Any] = {"api_key": 0, "api": "Produce", "topics": ["orders"]}
    auth = Auth()
    auth.take(
        batch(
            call(**made | denied, resources=names),
            call(**sent | denied, partitions=[{"topic": "orders", "partition": 0, "error_code": 29}]),
            call(**sent | denied | {"error_code": 31}),
        )
    )
    refused = {(row["api"], row["about"], row["error"]): row["count"] for row in auth.tables()[2].rows}
    assert refused == {
        ("CreateTopics", "theirs", "TOPIC_AUTHORIZATION_FAILED"): 1,
        ("Produce", "orders", "TOPIC_AUTHORIZATION_FAILED"): 1,
        ("Produce", "orders", "CLUSTER_AUTHORIZATION_FAILED"): 1,
    }
