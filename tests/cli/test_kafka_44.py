"""What Kafka 4.4 brought, as an operator meets it: in reports, in filters and in the list of layouts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.conftest import process
from tests.samples import sample


def kwsniff(*arguments: str) -> str:
    done = process(*arguments, module="kwsniff")
    assert done.returncode == 0, done.stderr
    return done.stdout.decode()


@pytest.fixture(scope="module")
def report() -> dict[str, list[dict[str, Any]]]:
    paths = [path for name in ("java-streams", "misrouted") for path in sample(name).paths]
    made: dict[str, list[dict[str, Any]]] = json.loads(kwsniff("report", *paths, "--json", "-q"))
    return made


def test_a_report_has_the_new_apis_with_their_calls_and_errors(
    report: dict[str, list[dict[str, Any]]],
) -> None:
    rows = {row["api_key"]: row for row in report["api"]}
    told = {key: (rows[key]["api"], rows[key]["calls"], rows[key]["errors"]) for key in (93, 94)}
    assert told == {93: ("StreamsGroupTopologyDescriptionUpdate", 3, 1), 94: ("UnregisterController", 2, 1)}


def test_a_report_names_the_errors_that_came_with_it(report: dict[str, list[dict[str, Any]]]) -> None:
    codes = {row["error_code"]: row["error"] for row in report["error"]}
    new = {code: name for code, name in codes.items() if code >= 129}
    assert new == {
        129: "REBOOTSTRAP_REQUIRED",
        134: "GROUP_DELETION_FAILED",
        135: "STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED",
        136: "CONTROLLER_ID_NOT_REGISTERED",
    }


def test_a_filter_finds_them_by_name() -> None:
    (path,) = sample("java-streams").paths
    rows = kwsniff("decode", path, "-q", "-f", "jsonl", "--where", 'error == "CONTROLLER_ID_NOT_REGISTERED"')
    assert [json.loads(row)["api"] for row in rows.splitlines()] == ["UnregisterController"]


def test_why_a_group_was_not_deleted_is_in_the_full_body() -> None:
    (path,) = sample("java-streams").paths
    rows = kwsniff("decode", path, "-q", "-f", "jsonl", "--full", "--where", "error_code == 134")
    (result,) = json.loads(rows)["response"]["results"]
    assert result["group_id"] == "streams-kept"
    assert result["error_message"]


def test_the_topic_of_offsets_committed_by_uuid_has_its_name() -> None:
    (path,) = sample("java-streams").paths
    rows = kwsniff("decode", path, "-q", "-f", "jsonl", "--where", 'api == "TxnOffsetCommit"')
    assert [json.loads(row)["topics"] for row in rows.splitlines()] == [["orders"]] * 3
