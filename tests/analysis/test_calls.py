"""What is answered of single calls: `slow`, `errors`, `follow` and `show`."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from scapy.utils import PcapReader

from kwsniff.analysis.slow import TIMES, Slow
from kwsniff.rows.schema import EVENTS
from tests.analysis.conftest import Ended, files, said_by_clients
from tests.samples import names, sample

# Slow

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize("name", ["librdkafka-produce", "kafka-python-kafka", "throttled"])
def test_the_slowest_calls_took_as_long_as_their_packets_are_apart(
    name: str, answered: Callable[..., Any]
) -> None:
    with PcapReader(sample(name).paths[0]) as packets:
        times = {number: float(packet.time) for number, packet in enumerate(packets, 1)}
    calls = {f"{row['connection']}#{row['correlation_id']}": row for row in sample(name).calls}
    rows = answered("slow", *files(name), "--top", "20")["calls"]
    assert len(rows) == 20
    for row in rows:
        call = calls[row["call"]]
        apart = times[call["response_packet"]] - times[call["request_packet"]]
        assert row["duration_us"] >= (apart - 1e-6) * 1e6
        if call["request_time"] == call["request_end_time"]:
            assert row["duration_us"] == pytest.approx(apart * 1e6, abs=2)


def test_no_call_that_is_left_out_took_longer(answered: Callable[..., Any]) -> None:
    rows = answered("slow", *files("java-groups"), "--waiting", "--top", "5")["calls"]
    durations = sorted((row["duration_us"] or 0 for row in sample("java-groups").calls), reverse=True)
    assert [row["duration_us"] for row in rows] == durations[:5]


def test_calls_that_wait_on_purpose_are_left_out_and_counted(
    kwsniff: Callable[..., Ended], answered: Callable[..., Any]
) -> None:
    rows = answered("slow", *files("librdkafka-groups"), "--top", "0")["calls"]
    everything = answered("slow", *files("librdkafka-groups"), "--top", "0", "--waiting")["calls"]
    waiting = [row for row in everything if row not in rows]
    assert {row["api"] for row in waiting} == {"JoinGroup", "SyncGroup", "Fetch"}
    ended = kwsniff("slow", "-q", *files("librdkafka-groups"))
    assert "waited on purpose and are left out: --waiting" in ended.err


def call(**columns: Any) -> dict[str, Any]:
    row = {"event": "call", "time": NOW, "status": "ok", "api": "Produce", "api_key": 0, "client_id": "app"}
    return row | columns


def tables(*rows: dict[str, Any]) -> tuple[list[Any], list[Any]]:
    question = Slow()
    question.take(pa.RecordBatch.from_pylist(list(rows), schema=EVENTS))
    calls, clients = question.tables()
    return list(calls.rows), list(clients.rows)


def test_where_the_time_went_is_told() -> None:
    parts = dict.fromkeys(TIMES, 0.0) | {"broker_us": 100.0, "queued_us": 900.0}
    [row], [client] = tables(call(duration_us=1000.0, latency_us=1000.0, **parts))
    assert row["mostly"] == client["mostly"] == "behind other requests 90%"
    assert client["queued_us"] == 900.0


def test_what_may_have_been_waiting_for_data_is_not_called_the_brokers() -> None:
    parts = dict.fromkeys(TIMES, 0.0) | {"broker_us": 950.0, "broker_least_us": 50.0}
    [row], [client] = tables(call(duration_us=1000.0, latency_us=1000.0, **parts))
    assert row["mostly"] == client["mostly"] == "broker or waiting 90%"


def test_what_is_not_known_is_not_told() -> None:
    question = Slow()
    question.take(pa.RecordBatch.from_pylist([call(duration_us=1000.0, latency_us=1000.0)], schema=EVENTS))
    assert question.tables()[0].rows[0]["mostly"] is None
    assert question.notes() == ["these events say how long a call took, not where its time went"]


def test_high_percentiles_need_a_hundred_calls() -> None:
    _, [client] = tables(*[call(duration_us=float(at), latency_us=1.0) for at in range(99)])
    assert (client["calls"], client["p50_us"], client["p99_us"], client["max_us"]) == (99, 49.0, None, 98.0)
    _, [client] = tables(*[call(duration_us=float(at), latency_us=1.0) for at in range(101)])
    assert client["p99_us"] == 99.0


# Errors

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


# Follow

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


# Show

SAMPLES = ["librdkafka-groups", "java-admin", "kafka-0.10", "sasl", "librdkafka-transactions", "ipv6"]
CALLS = 12
INTEGERS = {"int8": 1, "int16": 2, "int32": 4, "int64": 8}


def some_calls(name: str) -> list[dict[str, Any]]:
    """A call of each API that was read, and no more than CALLS."""
    by_api = {row["api"]: row for row in sample(name).calls if row["status"] in ("ok", "error")}
    return list(by_api.values())[:CALLS]


def leaves(fields: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for each in fields:
        yield from leaves(each["fields"]) if "fields" in each else (each,)


def values(fields: list[dict[str, Any]]) -> Any:
    """The fields as decoded bodies have them."""
    if fields and all(each["name"].startswith("[") for each in fields):
        return [values(each["fields"]) if "fields" in each else each["value"] for each in fields]
    return {each["name"]: values(each["fields"]) if "fields" in each else each["value"] for each in fields}


@pytest.mark.parametrize("name", SAMPLES)
def test_the_fields_are_those_that_decode_tells(name: str, answered: Callable[..., Any]) -> None:
    bodies = {
        f"{row['connection']}#{row['correlation_id']}": row
        for row in sample(name).events(full=True)
        if row["response"] is not None
    }
    for call in some_calls(name):
        target = f"{call['connection']}#{call['correlation_id']}"
        [shown] = answered_list(answered, files(name)[0], target)
        for direction, header in (("request", HEADER), ("response", ("length", "correlation_id"))):
            found = [each for each in shown[direction]["fields"] if each["name"] not in header]
            assert values(found) == json.loads(bodies[target][direction]), target


HEADER = ("length", "request_api_key", "request_api_version", "correlation_id", "client_id")


def answered_list(answered: Callable[..., Any], path: str, *arguments: str) -> Any:
    return answered("show", path, *arguments)


@pytest.mark.parametrize("name", SAMPLES)
def test_fields_lie_behind_one_another_and_hold_their_values(name: str, answered: Callable[..., Any]) -> None:
    for call in some_calls(name)[:4]:
        [shown] = answered_list(answered, files(name)[0], f"{call['connection']}#{call['correlation_id']}")
        for direction in ("request", "response"):
            message = shown[direction]
            assert message["bytes"] == call[f"{direction}_bytes"]
            assert max(message["packets"]) == call[f"{direction}_packet"]
            end = 0
            for leaf in leaves(message["fields"]):
                assert leaf["offset"] >= end
                end = leaf["offset"] + leaf["size"]
                if leaf["type"].split()[0] in INTEGERS:
                    assert int.from_bytes(bytes.fromhex(leaf["hex"]), "big", signed=True) == leaf["value"]
            # Behind the last field are tags that say nothing, a byte for each struct around it.
            assert end <= message["bytes"] <= end + 8


def test_a_packet_stands_for_the_calls_it_completes(kwsniff: Callable[..., Ended]) -> None:
    ended = kwsniff("show", *files("librdkafka-produce"), "4")
    assert ended.out.startswith("ApiVersions v3 #1  rdkafka-none-acks-0")
    assert "packet 4" in ended.out
    assert kwsniff("show", *files("librdkafka-produce"), "6").out == ended.out


def test_a_packet_between_stands_for_the_next_call_of_its_connection(kwsniff: Callable[..., Ended]) -> None:
    ended = kwsniff("show", *files("librdkafka-produce"), "5")
    assert ended.out.startswith("ApiVersions v3 #1  rdkafka-none-acks-0")
    assert "packet 5 completes no message" in ended.err


def test_credentials_are_shown_in_no_format(kwsniff: Callable[..., Ended]) -> None:
    logins = [row for row in sample("sasl").calls if row["api"] == "SaslAuthenticate"][:5]
    for row in logins:
        target = f"{row['connection']}#{row['correlation_id']}"
        assert "··" in kwsniff("show", *files("sasl"), target).out
        shown = json.loads(kwsniff("show", *files("sasl"), target, "-f", "json").out)
        tokens = [leaf for leaf in leaves(shown[0]["request"]["fields"]) if leaf["name"] == "auth_bytes"]
        assert [(leaf["value"], "hex" in leaf) for leaf in tokens] == [("***", False)]
        rows = list(csv.DictReader(io.StringIO(kwsniff("show", *files("sasl"), target, "-f", "csv").out)))
        assert [row["hex"] for row in rows if row["path"] == "auth_bytes"] == ["", ""]


def test_record_data_is_shown_only_where_it_is_asked_for(kwsniff: Callable[..., Ended]) -> None:
    produce = next(row for row in sample("librdkafka-produce").calls if row["api"] == "Produce")
    target = f"{produce['connection']}#{produce['correlation_id']}"
    closed = json.loads(kwsniff("show", *files("librdkafka-produce"), target, "-f", "json").out)
    [data] = [leaf for leaf in leaves(closed[0]["request"]["fields"]) if leaf["type"].startswith("records")]
    assert "hex" not in data
    assert "records" not in data["value"][0]
    opened = json.loads(kwsniff("show", *files("librdkafka-produce"), target, "--records", "-f", "json").out)
    [data] = [leaf for leaf in leaves(opened[0]["request"]["fields"]) if leaf["type"].startswith("records")]
    assert len(data["value"][0]["records"]) == data["value"][0]["count"]


def test_what_the_capture_lacks_is_told(kwsniff: Callable[..., Ended]) -> None:
    cut = next(row for row in sample("snaplen-128").calls if row["status"] == "truncated")
    ended = kwsniff("show", *files("snaplen-128"), f"{cut['connection']}#{cut['correlation_id']}")
    assert ended.code == 0
    assert "missing from the capture" in ended.out


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("999999", "packet 999999 holds no TCP segment"),
        ("abc", "'abc' is neither the number of a packet nor CONNECTION#CORRELATION_ID"),
        ("00ff#1", "no call is named by 00ff#1"),
    ],
)
def test_what_names_no_call_is_an_error(target: str, says: str, kwsniff: Callable[..., Ended]) -> None:
    ended = kwsniff("show", *files("librdkafka-produce"), target)
    assert (ended.code, ended.out) == (2, "")
    assert says in ended.err
