from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kwsniff.analysis.audit import ACTIONS, changes_of
from kwsniff.spec.load import catalog
from tests.answers.conftest import Ended, files, said_by_clients


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


def test_the_table_is_as_it_was(golden: Callable[..., None]) -> None:
    golden("audit-java-admin", "audit", *files("java-admin"))


def test_what_brokers_send_on_to_the_controller_is_told(answered: Callable[..., dict[str, Any]]) -> None:
    """The topic that the recorder had created, through a broker (captures/clients/quorum_client.py)."""
    (change,) = (
        row for row in answered("audit", *files("quorum"))["changes"] if row["result"].startswith("sent on")
    )
    assert (change["api"], change["type"], change["name"]) == ("CreateTopics", "topic", "orders")
    assert change["user"] == "ANONYMOUS"
    assert change["client"] == "quorum-setup"
