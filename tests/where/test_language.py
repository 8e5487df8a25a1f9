"""What the language understands of an operator's words: units, addresses, short names, patterns, times."""

from __future__ import annotations

from typing import Any

import pytest

from kwsniff.count.where import WhereError
from kwsniff.count.where.predicate import columns_in, compile_where
from tests.cli.conftest import anomaly, call, connection
from tests.cli.stand_in import batch_of

UUID = "00000000-0000-0000-0000-0000000000aa"
ROWS: list[dict[str, Any]] = [
    call(
        correlation_id=0, api="Produce", api_key=0, client_id="billing-1", group_id=None,
        time="2026-01-31T11:59:59+00:00", latency_us=100_000.0, throttle_ms=0, request_bytes=10_000,
        topics=["orders", None], topic_ids=[None, UUID],
        partitions=[{"topic": "orders", "partition": 3}], error="NONE",
        request='{"acks":-1,"topic_data":[{"name":"orders","partition_data":[{"index":3}]}]}',
        response='{"throttle_time_ms":0}',
    ),
    call(
        correlation_id=1, api="Fetch", api_key=1, client_id="billing-2", group_id="payments",
        time="2026-01-31T12:03:05.5+00:00", latency_us=2_000_000.0, throttle_ms=150, request_bytes=1_000_000,
        client_ip="192.168.7.1", broker_ip="2001:db8::9", broker_port=9093, topics=["payments"],
        topic_ids=[None], partitions=[{"topic": "payments", "partition": 0}], error="NONE",
        request='{"max_wait_ms":500,"topics":[{"topic":"payments"},{"topic":"refunds"}]}',
        response='{"throttle_time_ms":150}',
    ),
    call(
        correlation_id=2, api="Metadata", client_id="web", status="error", error_code=3,
        error="UNKNOWN_TOPIC_OR_PARTITION", time="2026-01-31T12:10:00+00:00", latency_us=None, topics=None,
    ),
    anomaly("gap", correlation_id=3, time="2026-02-01T00:30:00+00:00"),
    connection(correlation_id=4, time="2026-01-31T12:00:00+00:00", handshake_us=900.0, user="alice"),
]  # fmt: skip

EXPECTED = [
    # units
    ("latency_us >= 100ms", {0, 1}),
    ("latency > 100ms", {1}),
    ("latency_us > 1.5s", {1}),
    ("latency_us < 0.01min", {0}),
    ("throttle_ms >= 0.15s", {1}),
    ("throttle == 150ms", {1}),
    ("throttle_ms > 100", {1}),
    ("request_bytes >= 10kB", {0, 1}),
    ("request_bytes > 10kB", {1}),
    ("request_bytes > 0.9MB and request_bytes < 1MiB", {1}),
    ("handshake_us < 1ms", {4}),
    ("latency_us > throttle_ms", {0, 1}),
    ("throttle_ms - latency_us < -1s", {1}),
    ("latency_us / 2 == 50ms", {0}),
    ("latency_us / 1ms == 100", {0}),
    ("latency between 50ms and 200ms", {0}),
    ("latency not between 50ms and 200ms and event == 'call'", {1, 2}),
    # names that are not columns
    ('topic == "orders"', {0}),
    (f'topic == "{UUID}"', {0}),
    ('topic != "orders"', {1, 2, 3, 4}),
    ('topic in ("payments", "refunds")', {1}),
    ('topic like "or%"', {0}),
    ('topic ~ "^pay"', {1}),
    ('topic !~ "^pay" and event == "call"', {0, 2}),
    ('"orders" in topic', {0}),
    ("topic == None and event == 'call'", {2}),
    ("topic is not null", {0, 1}),
    ("partition == 3", {0}),
    ("partition in [0, 3]", {0, 1}),
    ('client == "web"', {2}),
    ('client like "billing-%"', {0, 1}),
    ("client == 192.168.7.1", {1}),
    ('client == "192.168.7.1:50123"', {1}),
    ('group == "payments"', {1}),
    ('user == "alice"', {4}),
    # addresses
    ("client_ip in 10.0.0.0/8", {0, 2, 4}),
    ("client_ip not in 10.0.0.0/8 and event == 'call'", {1}),
    ('client_ip in "192.168.0.0/16"', {1}),
    ("client_ip in (10.9.0.0/16, 192.168.0.0/16)", {1}),
    ("client_ip == 10.0.0.5", {0, 2, 4}),
    ("broker in 2001:db8::/32", {1}),
    ('broker == "10.0.0.9:9092"', {0, 2, 4}),
    ("broker == 10.0.0.9:9092", {0, 2, 4}),
    ('broker == "[2001:db8::9]:9093"', {1}),
    ('broker != "10.0.0.9:9092" and event == "call"', {1}),
    ('broker ~ ":9093$"', {1}),
    # words in any case
    ("api == 'Fetch' OR NOT (event IN ['call', 'anomaly'])", {1, 4}),
    ("client_id LIKE 'billing%' AND latency_us BETWEEN 1s AND 3s", {1}),
    ("error IS NOT NULL AND TRUE", {2}),
    # errors
    ("error != None", {2}),
    ("error == None and event == 'call'", {0, 1}),
    ('error == "UNKNOWN_TOPIC_OR_PARTITION"', {2}),
    ('error ~ "TOPIC"', {2}),
    # times
    ("time > 12:03:05", {1, 2}),
    ('time > "12:03:05"', {1, 2}),
    ("time >= 12:03:05.5 and time < 12:10", {1}),
    ("time between 12:00 and 12:05", {1, 4}),
    ("time < 2026-01-31T12:00:00Z", {0}),
    ("time >= 2026-02-01", {3}),
    ("time < 1:00", {3}),
    # bodies
    ("request.acks == -1", {0}),
    ("request.max_wait_ms > 100", {1}),
    ('request.topics.topic == "refunds"', {1}),
    ('request.topic_data.name like "ord%"', {0}),
    ("request.topic_data.partition_data.index in (2, 3)", {0}),
    ("response.throttle_time_ms != 0 and event == 'call'", {1, 2}),
]


