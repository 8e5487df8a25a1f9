"""The dissectors against the published tables: every message version has the published wire shape."""

from __future__ import annotations

import re
from typing import Any

import pytest
from spec_tables import RENAMED, all_versions, covers, error_codes, guide_tables, messages

from kwsniff.spec.describe import dump
from kwsniff.spec.load import catalog

GUIDE_NAMES = {
    "ElectPreferredLeaders": "ElectLeaders",
    "AlterIsr": "AlterPartition",
    "GroupCoordinator": "FindCoordinator",
    "Offsets": "ListOffsets",
}
GUIDE_TYPES = {"BOOLEAN": "bool", "FLOAT64": "float64", "BYTES": "bytes", "RECORDS": "records"}


@pytest.fixture(scope="module")
def dumped() -> dict[tuple[str, str, int], dict[str, Any]]:
    rows = list(dump())
    found = {(row["api"], row["direction"], row["version"]): row for row in rows}
    assert len(found) == len(rows)
    return found


def published(fields: list[dict[str, Any]], version: int, flexible: bool) -> list[dict[str, Any]]:
    """The fields of a published message at one version, as the dump writes them."""
    return [
        {
            "name": field["n"],
            "type": field["t"],
            "nullable": covers(field.get("null"), version),
            "tag": field.get("tag"),
            "fields": published(field["f"], version, flexible) if "f" in field else None,
        }
        for field in fields
        if covers(field["v"], version)
    ]


def nameless(fields: list[dict[str, Any]]) -> list[Any]:
    return [{**f, "name": "", "fields": f["fields"] and nameless(f["fields"])} for f in fields]


def test_every_published_message_version_is_dumped_field_by_field(dumped):
    missing = []
    for message, version in all_versions():
        flexible = covers(message["flexible"], version)
        row = dumped.get((RENAMED.get(message["name"], message["name"]), message["dir"], version))
        expected = published(message["fields"], version, flexible)
        found = row and row["fields"]
        if message["name"] in RENAMED and found is not None:
            expected, found = nameless(expected), nameless(found)
        if (
            row is None
            or found != expected
            or row["flexible"] != flexible
            or row["api_key"] != message["key"]
        ):
            missing.append((message["name"], message["dir"], version))
    assert missing == []


def test_nothing_is_dumped_that_is_not_published(dumped):
    known = {(RENAMED.get(m["name"], m["name"]), m["dir"], version) for m, version in all_versions()}
    assert set(dumped) == known


def test_the_published_table_has_both_messages_of_each_api_and_leaves_no_key_out():
    """So that what is compared with it cannot have shrunk unseen."""
    keys = {way: {m["key"] for m in messages() if m["dir"] == way} for way in ("request", "response")}
    assert keys["request"] == keys["response"] == set(range(max(keys["request"]) + 1))


# The guides leave out the names of plain structs and write an array of one-field structs as an array of
# that field, so shapes are compared with both undone.


def guide_shape(fields: list[Any]) -> tuple[Any, ...]:
    shape: list[Any] = []
    for _name, kind, inner in fields:
        depth = kind.count("[]")
        elements = guide_shape(inner) if inner is not None else (guide_type(kind[2 * depth :]),)
        if not depth:
            shape.extend(elements)
            continue
        for _ in range(depth):
            elements = (("[]", elements),)
        shape.extend(elements)
    return tuple(shape)


def guide_type(kind: str) -> str:
    base = re.sub(r"^(COMPACT_)?(NULLABLE_)?", "", kind)
    nullable = "?" if "NULLABLE" in kind else ""
    compact = "compact " if kind.startswith("COMPACT_") else ""
    return compact + GUIDE_TYPES.get(base, base.lower()) + nullable


def dump_shape(fields: list[dict[str, Any]], flexible: bool) -> tuple[Any, ...]:
    shape: list[Any] = []
    for field in fields:
        if field["tag"] is not None:
            continue
        kind = field["type"].removeprefix("[]")
        array = field["type"].startswith("[]")
        if kind == "struct":
            elements = dump_shape(field["fields"], flexible)
        else:
            elements = (dump_type(kind, flexible, field["nullable"] and not array),)
        shape.extend([("[]", elements)] if array else elements)
    return tuple(shape)


def dump_type(kind: str, flexible: bool, nullable: bool) -> str:
    compact = "compact " if flexible and kind in ("string", "bytes", "records") else ""
    return compact + kind + ("?" if nullable and kind == "string" else "")


def test_every_guide_table_has_the_same_wire_shape(dumped):
    assert len(guide_tables()) == 910, "the editions of 1.1, 2.3 and 2.7, which do not change any more"
    different = []
    for table in guide_tables():
        name = GUIDE_NAMES.get(table["api"], table["api"])
        row = dumped.get((name, table["dir"], table["version"]))
        if row is None or dump_shape(row["fields"], row["flexible"]) != guide_shape(table["fields"]):
            different.append((table["guide"], table["api"], table["dir"], table["version"]))
    assert different == []


def test_versions_of_4x_are_those_published():
    published_ranges = {
        m["key"]: m["kafka4"] for m in messages() if m["dir"] == "request" and m["name"] not in RENAMED
    }
    for key, ranges in published_ranges.items():
        assert str(catalog().api(key).head.kafka4) == (ranges or "none"), key


def test_every_error_code_has_its_published_name_and_retriability_and_a_meaning():
    errors = catalog().errors
    assert list(errors) == list(range(-1, max(errors) + 1))
    assert {code: (error.name, error.retriable) for code, error in errors.items()} == error_codes()
    assert all(error.doc for error in errors.values())


def test_an_unknown_error_code_still_has_a_name():
    assert catalog().error(999).name == "UNKNOWN_999"


def test_all_published_apis_are_there_each_with_a_sentence_on_its_purpose():
    assert list(catalog().apis) == sorted({m["key"] for m in messages() if m["dir"] == "request"})
    assert all(api.doc for api in catalog().apis.values())


@pytest.mark.parametrize(
    ("key", "version", "request_header", "response_header"),
    [
        (7, 0, 0, 0),
        (7, 1, 1, 0),
        (7, 3, 2, 1),
        (18, 0, 1, 0),
        (18, 3, 2, 0),
        (18, 4, 2, 0),
        (0, 8, 1, 0),
        (0, 9, 2, 1),
    ],
)
def test_header_versions_follow_the_guide(key, version, request_header, response_header):
    api = catalog().api(key)
    assert api.request_header_version(version) == request_header
    assert api.response_header_version(version) == response_header
