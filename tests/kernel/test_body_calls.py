"""What request and response say together, against `tests.oracle.joining`: random pairs of every API, whose
names meet often, and the heap that the request's lists wait in."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import pytest
from body_machine import Machine, calls, number
from test_bodies import CONFIG, MESSAGES

from kwsniff.engine import packing, texts
from kwsniff.engine.packing import compact_texts
from kwsniff.engine.tables import CONNS, REQUESTS
from kwsniff.spec.binary import DecodeError
from tests.oracle.bodies import Body, read
from tests.oracle.facts import NO_FACTS
from tests.oracle.joining import joined_partitions, joined_topics, named_groups, record_sums

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "spec"))
from record_bytes import batch, message
from spec_encoder import Encoder, Maker
from spec_tables import versions_of

BY_KEY = {(message["key"], message["dir"]): message for message in MESSAGES}
KEYS = sorted({key for key, _ in BY_KEY})
PAIRS = 12


class Narrow(Maker):
    """Bodies of few names and small numbers, so that both sides speak of the same."""

    def value(self, field: dict[str, Any], kind: str, depth: int) -> Any:
        rng = self.rng
        if kind == "string":
            return rng.choice(("", "a", "b", "c"))
        if kind == "uuid":
            return f"00000000-0000-0000-0000-00000000000{rng.randrange(3)}"
        if kind in ("int8", "int16", "int32"):
            return rng.choice((0, 0, 0, 1, 2))
        if kind == "records":
            data = batch(b"x" * 70, rng.randrange(9))
            return rng.choice((b"", data, message(1), message(0, attributes=1), rng.randbytes(70)))
        return super().value(field, kind, depth)


def body(key: int, version: int, direction: str, data: bytes) -> Body | None:
    try:
        return read(key, version, direction, data, 0, len(data), CONFIG)
    except DecodeError:
        return None


def expected(asked: Body | None, answer: Body | None) -> dict[str, Any]:
    """As `Conversation._call` makes it."""
    query = asked.facts if asked else NO_FACTS
    reply = answer.facts if answer else NO_FACTS
    topics, topic_ids = joined_topics(query, reply)
    count, size = record_sums(asked, answer)
    group, transactional_id = named_groups(query, reply)
    return {
        "error": reply.error_code,
        "errors": reply.error_count if reply.error_code is not None else None,
        "throttle": reply.throttle_ms,
        "acks": query.acks,
        "max_wait": query.max_wait_ms,
        "min_bytes": query.min_bytes,
        "group": group,
        "member": query.member_id or reply.member_id,
        "transactional_id": transactional_id,
        "names": topics,
        "uuids": topic_ids,
        "rows": joined_partitions(asked, answer),
        "records": count,
        "record_bytes": size,
    }


def call(machine: Machine, row: int) -> dict[str, Any]:
    """A call at the beginning of the lists."""
    (out,) = machine.rows("calls", row, 1)
    names = machine.rows("call_names", 0, out["names"])
    rows = machine.rows("call_rows", 0, out["rows"])
    return {
        **{
            name: number(out[name])
            for name in ("error", "errors", "throttle", "acks", "max_wait", "min_bytes")
        },
        **{name: machine.text(out[name]) for name in ("group", "member", "transactional_id")},
        "names": [machine.text(each["name"]) for each in names] or None,
        "uuids": [machine.text(each["uuid"]) for each in names] if out["uuids"] else None,
        "rows": [machine.partition(each) for each in rows] or None,
        "records": number(out["records"]),
        "record_bytes": number(out["record_bytes"]),
    }


def joined(machine: Machine, key: int, version: int, asked: bytes, given: bytes | None) -> dict[str, Any]:
    """What the kernels make of a pair of bodies."""
    machine.read(key, version, "request", asked, 0, len(asked))
    machine.call(packing.keep, 0)
    if given is None:
        machine.row("facts", 1).clean = 0
    else:
        machine.read(key, version, "response", given, 0, len(given))
    store = machine.row("store")
    store.call_names = store.call_rows = store.call_resources = 0
    machine.call(calls.join, 0, 0)
    packing.forget(machine.t, 0)
    assert store.words_live == 0
    return call(machine, 0)


@pytest.mark.parametrize("key", KEYS)
def test_both_bodies_together_say_what_they_said_before(key: int) -> None:
    machine = Machine()
    request, response = BY_KEY[key, "request"], BY_KEY[key, "response"]
    for version in versions_of(request):
        rng = random.Random(f"{key} {version}")
        for _ in range(PAIRS):
            sides = [
                Encoder(side, version).encode(Narrow(rng, version, rng.random() < 0.1).body(side["fields"]))
                for side in (request, response)
            ]
            if rng.random() < 0.1 and sides[0]:
                sides[0] = sides[0][:-1]
            given = None if rng.random() < 0.1 else sides[1]
            asked = body(key, version, "request", sides[0])
            answer = None if given is None else body(key, version, "response", given)
            found = joined(machine, key, version, sides[0], given)
            assert found == expected(asked, answer), (version, [side.hex() for side in sides])


def test_a_machine_that_wants_no_lists_has_none() -> None:
    machine = Machine(lists=False)
    request, response = BY_KEY[0, "request"], BY_KEY[0, "response"]
    rng = random.Random(1)
    for _ in range(20):
        sides = [Encoder(side, 9).encode(Narrow(rng, 9).body(side["fields"])) for side in (request, response)]
        asked, answer = body(0, 9, "request", sides[0]), body(0, 9, "response", sides[1])
        found = joined(machine, 0, 9, *sides)
        wanted = expected(asked, answer) | {"names": None, "uuids": None, "rows": None}
        assert found == wanted


def test_blocks_of_the_heap_are_used_again_and_never_overlap() -> None:
    machine = Machine()
    rng = random.Random(2)
    taken: dict[int, int] = {}
    for _ in range(3000):
        if taken and rng.random() < 0.5:
            at = rng.choice(list(taken))
            packing.give_words(machine.t, at, taken.pop(at))
            continue
        size = rng.choice((1, 2, 3, 5, 7, 100, rng.randrange(1, 3000)))
        at = machine.call(packing.take_words, size)
        assert at >= 0
        assert at + size <= len(machine.t.words)
        assert all(at + size <= other or other + taken[other] <= at for other in taken)
        taken[at] = size
        for place in (at, at + size - 1):
            machine.t.words[place] = -7
    for at, size in taken.items():
        packing.give_words(machine.t, at, size)
    assert machine.row("store").words_live == 0
    used = machine.row("store").words
    assert machine.call(packing.take_words, 5) < used


def test_what_waiting_requests_refer_to_outlives_compacting() -> None:
    machine = Machine()
    machine.grow("requests", 64)
    rng = random.Random(3)
    request = BY_KEY[0, "request"]
    bodies = [Encoder(request, 9).encode(Narrow(rng, 9, True).body(request["fields"])) for _ in range(30)]
    for row, data in enumerate(bodies):
        machine.read(0, 9, "request", data, 0, len(data))
        machine.call(texts.text, b"gone %d" % row, 0, 6, 0)
        machine.call(packing.keep, row)
    before = machine.row("store").texts
    texts.unmark(machine.t)
    for row in range(len(bodies)):
        packing.mark_request(machine.t, row)
    texts.compact(machine.t)
    for row in range(len(bodies)):
        packing.move_request(machine.t, row)
    assert machine.row("store").texts < before
    for row, data in enumerate(bodies):
        store = machine.row("store")
        store.call_names = store.call_rows = 0
        machine.row("facts", 1).clean = 0
        machine.call(calls.join, row, 0)
        assert call(machine, 0) == expected(body(0, 9, "request", data), None)


def test_texts_that_connections_and_requests_have_outlive_a_collection_and_others_do_not() -> None:
    machine = Machine()
    names = {}
    for name in (b"gone", b"client", b"librdkafka", b"2.3", b"gone too", b"alice", b"asker"):
        names[name] = machine.call(texts.text, name, 0, len(name), 0)
    conn, other = machine.row("conns", 1), machine.row("conns", 0)
    machine.row("pools", CONNS).used = machine.row("pools", REQUESTS).used = 2
    fields = (
        "mechanism",
        "user",
        "software",
        "software_version",
        "client_id",
        "hello",
    )
    for field in fields:
        setattr(conn, field, -1)
        setattr(other, field, names[b"gone"])
    conn.number, conn.client_id, conn.software, conn.software_version, conn.user = (
        1, names[b"client"], names[b"librdkafka"], names[b"2.3"], names[b"alice"]
    )  # fmt: skip
    data = Encoder(BY_KEY[11, "request"], 5).encode(
        {"group_id": "billing", "session_timeout_ms": 1, "rebalance_timeout_ms": 1, "member_id": "m-1",
         "group_instance_id": None, "protocol_type": "consumer", "protocols": []}
    )  # fmt: skip
    machine.read(11, 5, "request", data, 0, len(data))
    machine.call(packing.keep, 1)
    waiting, free = machine.row("requests", 1), machine.row("requests", 0)
    waiting.conn, waiting.client_id, free.conn, free.client_id = 1, names[b"asker"], -1, names[b"gone too"]
    waiting.software = waiting.software_version = -1
    compact_texts(machine.t)
    assert [machine.text(getattr(conn, field)) for field in fields] == [
        None, "alice", "librdkafka", "2.3", "client", None
    ]  # fmt: skip
    assert machine.text(waiting.client_id) == "asker"
    assert (machine.text(waiting.group), machine.text(waiting.member)) == ("billing", "m-1")
    kept = {machine.text(at) for at in range(machine.row("store").texts)}
    assert kept == {"client", "librdkafka", "2.3", "alice", "asker", "billing", "m-1"}
