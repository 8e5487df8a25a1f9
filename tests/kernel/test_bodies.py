"""The kernel that reads bodies says what the interpreter says, and refuses what it refuses: random
bodies of every message version, whole, cut short and damaged."""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path
from typing import Any

import pytest
from body_machine import Machine

from kwsniff.config import Config
from kwsniff.rows.events import ANOMALIES
from kwsniff.spec.binary import DecodeError
from kwsniff.spec.compile import layout
from kwsniff.spec.interpret import interpret
from tests.oracle.bodies import Body, read, rows
from tests.strength import ALL

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "spec"))
from spec_encoder import Encoder, Maker
from spec_tables import RENAMED, messages, versions_of

EXAMPLES = int(os.environ.get("KWSNIFF_EXAMPLES", "3"))
MESSAGES = [message for message in messages() if message["name"] not in RENAMED and message["dir"] != "data"]
CODES = tuple(ANOMALIES)
CONFIG = Config()
every_message = pytest.mark.parametrize(
    "published", MESSAGES, ids=[f"{m['name']}-{m['dir']}" for m in MESSAGES]
)


@pytest.fixture(scope="module")
def machine() -> Machine:
    return Machine()


def oracle(
    key: int, version: int, direction: str, data: bytes, pos: int, end: int, config: Config = CONFIG
) -> Body | DecodeError:
    try:
        return read(key, version, direction, data, pos, end, config)
    except DecodeError as error:
        return error


def comparable(body: Body, data: bytes, end: int) -> dict[str, Any]:
    """A body of the oracle, in the form of `Machine.facts`."""
    facts = body.facts._asdict()
    extra = dict(facts["extra"] or {})
    extra.pop("auth_bytes", None)
    facts |= {name: facts[name] or [] for name in ("topics", "topic_ids")}
    facts |= {"partitions": rows(body) or [], "extra": extra}
    facts |= {"records": body.record_count, "record_bytes": body.record_bytes}
    return facts | {"trailing": body.trailing}


def check(machine: Machine, key: int, version: int, direction: str, data: bytes) -> bool:
    """Whether a body was taken; what is said of it is compared."""
    buffer, pos, end = b"\xaa\x01" + data + bytes(range(40)), 2, 2 + len(data)
    side = int(direction == "response")
    good = machine.read(key, version, direction, buffer, pos, end)
    expected = oracle(key, version, direction, buffer, pos, end)
    fact = machine.row("facts", side)
    if isinstance(expected, DecodeError):
        assert not good, (version, data.hex(), expected)
        assert CODES[fact.code] == expected.code, (version, data.hex(), expected)
        if expected.offset >= 0:
            assert 0 <= fact.offset <= expected.offset, (version, data.hex(), expected)
        assert not machine.skim(key, version, direction, buffer, pos, end)
        return False
    assert good, (version, data.hex(), CODES[fact.code])
    said = machine.facts(side)
    token = said["extra"].pop("auth_bytes", None)
    found = (expected.facts.extra or {}).get("auth_bytes")
    assert (None if token is None else buffer[token[0] : token[1]]) == found
    assert said == comparable(expected, buffer, end), (version, data.hex())
    assert machine.skim(key, version, direction, buffer, pos, end) or fact.code
    return True


def spoilt(rng: random.Random, data: bytes) -> bytes:
    wrong = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        wrong[rng.randrange(len(wrong))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
    return bytes(wrong)


@every_message
def test_the_kernel_says_what_the_decoder_says_and_refuses_what_it_refuses(
    published: dict[str, Any], machine: Machine
) -> None:
    key, direction = published["key"], published["dir"]
    for version in versions_of(published):
        rng = random.Random(f"{published['name']} {direction} {version}")
        for example in range(EXAMPLES):
            body = Maker(rng, version, rich=example % 3 == 2).body(published["fields"])
            data = Encoder(published, version, rng).encode(body)
            assert check(machine, key, version, direction, data)
            for _ in range(3 if data else 0):
                check(machine, key, version, direction, data[: rng.randrange(len(data))])
                check(machine, key, version, direction, spoilt(rng, data))
            check(machine, key, version, direction, data + b"rest")


def test_the_interpreter_finds_where_a_body_is_wrong_and_agrees_with_the_kernel() -> None:
    at = layout(12, 0, "request")
    for text, code in (("ffff", "length_invalid"), ("0002c328", "text_invalid"), ("0002", "truncated_body")):
        with pytest.raises(DecodeError) as refused:
            interpret(at, bytes.fromhex(text), 0, len(text) // 2, facts=True)
        assert refused.value.code == code


@pytest.mark.parametrize("limit", [0, 1, 5, 40])
def test_a_body_of_more_elements_than_it_may_have_is_refused_as_before(limit: int) -> None:
    machine, config = Machine(elements=limit), Config(max_elements=limit)
    refused = 0
    for published in MESSAGES:
        key, direction, version = published["key"], published["dir"], versions_of(published)[-1]
        rng = random.Random(f"{published['name']} {direction} limit")
        for _ in range(3 if ALL else 1):
            body = Maker(rng, version, rich=True).body(published["fields"])
            data = Encoder(published, version).encode(body)
            code = machine.read(key, version, direction, data, 0, len(data))
            said = oracle(key, version, direction, data, 0, len(data), config)
            assert code == isinstance(said, Body)
            if isinstance(said, DecodeError):
                refused += 1
                assert CODES[machine.row("facts", int(direction == "response")).code] == said.code
    assert refused


def test_without_lists_a_body_says_the_same_but_for_them() -> None:
    machine, plain = Machine(), Machine(lists=False)
    for published in MESSAGES:
        key, direction, version = published["key"], published["dir"], versions_of(published)[-1]
        rng = random.Random(f"{published['name']} {direction} lists")
        body = Maker(rng, version, rich=True).body(published["fields"])
        data = Encoder(published, version).encode(body)
        side = int(direction == "response")
        for each in (machine, plain):
            assert each.read(key, version, direction, data, 0, len(data))
        said, bare = machine.facts(side), plain.facts(side)
        assert bare["topics"] == []
        # Rows with damaged records are there for the anomalies that they make.
        assert len(bare["partitions"]) == plain.row("facts", side).damaged
        for facts in (said, bare):
            del facts["topics"], facts["topic_ids"], facts["partitions"]
        assert said == bare


def test_acks_are_known_of_a_produce_request_that_breaks_behind_them(machine: Machine) -> None:
    for version in versions_of(next(m for m in MESSAGES if (m["key"], m["dir"]) == (0, "request"))):
        published = next(m for m in MESSAGES if (m["key"], m["dir"]) == (0, "request"))
        for acks in (0, 1, -1):
            body = Maker(random.Random(version), version).body(published["fields"]) | {"acks": acks}
            data = Encoder(published, version).encode(body)[:-1]
            assert not machine.read(0, version, "request", data, 0, len(data))
            assert machine.row("facts").acks == acks
