from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable

import pytest

from kwsniff.cli.lookup import EXAMPLES, NAMES, RULES
from kwsniff.count.where.name import ALIASES, SHORT
from kwsniff.count.where.parser import BYTE_UNITS, TIME_UNITS, tokens
from kwsniff.count.where.predicate import FUNCTIONS, compile_where
from kwsniff.rows.events import ANOMALIES
from kwsniff.rows.schema import EVENTS, PARTITION
from tests.cli.conftest import ROOT, Ended, call, connection


def test_the_page_is_what_the_command_prints(kwsniff: Callable[..., Ended]) -> None:
    page = kwsniff("schema", "-f", "markdown").out
    assert (ROOT / "docs/schema.md").read_text() == page, "run kwsniff schema -f markdown > docs/schema.md"


def test_every_column_is_there_with_its_meaning(kwsniff: Callable[..., Ended]) -> None:
    rows = list(csv.DictReader(io.StringIO(kwsniff("schema", "-f", "csv").out)))
    named = {row["name"] for row in rows if row["table"] in ("call", "anomaly", "connection")}
    assert named == set(EVENTS.names)
    assert {row["name"] for row in rows if row["table"] == "partitions"} == {f.name for f in PARTITION}
    assert all(row["meaning"] for row in rows if row["type"])
    assert {row["name"] for row in rows if row["table"] == "code"} == set(ANOMALIES)


def test_a_column_says_type_unit_and_meaning(kwsniff: Callable[..., Ended]) -> None:
    calls = {row["column"]: row for row in json.loads(kwsniff("schema", "call", "-f", "json").out)["call"]}
    assert calls["latency_us"]["type"] == "double"
    assert calls["latency_us"]["unit"] == "µs"
    assert "response_time - request_end_time" in calls["latency_us"]["meaning"]
    assert "syn" not in calls


def test_on_a_terminal_no_line_is_longer_than_a_hundred_columns(kwsniff: Callable[..., Ended]) -> None:
    assert [line for line in kwsniff("schema").out.splitlines() if len(line) > 100] == []


def test_a_part_that_there_is_not_is_named_with_one_that_there_is(kwsniff: Callable[..., Ended]) -> None:
    ended = kwsniff("schema", "calls")
    assert ended.code == 2
    assert "there is no 'calls' (did you mean call?)" in ended.err


@pytest.mark.parametrize("expression", EXAMPLES)
def test_every_example_of_the_language_compiles(expression: str) -> None:
    compile_where(expression)


def test_everything_the_language_has_is_in_its_rules() -> None:
    written = " ".join(f"{what} {meaning}" for what, meaning in (*RULES, *NAMES))
    assert [name for name in FUNCTIONS if name not in written] == []
    assert [name for name in SHORT if name not in written] == []
    for name, column in ALIASES.items():
        assert name in written or column == f"{name}_us" or column == f"{name}_ms"
    units = {token.text.lstrip("0123456789") for what, _ in RULES for token in quantities(what)}
    assert {"us", "ms", "s", "min", "h", "B", "kB", "MB", "GB", "KiB"} <= units
    assert all(unit in TIME_UNITS or unit.lower() in BYTE_UNITS for unit in units)


def quantities(text: str) -> list[object]:
    try:
        return [token for token in tokens(text) if token.kind == "quantity"]
    except ValueError:
        return []


def test_bodies_are_looked_into_only_with_full(
    capture: Callable[..., str], kwsniff: Callable[..., Ended]
) -> None:
    path = capture(call(request='{"acks":0}'), connection())
    ended = kwsniff("decode", "-q", path, "--where", "request.acks == 0")
    assert (ended.code, ended.out) == (2, "")
    assert "which needs --full" in ended.err
    assert (
        len(
            kwsniff(
                "decode", "-q", "--full", "-f", "jsonl", path, "--where", "request.acks == 0"
            ).out.splitlines()
        )
        == 1
    )


def test_an_api_that_there_is_not_is_an_error_and_no_empty_answer(
    capture: Callable[..., str], kwsniff: Callable[..., Ended]
) -> None:
    ended = kwsniff("decode", capture(call()), "--where", 'api == "Fecth"')
    assert (ended.code, ended.out) == (2, "")
    assert ended.err == "kwsniff: --where, position 8: api is never 'Fecth' (did you mean Fetch?)\n"
