from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from kwsniff.spec.load import catalog
from tests.cli.conftest import Ended

Run = Callable[..., Ended]


def test_the_list_has_a_line_for_each_api(kwsniff: Run) -> None:
    heading, *lines = kwsniff("protocol").out.splitlines()
    assert heading.split()[:3] == ["key", "api", "versions"]
    assert [int(line.split()[0]) for line in lines] == list(catalog().apis)
    assert lines[3].split()[:2] == ["3", "Metadata"]


def test_a_layout_goes_by_name_in_any_case_or_by_key(kwsniff: Run) -> None:
    by_name = kwsniff("protocol", "apiversions", "3")
    assert by_name.code == 0
    assert "client_software_name" in by_name.out
    assert kwsniff("protocol", "18", "3").out == by_name.out


def test_dump_is_one_json_object_a_line(kwsniff: Run) -> None:
    messages = [json.loads(line) for line in kwsniff("protocol", "dump").out.splitlines()]
    assert {message["direction"] for message in messages} == {"request", "response", "data"}
    keys = {"api_key", "api", "direction", "version", "flexible", "fields"}
    assert all(set(message) == keys for message in messages)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["fech"], "no API or data message 'fech' (did you mean Fetch"),
        (["Fetch", "99"], "Fetch has versions"),
        (["Fetch", "new"], "'[VERSION]'"),
        (["999"], "no API or data message '999'"),
    ],
)
def test_what_is_not_there_is_one_line_and_exit_code_2(kwsniff: Run, arguments: list[str], says: str) -> None:
    ended = kwsniff("protocol", *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert says in ended.err
    assert ended.err.count("\n") == 1
