"""The language of --where: what it takes, what it means, and what it says of mistakes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwsniff.count.where import WhereError
from kwsniff.count.where.predicate import columns_in, compile_where
from tests.cli.conftest import anomaly, call, connection
from tests.cli.stand_in import batch_of

# Where

PARTITIONS = [
    {"topic": "orders", "partition": 3, "error_code": 0},
    {"topic": "orders", "partition": 5, "error_code": 6},
]
ROWS: list[dict[str, Any]] = [
    call(correlation_id=0, topics=["orders", None], partitions=PARTITIONS, throttle_ms=0),
    call(correlation_id=1, api="Fetch", api_key=1, client_id="billing", latency_us=9000.0, topics=[]),
    call(correlation_id=2, status="error", error_code=3, client_id=None, latency_us=None, topics=None),
    anomaly("gap", correlation_id=3),
    connection(correlation_id=4),
]

EXPECTED = [
    ('api == "Fetch"', {1}),
    ('api != "Fetch"', {0, 2, 3, 4}),
    ("latency_us > 5000", {1}),
    ("latency_us >= 1500.25 and latency_us < 9e3", {0}),
    ("1000 < latency_us < 2000", {0}),
    ("not latency_us > 5000", {0, 2, 3, 4}),
    ("client_id == None and event == 'call'", {2}),
    ("client_id is null and event == 'call'", {2}),
    ("latency_us is not None", {0, 1}),
    ("api_key in [1, 3] and status in ('ok',)", {0, 1}),
    ("api not in ['Metadata']", {1, 3, 4}),
    ('"orders" in topics', {0}),
    ('"orders" not in topics and event == "call"', {1, 2}),
    ('topics.contains("orders")', {0}),
    ("6 in partitions.error_code", {0}),
    ("7 in partitions.partition", set()),
    ("len(topics) == 2", {0}),
    ("len(client_id) == 7", {1}),
    ('"ill" in client_id', {1}),
    ('client_id.startswith("app")', {0}),
    ('startswith(client_id, "app")', {0}),
    ('endswith(client_id, "ing")', {1}),
    (r'matches(client_id, "^app-\d$")', {0}),
    ('upper(client_id) == "BILLING"', {1}),
    ("request_bytes + response_bytes == 440", {0, 1, 2}),
    ("latency_us / 1000 > 8.9", {1}),
    ("request_bytes * 2 - 80 == 0", {0, 1, 2}),
    ("-latency_us < -5000", {1}),
    ("abs(-latency_us) > 5000", {1}),
    ('request_time >= "2026-01-31T12:00:00.000001Z"', {0, 1, 2}),
    ('request_time > "2026-01-31T13:00:00.000001+01:00"', set()),
    ('request_time > "2026-01-31"', {0, 1, 2}),
    ('"2026-02-01" < request_time', set()),
    ("syn", {4}),
    ("not syn", {0, 1, 2, 3}),
    ("rst == false", {4}),
    ("event == 'anomaly' or syn and fin", {3, 4}),
    ("true", {0, 1, 2, 3, 4}),
    ("1 == 2", set()),
]


@pytest.mark.parametrize(("expression", "rows"), EXPECTED)
def test_an_expression_keeps_the_rows_it_holds_for(expression: str, rows: set[int]) -> None:
    batch = batch_of(ROWS)
    mask = compile_where(expression)(batch)
    assert mask.null_count == 0
    assert set(batch.filter(mask)["correlation_id"].to_pylist()) == rows


def test_a_slice_of_a_batch_is_filtered_by_its_own_rows() -> None:
    batch = batch_of(ROWS * 3).slice(4, 7)
    mask = compile_where('"orders" in topics or 6 in partitions.error_code')(batch)
    assert mask.to_pylist() == [False, True, False, False, False, False, True]


MISTAKES = [
    ("latncy_us > 5", "position 1: unknown column 'latncy_us' (did you mean latency_us"),
    ("code == 'gap' and statu == 'ok'", "position 19: unknown column 'statu' (did you mean status"),
    ("status == 'eror'", "position 11: status is never 'eror' (did you mean error"),
    ("event in ['call', 'calls']", "position 19: event is never 'calls' (did you mean call"),
    ("api == 3", "position 8: api is text, 3 is a number"),
    ("latency_us > 'fast'", "latency_us is a number, 'fast' is text"),
    ("api = 'Fetch'", "equality is written =="),
    ("api == 'Fetch' && syn", "&& is written and"),
    ("api == 'Fetch' & syn", "write and"),
    ("", "the expression is empty"),
    ("latency_us", "the expression gives a number, not true or false"),
    ("latency_us and syn", "position 1: latency_us is a number, not true or false"),
    ("topics == 'orders'", 'topics is a list; write "value" in topics'),
    ("3 in topics", "topics holds items that are text, 3 is not"),
    ("'a' in latency_us", "cannot look for 'a' in latency_us"),
    ("partitions.eror_code", "partitions has no 'eror_code' (did you mean error_code"),
    ("api.name == 'x'", "api has no parts"),
    ("request_time > 'noon'", "position 16: 'noon' is no ISO 8601 time"),
    ("request_time - response_time > 5", "no arithmetic with times"),
    ("contains(api)", "contains takes a column and a text"),
    ("contian(api, 'x')", "unknown function 'contian' (did you mean contains"),
    ("matches(api, '(')", "wrong regular expression"),
    ("api is 'Fetch'", "`is` compares with None only"),
    ("latency_us > None", "None can only be compared with == and !="),
    ("__import__('os').system('true')", "position 17: '.' stands where"),
    ("__import__('os') == 1", "unknown function '__import__'"),
    ("(lambda: 1)() == 1", "position 8: ':' is not part of the language"),
    ("[x for x in topics] == 1", "position 4: 'for' stands where `]` is expected"),
    ("latency_us ** 2 > 1", "arithmetic knows + - * / only"),
    ("latency_us > 99999999999999999999", "a value no column can hold"),
    ("api == 'Fetch' and", "position"),
    ("(" * 5000 + "1", "--where"),
    ("not " * 2000 + "syn", "nested too deeply"),
    ("x" * 10_001, "longer than 10000 characters"),
    ("a\x00b", "--where"),
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
    ("time > request.topics.name", "time is a time, request.topics.name is a field of a body"),
    ("syn $ fin", "position 5: '$' is not part of the language"),
]


@pytest.mark.parametrize(("expression", "says"), MISTAKES)
def test_a_mistake_is_named_with_its_place(expression: str, says: str) -> None:
    with pytest.raises(WhereError) as error:
        compile_where(expression)
    assert says in str(error.value)
    assert "\n" not in str(error.value)


WORDS = ["api", "latency_us", "topics", "syn", "request_time", "partitions.partition", "'x'", "3", "None"]
WORDS += [
    "and",
    "or",
    "not",
    "in",
    "is",
    "==",
    "<",
    "+",
    "/",
    "(",
    ")",
    "[",
    "]",
    ",",
    "len(",
    "contains(",
    "-",
]


@given(st.lists(st.sampled_from(WORDS), max_size=8))
def test_whatever_is_written_compiles_and_runs_or_is_refused(words: list[str]) -> None:
    batch = batch_of(ROWS)
    try:
        predicate = compile_where(" ".join(words))
    except WhereError:
        return
    assert len(predicate(batch)) == batch.num_rows


# What the language understands of an operator's words: units, addresses, short names, patterns, times

UUID = "00000000-0000-0000-0000-0000000000aa"
RICH: list[dict[str, Any]] = [
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

OF_RICH = [
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
    batch = batch_of(RICH)
    mask = compile_where(expression, **bounds)(batch)
    assert mask.null_count == 0
    return set(batch.filter(mask)["correlation_id"].to_pylist())


@pytest.mark.parametrize(("expression", "rows"), OF_RICH)
def test_units_addresses_and_short_names_mean_what_operators_mean(expression: str, rows: set[int]) -> None:
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
