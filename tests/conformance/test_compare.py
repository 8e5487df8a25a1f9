"""Every kind of difference is found. Releases are made up here, as jars with definitions of their own."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from kwsniff.spec.load import Catalog
from kwsniff.spec.parse import ErrorCode
from kwsniff.spec.releases import read as read_releases
from tests.conformance import compare, definitions, errors, served
from tests.conformance.check import Result
from tests.conformance.compare import Finding
from tests.conformance.definitions import Definition, DefinitionError, snake

KDEF = """\
api 5 Example   versions 0-3   flexible 2+   kafka4 1-3   alias Sample

request
  group_id   string
  topics     []?
    name     string         alias topic
    offsets  []int64  1+
  rack       string?  2+  tag 0
response
  throttle_time_ms  int32
"""
FIELDS = [
    {"name": "GroupId", "type": "string", "versions": "0+"},
    {
        "name": "Topics",
        "type": "[]Topic",
        "versions": "0+",
        "nullableVersions": "0+",
        "fields": [
            {"name": "Name", "type": "string", "versions": "0+"},
            {"name": "Offsets", "type": "[]int64", "versions": "1+"},
        ],
    },
    {"name": "Rack", "type": "string", "tag": 0}
    | dict.fromkeys(("versions", "nullableVersions", "taggedVersions"), "2+"),
]
REQUEST: dict[str, Any] = {
    "apiKey": 5,
    "type": "request",
    "listeners": ["broker"],
    "name": "ExampleRequest",
    "validVersions": "1-3",
    "flexibleVersions": "2+",
    "fields": FIELDS,
}


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    folder = tmp_path / "dissectors"
    folder.mkdir()
    (folder / "005_example.kdef").write_text(KDEF)
    (folder / "errors.kdef").write_text("0 NONE\n")
    return Catalog(folder)


def defined(folder: Path, *messages: dict[str, Any], comment: str = "") -> list[Definition]:
    jar = folder / "kafka-clients-4.9.0.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        for message in messages:
            archive.writestr(f"common/message/{message['name']}.json", comment + json.dumps(message))
    return definitions.read(jar)


def changed(field: str, **values: Any) -> dict[str, Any]:
    """The request with one field changed; its path is written as in a finding."""
    message = json.loads(json.dumps(REQUEST))
    fields = message["fields"]
    for name in field.split("."):
        found = next(each for each in fields if snake(each["name"]) == name)
        fields = found.get("fields", [])
    found.update(values)
    return message


def found(message: dict[str, Any], folder: Path, catalog: Catalog) -> list[Finding]:
    return compare.compare(defined(folder, message), catalog).findings


def test_what_agrees_has_no_findings(tmp_path: Path, catalog: Catalog) -> None:
    comparison = compare.compare(defined(tmp_path, REQUEST), catalog)
    assert comparison.findings == []
    assert comparison.compared == 3


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (changed("group_id", type="bytes"), ("group_id", "bytes", "string", 1)),
        (changed("topics.offsets", type="[]int32"), ("topics.offsets", "[]int32", "[]int64", 1)),
        (changed("group_id", name="Group"), ("group_id", "name group", "name group_id", 1)),
        (
            changed("group_id", nullableVersions="3+"),
            ("group_id", "compact nullable string", "compact string", 3),
        ),
        (changed("rack", tag=1), ("rack", "compact nullable string tag 1", "nothing", 2)),
        (changed("rack", taggedVersions="3+"), ("rack", "compact nullable string", "nothing", 2)),
        (changed("group_id", flexibleVersions="none"), ("group_id", "string", "compact string", 2)),
        (changed("group_id", versions="2+"), ("group_id", "nothing", "string", 1)),
        (changed("topics.offsets", versions="2+"), ("topics.offsets", "nothing", "[]int64", 1)),
        (REQUEST | {"validVersions": "1-4"}, ("version", "there", "versions 0-3", 4)),
        (REQUEST | {"flexibleVersions": "3+"}, ("flexible", "False", "True", 2)),
        (REQUEST | {"name": "OtherRequest"}, ("name", "Other", "Example", -1)),
        (REQUEST | {"apiKey": 6}, ("message", "versions 1-3", "nothing", -1)),
    ],
)
def test_a_difference_is_found(
    message: dict[str, Any], expected: tuple[Any, ...], tmp_path: Path, catalog: Catalog
) -> None:
    assert expected in [finding[1:] for finding in found(message, tmp_path, catalog)]


def test_a_field_in_the_middle_that_is_missing_is_named_and_hides_no_others(
    tmp_path: Path, catalog: Catalog
) -> None:
    added = {"name": "MemberId", "type": "string", "versions": "3+"}
    message = REQUEST | {"validVersions": "3", "fields": [FIELDS[0], added, *FIELDS[1:]]}
    expected = [Finding("Example request", "member_id", "compact string", "nothing", 3)]
    assert found(message, tmp_path, catalog) == expected


@pytest.mark.parametrize(
    "message", [changed("topics.name", name="Topic"), REQUEST | {"name": "SampleRequest"}]
)
def test_another_name_that_the_dissector_gives_is_none(
    message: dict[str, Any], tmp_path: Path, catalog: Catalog
) -> None:
    assert found(message, tmp_path, catalog) == []


def test_the_order_of_fields_matters_but_not_that_of_tagged_ones(tmp_path: Path, catalog: Catalog) -> None:
    moved = REQUEST | {"fields": [FIELDS[2], *FIELDS[:2]]}
    assert found(moved, tmp_path, catalog) == []
    swapped = REQUEST | {"fields": [FIELDS[1], FIELDS[0], FIELDS[2]]}
    assert found(swapped, tmp_path, catalog) != []


def test_a_struct_may_be_defined_apart(tmp_path: Path, catalog: Catalog) -> None:
    topics = {name: value for name, value in FIELDS[1].items() if name != "fields"}
    struct = {"name": "Topic", "versions": "0+", "fields": FIELDS[1]["fields"]}
    message = REQUEST | {"fields": [FIELDS[0], topics, FIELDS[2]], "commonStructs": [struct]}
    assert found(message, tmp_path, catalog) == []


def test_a_version_that_the_release_calls_unstable_is_kept_apart(tmp_path: Path, catalog: Catalog) -> None:
    message = REQUEST | {"validVersions": "1-4", "latestVersionUnstable": True}
    response = message | {"type": "response", "name": "ExampleResponse", "fields": []}
    comparison = compare.compare(defined(tmp_path, message, response), catalog)
    assert {finding.version for finding in comparison.findings} == {1, 2, 3}
    assert {(finding.where, finding.version) for finding in comparison.unstable} == {
        ("Example request", 4),
        ("Example response", 4),
    }


def test_a_message_that_is_gone_is_not_read(tmp_path: Path) -> None:
    gone = REQUEST | {"name": "GoneRequest", "validVersions": "none"}
    assert [each.name for each in defined(tmp_path, REQUEST, gone)] == ["Example"]


def test_comments_are_none_of_it_but_slashes_in_texts_are(tmp_path: Path) -> None:
    text = '// see "there"\n{ "about": "http://example.com", // and so on\n "n": 1 } }'
    assert definitions.parse(text) == {"about": "http://example.com", "n": 1}
    assert defined(tmp_path, REQUEST, comment="// Licensed\n")[0].name == "Example"


@pytest.mark.parametrize(
    ("name", "expected"),
    [("ThrottleTimeMs", "throttle_time_ms"), ("ISRNodes", "isr_nodes"), ("KRaftVersion", "k_raft_version")],
)
def test_names_are_written_as_the_guides_do(name: str, expected: str) -> None:
    assert snake(name) == expected


def test_a_jar_without_definitions_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match="no message definitions"):
        defined(tmp_path)
    with pytest.raises(DefinitionError, match="unknown type of message 'letter'"):
        defined(tmp_path, REQUEST | {"type": "letter"})


RELEASES = "releases 4.8 4.9\n5 Example 4.8:0-2 4.9:1-3\n"


def test_what_brokers_serve_is_compared_with_the_table_of_releases(tmp_path: Path) -> None:
    defined_here = defined(tmp_path, REQUEST)
    table = read_releases(RELEASES, "releases.kdef")
    assert list(served.compare(defined_here, "4.9.0", table)) == []
    assert list(served.compare(defined_here, "4.8.1", table)) == [
        Finding("Example request", "served by 4.8", "1-3", "0-2")
    ]
    assert list(served.compare(defined_here, "5.0.0", table)) == [
        Finding("releases.kdef", "release", "5.0.0", "4.9 is the last")
    ]
    only_controllers = defined(tmp_path, REQUEST | {"listeners": ["controller"]})
    assert [each.release_says for each in served.compare(only_controllers, "4.9.0", table)] == ["none"]


def test_what_4x_speaks_is_compared_with_the_clause_of_the_dissector(
    tmp_path: Path, catalog: Catalog
) -> None:
    assert list(served.compare_4x(defined(tmp_path, REQUEST), catalog)) == []
    wider = defined(tmp_path, REQUEST | {"validVersions": "0-3"})
    assert list(served.compare_4x(wider, catalog)) == [Finding("Example request", "kafka4", "0-3", "1-3")]


def test_error_codes_are_compared_by_name_and_retriability() -> None:
    known = {1: ErrorCode(1, "ONE", True, ""), 2: ErrorCode(2, "TWO", False, "")}
    assert list(errors.compare({1: ("ONE", True)}, known)) == []
    assert list(errors.compare({1: ("EINS", False), 2: ("TWO", False), 3: ("THREE", True)}, known)) == [
        Finding("error 1", "name", "EINS", "ONE"),
        Finding("error 1", "retriable", "False", "True"),
        Finding("error 3", "code", "THREE", "nothing"),
    ]


def test_findings_are_printed_a_line_for_each_difference() -> None:
    twice = [Finding("Example request", "rack", "string", "bytes", version) for version in (2, 3)]
    result = Result("4.9.0", 1, 3, 1, [*twice, Finding("error 1", "name", "EINS", "ONE")], [(twice[0], "so")])
    assert str(result).splitlines() == [
        "kafka-clients 4.9.0: 1 messages in 3 versions, 1 error codes: 3 findings",
        "  Example request v2,3: rack: string, in kwsniff bytes",
        "  error 1: name: EINS, in kwsniff ONE",
        "  known: Example request: rack: so",
    ]
