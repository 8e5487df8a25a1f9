from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwsniff.count.where import WhereError
from kwsniff.count.where.predicate import compile_where
from tests.cli.conftest import anomaly, call, connection
from tests.cli.stand_in import batch_of

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
