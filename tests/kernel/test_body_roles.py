"""Roles that the kernel knows beyond those of `Facts`, against a plain walk over the encoded values: numbers
of partitions, what groups say, and the resources of admin calls."""

from __future__ import annotations

import random
from typing import Any

import pytest
from body_machine import Machine, calls, number
from test_bodies import MESSAGES
from test_body_calls import BY_KEY, Narrow

from kwsniff.engine import packing
from kwsniff.spec import instructions as i
from kwsniff.spec.load import catalog
from kwsniff.spec.model import Field

from spec_encoder import Encoder, Maker  # isort: skip
from spec_tables import versions_of  # isort: skip

TEXTS = ("group_protocol", "reason", "rack")
NUMBERS = ("generation", "validate_only")
ROW = i.ROW_NUMBERS[1:]


def roles_of(fields: tuple[Field, ...]) -> set[str]:
    return {role for field in fields for role in (*field.roles, *roles_of(field.fields))}


NEW = {*TEXTS, *NUMBERS, *ROW, "resource", "detail"}
CHOSEN = [m for m in MESSAGES if roles_of(catalog().api(m["key"]).message(m["dir"]).fields) & NEW]


class Walk:
    """Goes through a body as its maker made it."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.first: dict[str, Any] = {}
        self.rows: list[tuple[Any, ...]] = []
        self.resources: list[tuple[Any, ...]] = []

    def struct(self, fields: tuple[Field, ...], body: dict[str, Any], around: dict[str, Any]) -> None:
        own: dict[str, Any] = {}
        errors: list[int] = []
        here = [field for field in fields if self.version in field.versions and field.name in body]
        for field in sorted(here, key=lambda field: -1 if field.tag is None else field.tag):
            value = body[field.name]
            known = {name: own[name] for name in ("resource", "resource_type") if name in own}
            if field.array:
                self.array(field, value or [], around | known)
            elif field.type == "struct":
                if value is not None:
                    self.struct(field.fields, value, around | known)
            elif field.tag is None:
                errors += [value] if "error" in field.roles else []
                for role in field.roles:
                    own[role] = value
                    if value is not None:
                        self.first.setdefault(role, value)
        self.end(own, errors, around)

    def array(self, field: Field, elements: list[Any], around: dict[str, Any]) -> None:
        for element in elements:
            if field.type == "struct":
                self.struct(field.fields, element, around)
            elif "partition" in field.roles:
                self.rows.append((element, *[None] * len(ROW)))
            elif "resource" in field.roles:
                self.resources.append((None, element, None, None))

    def end(self, own: dict[str, Any], errors: list[int], around: dict[str, Any]) -> None:
        if "partition" in own:
            self.rows.append((own["partition"], *(own.get(role) for role in ROW)))
        if "resource" in own or "detail" in own:
            error = next((each for each in errors if each), 0) if errors and "resource" in own else None
            both = around | own
            self.resources.append((both.get("resource_type"), both.get("resource"), error, own.get("detail")))


def resources(machine: Machine, table: str, count: int) -> list[tuple[Any, ...]]:
    return [
        (number(row["type"]), machine.text(row["name"]), number(row["error"]), machine.text(row["detail"]))
        for row in machine.rows(table, 0, count)
    ]


@pytest.mark.parametrize("published", CHOSEN, ids=[f"{m['name']}-{m['dir']}" for m in CHOSEN])
def test_what_fields_of_further_roles_say_is_found(published: dict[str, Any]) -> None:
    machine, key, direction = Machine(), published["key"], published["dir"]
    message = catalog().api(key).message(direction)
    for version in versions_of(published):
        rng = random.Random(f"{key} {direction} {version}")
        for example in range(6):
            body = Maker(rng, version, rich=example == 5).body(published["fields"])
            data = Encoder(published, version).encode(body)
            assert machine.read(key, version, direction, data, 0, len(data))
            walk = Walk(version)
            walk.struct(message.fields, body, {})
            (fact,) = machine.rows("facts", int(direction == "response"), 1)
            assert {name: machine.text(fact[name]) for name in TEXTS} == {n: walk.first.get(n) for n in TEXTS}
            assert {name: number(fact[name]) for name in NUMBERS} == {n: walk.first.get(n) for n in NUMBERS}
            rows = machine.rows("rows", 0, fact["rows"])
            assert [(row["partition"], *(number(row[name]) for name in ROW)) for row in rows] == walk.rows
            assert resources(machine, "resources", fact["resources"]) == walk.resources


def walked(key: int, direction: str, version: int, body: dict[str, Any]) -> Walk:
    walk = Walk(version)
    walk.struct(catalog().api(key).message(direction).fields, body, {})
    return walk


@pytest.mark.parametrize("key", [1, 2, 8, 9, 23, 28])
def test_a_call_has_the_numbers_of_both_its_bodies(key: int) -> None:
    """Of a partition that both name once, what the response says goes before what the request says."""
    machine = Machine()
    request, response = BY_KEY[key, "request"], BY_KEY[key, "response"]
    found = 0
    for version in versions_of(request):
        rng = random.Random(f"{key} {version}")
        for _ in range(12):
            bodies = [Narrow(rng, version).body(side["fields"]) for side in (request, response)]
            asked, given = (
                Encoder(side, version).encode(body)
                for side, body in zip((request, response), bodies, strict=True)
            )
            machine.read(key, version, "request", asked, 0, len(asked))
            mine = machine.rows("rows", 0, machine.row("facts", 0).rows)
            machine.call(packing.keep, 0)
            machine.read(key, version, "response", given, 0, len(given))
            theirs = machine.rows("rows", 0, machine.row("facts", 1).rows)
            machine.row("store").call_names = machine.row("store").call_rows = 0
            machine.call(calls.join, 0, 0)
            emitted = machine.rows("call_rows", 0, machine.row("calls").rows)
            packing.forget(machine.t, 0)
            place = ("name", "uuid", "partition")
            for row, before in zip(emitted, theirs, strict=False):
                same = [each for each in mine if [each[n] for n in place] == [row[n] for n in place]]
                twice = sum([each[n] for n in place] == [row[n] for n in place] for each in theirs) > 1
                if len(same) != 1 or twice:
                    continue
                found += 1
                for name in ROW:
                    wanted = number(before[name])
                    assert number(row[name]) == (number(same[0][name]) if wanted is None else wanted)
    assert found


def test_a_call_names_the_resources_of_the_response_and_what_the_request_sets() -> None:
    machine = Machine()
    asked = Encoder(BY_KEY[44, "request"], 1).encode(
        {"resources": [{"resource_type": 2, "resource_name": "orders", "configs": [
            {"name": "retention.ms", "config_operation": 0, "value": "secret"}]}], "validate_only": True}
    )  # fmt: skip
    given = Encoder(BY_KEY[44, "response"], 1).encode(
        {"throttle_time_ms": 0, "responses": [
            {"error_code": 29, "error_message": None, "resource_type": 2, "resource_name": "orders"}]}
    )  # fmt: skip
    machine.read(44, 1, "request", asked, 0, len(asked))
    machine.call(packing.keep, 0)
    machine.read(44, 1, "response", given, 0, len(given))
    machine.call(calls.join, 0, 0)
    call = machine.row("calls")
    assert resources(machine, "call_resources", call.resources) == [
        (2, "orders", 29, None),
        (2, "orders", None, "retention.ms"),
    ]
    assert b"secret" not in bytes(machine.t.text_bytes)
