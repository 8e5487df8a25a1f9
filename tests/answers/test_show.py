from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.answers.conftest import Ended, files
from tests.samples import sample

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


def test_the_page_is_as_it_was(kwsniff: Callable[..., Ended], golden: Callable[..., None]) -> None:
    call = next(row for row in sample("librdkafka-groups").calls if row["api"] == "JoinGroup")
    golden("show-join", "show", *files("librdkafka-groups"), str(call["response_packet"]))
