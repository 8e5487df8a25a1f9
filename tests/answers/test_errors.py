from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests.answers.conftest import Ended, files, said_by_clients
from tests.samples import names, sample

FAILING = ["librdkafka-errors", "librdkafka-admin", "java-admin", "mock-errors", "kafkajs-kafka"]


@pytest.mark.parametrize("name", FAILING)
def test_errors_that_clients_say_they_got_are_found(name: str, answered: Callable[..., Any]) -> None:
    # Negative codes are the client's own.
    said = {
        (row["client_id"], row["code"]) for row in said_by_clients(name, "errors") if (row["code"] or 0) > 0
    }
    errors = answered("errors", *files(name), "--full")["errors"]
    assert said <= {(row["client"], row["error_code"]) for row in errors}


@pytest.mark.parametrize("name", [each for each in names() if each != "tls"])
def test_every_code_in_any_response_is_told(name: str, answered: Callable[..., Any]) -> None:
    expected = Counter[str]()
    for row in sample(name).calls:
        expected[row["api"] or "?"] += row["error_count"] or 0
    found = Counter[str]()
    for row in answered("errors", *files(name), "--full", "--top", "0")["errors"]:
        found[row["api"]] += row["count"]
    assert found == +expected


def test_what_a_resource_is_comes_from_its_call_where_the_message_gives_no_type(
    answered: Callable[..., Any],
) -> None:
    """CreateTopics lists topics, DeleteGroups groups: by name, without a type beside it."""
    errors = answered("errors", *files("exceeded-quota"))["errors"]
    refused = {row["topic"] for row in errors if row["api"] == "CreateTopics"}
    assert refused == {"patient", "tenant-2", "tenant-4"}
    errors = answered("errors", *files("java-streams"))["errors"]
    assert "streams-kept" in {row.get("about") for row in errors if row["api"] == "DeleteGroups"}


def test_an_error_names_its_topic_partition_and_packet(answered: Callable[..., Any]) -> None:
    errors = answered("errors", *files("librdkafka-errors"))["errors"]
    [row] = [row for row in errors if row["error"] == "MESSAGE_TOO_LARGE"]
    assert (row["api"], row["client"], row["topic"], row["partition"]) == ("Produce", "too-large", "small", 0)
    [call] = [call for call in sample("librdkafka-errors").calls if call["error"] == "MESSAGE_TOO_LARGE"]
    assert row["first_packet"] == call["response_packet"]


def test_what_is_not_told_without_bodies_is_counted(kwsniff: Callable[..., Ended]) -> None:
    assert "more error codes stand in these responses; --full" in kwsniff("errors", *files("mock-errors")).err
    assert "more error codes" not in kwsniff("errors", *files("mock-errors"), "--full").err


def test_without_errors_nothing_is_told(kwsniff: Callable[..., Ended]) -> None:
    ended = kwsniff("errors", "-q", *files("tls"))
    assert (ended.code, ended.out, ended.err) == (0, "", "Nothing was found.\n")


def test_the_spread_over_time_shows_when(answered: Callable[..., Any]) -> None:
    rows = answered("errors", *files("librdkafka-errors"))["errors"]
    assert all(len(row["over_time"]) == 10 for row in rows)
    early = min(rows, key=lambda row: row["first_time"])
    late = max(rows, key=lambda row: row["first_time"])
    assert early["over_time"].rstrip() != late["over_time"].rstrip()
    assert late["over_time"][0] == " "


@pytest.mark.parametrize("name", ["librdkafka-errors", "librdkafka-admin"])
def test_the_tables_are_as_they_were(name: str, golden: Callable[..., None]) -> None:
    golden(f"errors-{name}", "errors", *files(name), "--full")