def chosen(expression: str | None, **bounds: str) -> set[int]:
    batch = batch_of(ROWS)
    mask = compile_where(expression, **bounds)(batch)
    assert mask.null_count == 0
    return set(batch.filter(mask)["correlation_id"].to_pylist())


@pytest.mark.parametrize(("expression", "rows"), EXPECTED)
def test_an_expression_keeps_the_rows_it_holds_for(expression: str, rows: set[int]) -> None:
    assert chosen(expression) == rows


def test_a_time_without_a_zone_is_in_the_one_that_was_asked_for() -> None:
    assert chosen("time > 13:03:05", tz="Europe/Berlin") == {1, 2}
    assert chosen("time >= 2026-02-01T01:30:00", tz="Europe/Berlin") == {3}
    assert chosen("time >= 2026-02-01T00:30:00Z", tz="Europe/Berlin") == {3}


def test_since_and_until_bound_the_time() -> None:
    assert chosen(None, since="12:03", until="12:10") == {1}
    assert chosen(None, since="2026-01-31T12:10:00Z") == {2, 3}
    assert chosen("event == 'call'", until="2026-01-31 12:00") == {0}
    assert chosen(None) == {0, 1, 2, 3, 4}


MISTAKES = [
    ('api == "Fecth"', "position 8: api is never 'Fecth' (did you mean Fetch"),
    ('error == "NOT_LEADER"', "error is never 'NOT_LEADER' (did you mean NOT_LEADER_OR_FOLLOWER"),
    ('status in ("ok", "eror")', "status is never 'eror' (did you mean error"),
    ("api == Fetch", "position 8: unknown column 'Fetch'; a value of api is written \"Fetch\""),
    ("latency > 5 min", "position 13: 'min' stands where and, or, or the end is expected"),
    ("latency > 5parsec", "position 12: unknown unit 'parsec'"),
    ("request_bytes > 5ms", "position 17: request_bytes is not a time; its unit is bytes"),
    ("latency_us > 5kB", "latency_us is not a size; its unit is µs"),
    ("api_key > 5ms", "api_key is not a time"),
    ("client_ip in 10.0.0.0/99", "position 14: '10.0.0.0/99' is no address"),
    ("api == 10.0.0.0/8", "api is no address"),
    ("broker > 10.0.0.1", "an address can only be compared with == and !="),
    ("request.topcs.name == 'x'", "position 1: no message has 'topcs' in request (did you mean topics"),
    ("time > 25:00", "'25:00' is no ISO 8601 time"),
    ("latency between 1ms", "the expression ends where the `and` of between is missing"),
    ("api like 3", "this has to be quoted text"),
    ("topics ~ 'x'", "~ takes text, topics is a list; write topic"),
    ("api == 'Fetch", "a quote that is not closed"),
    ("! syn", "! is written not"),
    ("api == 'Fetch' || syn", "|| is written or"),
    ("api =~ 'F'", "a regular expression is written ~"),
    ("topic == client_id", "can only be compared with a value each"),
    ("syn $ fin", "position 5: '$' is not part of the language"),
]


@pytest.mark.parametrize(("expression", "says"), MISTAKES)
def test_a_mistake_is_named_with_its_place(expression: str, says: str) -> None:
    with pytest.raises(WhereError) as error:
        compile_where(expression)
    assert says in str(error.value)


def test_a_bound_that_is_no_time_is_named_by_its_option() -> None:
    with pytest.raises(WhereError, match=r"^--since: 'noon' is no ISO 8601 time"):
        compile_where(None, since="noon")
    with pytest.raises(WhereError, match=r"^--tz: there is no time zone 'Berlin'"):
        compile_where(None, tz="Berlin")


def test_the_columns_that_an_expression_needs_are_known() -> None:
    assert columns_in('topic == "a" and latency > 1s and partitions.error_code == 3') == {
        "topics", "topic_ids", "latency_us", "partitions"
    }  # fmt: skip
    assert columns_in("broker == 10.0.0.1:9092 or request.acks == 1") == {
        "broker_ip", "broker_port", "request"
    }  # fmt: skip
