"""Layouts that no API has yet: roles in every place, against the interpreter."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import pytest
from body_machine import Machine
from test_bodies import CODES, spoilt
from test_body_calls import Narrow

from kwsniff.engine import bodies
from kwsniff.spec import parse
from kwsniff.spec.binary import DecodeError
from kwsniff.spec.instructions import program
from kwsniff.spec.model import Field, Message
from tests.oracle.facts import read_facts

from spec_encoder import Encoder  # isort: skip

HEAD = """api 99 Odd   versions 0-1   flexible 1+
# Nothing real.

request
"""
LAYOUTS = {
    "a topic inside a topic": """
  outer         []
    name        string    @topic
    parts       []
      index     int32     @partition
      inner     []
        name    string?   @topic
        id      uuid      @topic_id
        part    int32     @partition
        code    int16     @error
      code      int16     @error
    more        []int32   @partition
""",
    "a topic behind its partitions": """
  topics    []
    parts   []
      part  int32   @partition
    name    string  @topic
    after   []
      part  int32   @partition
""",
    "several roles in one field": """
  who        string?  @group @coordinator_key
  kind       int8     @coordinator_type
  code       int16    @error
  asked      []string @topic @transactional_id
  rows       []
    name     string   @topic @member
    part     int32    @partition @session_id
    base     int64    @base_offset
    code     int16    @error
    again    int16    @error
""",
    "the first of several counts": """
  groups     []?
    group    string?  @group
    member   string?  @member
    wait     int32    @max_wait
  group      string   @group
  wait       int32    @max_wait
  throttle   int32    @throttle
  later      int32    @throttle
""",
    "roles in tagged fields": """
  name    string   @software_name
  deep    []
    code  int16    @error
    tail  {}       1+  tag 3
      topic  string  @topic
      part   int32   @partition
      epoch  int32   1+  tag 0  @session_epoch
    extra string   1+  tag 1  @member
  code    int16    1+  tag 0  @error
  group   string   1+  tag 2  @group
  acks    int16    1+  tag 5  @acks
  topic   string   1+  tag 7  @topic
  ids     []uuid   1+  tag 9  @topic_id
""",
    "structs that may be null": """
  first    {}?
    topic  string   @topic
    node   int32    @node_id
    host   string   @host
    port   int32    @port
    inner  {}?
      part  int32   @partition
  second   {}?
    junk   string?
    more   []string
  topics   []?
    id     uuid     @topic_id
    parts  []int32  @partition
  token    bytes    @auth_bytes @secret
  second_token  bytes  @auth_bytes
""",
    "records and their neighbours": """
  topics   []
    name   string    @topic
    parts  []
      data   records?  @records
      part   int32     @partition
      base   int64     @base_offset
    bare   []
      part   int32     @partition
""",
}  # fmt: skip


def published(fields: tuple[Field, ...]) -> list[dict[str, Any]]:
    """Fields in the form of the published tables, for the encoder."""
    made = []
    for field in fields:
        one: dict[str, Any] = {"n": field.name, "t": ("[]" if field.array else "") + field.type}
        one |= {"v": str(field.versions), "null": str(field.nullable), "f": published(field.fields)}
        if field.tag is not None:
            one["tag"] = field.tag
        made.append(one)
    return made


def message(text: str) -> Message:
    _, request, _ = parse.api(
        HEAD + text.strip("\n") + "\n\nresponse\n  code  int16  @error\n", "099_odd.kdef"
    )
    return request


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("version", [0, 1])
def test_roles_in_any_place_are_found_as_the_interpreter_finds_them(name: str, version: int) -> None:
    found = message(LAYOUTS[name])
    decode, machine = partial(read_facts, found.at(version)), Machine()
    entry = machine._load(program(found.at(version)))
    facts = {"flexible": "1+", "fields": published(found.fields)}
    rng = random.Random(f"{name} {version}")
    taken = 0
    for example in range(150):
        body = Narrow(rng, version, example % 10 == 9).body(facts["fields"])
        data = Encoder(facts, version, rng).encode(body)
        for said in (data, spoilt(rng, data), data[: rng.randrange(len(data))], spoilt(rng, data)):
            good = machine.call(bodies.read, said + b"\1\2\3", 0, len(said), entry, True)
            wanted = outcome(decode, said)
            if isinstance(wanted, str):
                assert not good
                assert CODES[machine.row("facts").code] == wanted, said.hex()
                continue
            assert good
            taken += 1
            compare(machine.facts(0), wanted, said)
    assert taken >= 150


def outcome(decode: Any, data: bytes) -> Any:
    """Facts, or the code of why there are none; the buffer goes on behind the body."""
    try:
        return decode(data + b"\1\2\3", 0, len(data))[0]
    except DecodeError as error:
        return error.code


def compare(said: dict[str, Any], wanted: Any, data: bytes) -> None:
    token = said["extra"].pop("auth_bytes", None)
    extra = dict(wanted.extra or {})
    assert extra.pop("auth_bytes", None) == (None if token is None else data[token[0] : token[1]])
    assert said["extra"] == extra
    assert said["topics"] == (wanted.topics or [])
    assert said["topic_ids"] == (wanted.topic_ids or [])
    for name in ("error_code", "error_count", "throttle_ms", "acks", "max_wait_ms", "min_bytes", "group_id",
                 "member_id", "transactional_id"):  # fmt: skip
        assert said[name] == getattr(wanted, name), name
    rows = [(*row[:5], None if row[5] < 0 else row[6] - row[5]) for row in wanted.partitions or []]
    assert [(*row[:5], row[6]) for row in said["partitions"]] == rows
