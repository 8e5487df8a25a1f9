from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.answers.conftest import Ended, files
from tests.samples import sample

GROUPS = "librdkafka-groups"


def lines(answered: Callable[..., Any], *arguments: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = answered("follow", *arguments)["lines"]
    return found


def test_each_call_of_a_group_is_two_lines_in_the_order_of_time(answered: Callable[..., Any]) -> None:
    calls = [row for row in sample(GROUPS).calls if row["group_id"] == "range"]
    found = lines(answered, *files(GROUPS), "range", "--as", "group")
    asked = [line["packet"] for line in found if line["way"] == "->"]
    told = [line["packet"] for line in found if line["way"] == "<-"]
    assert sorted(asked) == sorted(row["request_packet"] for row in calls)
    assert sorted(told) == sorted(row["response_packet"] for row in calls if row["response_packet"])
    times = [line["time"] for line in found]
    assert times == sorted(times)


@pytest.mark.parametrize(
    ("wanted", "holds"),
    [
        ("range-first", lambda row: row["client_id"] == "range-first"),
        ("127.0.0.1", lambda row: True),
        ("orders", lambda row: "orders" in (row["topics"] or ())),
    ],
)
def test_a_client_an_address_or_a_topic_can_be_followed(
    wanted: str, holds: Callable[[Any], bool], answered: Callable[..., Any]
) -> None:
    # Names of topics come with Metadata: events as they are named in the end.
    from kwsniff.config import Config
    from kwsniff.count.naming import named
    from kwsniff.run.offline import events

    rows = [row for batch in named(events(sample(GROUPS).paths, Config())) for row in batch.to_pylist()]
    expected = [row["request_packet"] for row in rows if row["event"] == "call" and holds(row)]
    found = [line["packet"] for line in lines(answered, *files(GROUPS), wanted) if line["way"] == "->"]
    assert sorted(found) == sorted(expected)


def test_a_connection_is_followed_from_its_beginning_to_its_end(answered: Callable[..., Any]) -> None:
    connection = sample(GROUPS).calls[0]["connection"]
    found = lines(answered, *files(GROUPS), connection[:8])
    assert {line["connection"] for line in found} == {connection}
    assert found[0]["about"].startswith("opened: 127.0.0.1:")
    assert found[-1]["about"].startswith("ended by")


def test_a_response_carries_its_error_and_an_anomaly_its_place(answered: Callable[..., Any]) -> None:
    found = lines(answered, *files("mock-errors"), "patient")
    assert "UNSUPPORTED_VERSION" in {line.get("outcome") for line in found if line["way"] == "<-"}
    assert {line["call"] for line in found if line["way"] == "!"} >= {"trailing_bytes"}


def test_an_unanswered_request_says_why(answered: Callable[..., Any]) -> None:
    name, row = next(
        (name, row)
        for name in ("mock-errors", GROUPS)
        for row in sample(name).calls
        if row["status"] == "unanswered"
    )
    found = lines(answered, *files(name), row["connection"])
    assert f"unanswered ({row['unanswered_because']})" in {line.get("outcome") for line in found}


def test_what_nobody_is_called_is_told_with_a_name_that_comes_close(kwsniff: Callable[..., Ended]) -> None:
    ended = kwsniff("follow", *files("mock-errors"), "patiend", "-q")
    assert (ended.code, ended.out) == (0, "")
    assert "no connection, client, group or topic 'patiend' (did you mean patient?)" in ended.err


def test_the_lines_are_as_they_were(golden: Callable[..., None]) -> None:
    golden("follow-static", "follow", *files(GROUPS), "static")
