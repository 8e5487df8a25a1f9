"""Random bodies of every message version: encoded by the tests' own encoder, decoded in every way.

`KWSNIFF_EXAMPLES` sets how many bodies each version gets (3 by default, 8 with `KWSNIFF_TESTS=all`),
`KWSNIFF_SEED` where the random numbers start; the test marked slow takes hundreds.
"""

from __future__ import annotations

import os
import random
import time
import tracemalloc
from typing import Any

import pytest
from spec_encoder import Encoder, Maker
from spec_tables import RENAMED, messages, versions_of

from kwsniff.rows.events import ANOMALIES
from kwsniff.spec import binary
from kwsniff.spec.compile import data_decoder, decode_body, decode_data, layout
from kwsniff.spec.interpret import interpret
from kwsniff.spec.load import catalog
from kwsniff.spec.model import Layout, Message
from tests.oracle.facts import decoder
from tests.strength import ALL

EXAMPLES = int(os.environ.get("KWSNIFF_EXAMPLES", "8" if ALL else "3"))
SEED = os.environ.get("KWSNIFF_SEED", "kwsniff")
MESSAGES = [message for message in messages() if message["name"] not in RENAMED]
IDS = [f"{m['name']}-{m['dir']}" for m in MESSAGES]
every_message = pytest.mark.parametrize("published", MESSAGES, ids=IDS)


def model(published: dict[str, Any]) -> Message:
    if published["dir"] == "data":
        return catalog().data(published["name"])
    return catalog().api(published["key"]).message(published["dir"])


def full(published: dict[str, Any], version: int) -> Any:
    if published["dir"] == "data":
        return data_decoder(published["name"], version)
    return decoder(published["key"], version, published["dir"], "full")


def whole(published: dict[str, Any], version: int, data: bytes) -> dict[str, Any]:
    if published["dir"] == "data":
        return decode_data(published["name"], version, data)
    return decode_body(published["key"], version, published["dir"], data)


def examples(published: dict[str, Any], version: int, count: int) -> Any:
    """(body, bytes) pairs, the same in every run of one seed."""
    rng = random.Random(f"{SEED} {published['name']} {published['dir']} {version}")
    for number in range(count):
        body = Maker(rng, version, rich=number % 4 == 3).body(published["fields"])
        yield body, Encoder(published, version, rng).encode(body)


def check_round_trip(published: dict[str, Any], count: int) -> None:
    message = model(published)
    for version in versions_of(published):
        decode, at = full(published, version), message.at(version)
        for body, data in examples(published, version, count):
            assert whole(published, version, data) == body
            assert interpret(at, data, 0, len(data)) == (body, len(data))
            buffer = b"\xff\x01\x00" + data + b"\x01\x02\x7f\x80\xff" * 9
            assert decode(buffer, 3, 3 + len(data)) == (body, 3 + len(data))


@every_message
def test_what_was_encoded_is_decoded_whole_in_every_way(published):
    check_round_trip(published, EXAMPLES)


@pytest.mark.slow
@every_message
def test_hundreds_of_bodies_are_decoded_whole_in_every_way(published):
    check_round_trip(published, 300)


def outcome(call: Any) -> Any:
    """What decoding gives: the result, or where and why it was refused."""
    try:
        return call()
    except binary.DecodeError as error:
        refusal = error.code, error.path, error.offset
    assert refusal[0] in ANOMALIES
    assert refusal[2] >= 0
    return refusal


def damaged(rng: random.Random, data: bytes, count: int) -> Any:
    """Truncations, flipped bytes and inserted lengths."""
    for _ in range(count):
        yield data[: rng.randrange(len(data))]
        spoiled = bytearray(data)
        for _ in range(rng.choice((1, 1, 3))):
            at = rng.randrange(len(data))
            spoiled[at] = rng.choice((rng.randrange(256), 0xFF, 0x7F, 0x80, 0))
        yield bytes(spoiled)


def check_damage(published: dict[str, Any], bodies: int, damages: int) -> None:
    rng = random.Random(f"{SEED} damage {published['name']} {published['dir']}")
    for version in versions_of(published):
        at, decode = model(published).at(version), full(published, version)
        for _, data in examples(published, version, bodies):
            if not data:
                continue
            for spoiled in damaged(rng, data, damages):
                check_spoiled(published, version, at, decode, spoiled)


def check_spoiled(published: dict[str, Any], version: int, at: Layout, decode: Any, spoiled: bytes) -> None:
    """All decoders agree on it, whether or not the buffer goes on, and within the length of the body."""
    end = len(spoiled)
    oracle = outcome(lambda: interpret(at, spoiled, 0, end))
    assert repr(outcome(lambda: decode(spoiled, 0, end))) == repr(oracle)
    longer = spoiled + bytes(range(256)) * 2
    assert repr(outcome(lambda: decode(longer, 0, end))) == repr(oracle)
    if published["dir"] == "data":
        return
    facts = decoder(published["key"], version, published["dir"], "facts")
    found = outcome(lambda: facts(longer, 0, end))
    if len(oracle) == 2:
        assert len(found) == 2
        assert found[1] == oracle[1]
    elif len(found) == 2:
        assert found[1] <= end


@every_message
def test_damaged_bodies_are_refused_or_decoded_alike_by_all_decoders(published):
    check_damage(published, bodies=2, damages=10 if ALL else 5)


@pytest.mark.slow
@every_message
def test_heavily_damaged_bodies_are_refused_or_decoded_alike_by_all_decoders(published):
    check_damage(published, bodies=12, damages=30)


@every_message
def test_every_truncation_is_refused(published):
    """The last version of each message, cut at every byte."""
    version = versions_of(published)[-1]
    for _, data in examples(published, version, 2):
        for end in range(min(len(data), 400)):
            with pytest.raises(binary.DecodeError):
                whole(published, version, data[:end])
            with pytest.raises(binary.DecodeError):
                full(published, version)(data, 0, end)


@pytest.mark.parametrize("number", [0x7FFFFFFF, 0x00FFFFFF])
def test_an_array_that_claims_too_many_elements_is_refused_at_once(number):
    body = number.to_bytes(4, "big") + b"\0" * 100_000
    started = time.thread_time()
    for projection in ("full", "facts"):
        with pytest.raises(binary.DecodeError) as refused:
            decoder(3, 1, "request", projection)(body, 0, len(body))
        assert (refused.value.code, refused.value.path) == ("array_too_long", "topics")
    assert time.thread_time() - started < 1


def test_nested_arrays_cannot_multiply_the_work():
    """Each of 30,000 claimed topics claims as many partitions: refused without looping over them."""
    inner = (2).to_bytes(2, "big") + b"ab" + (30_000).to_bytes(4, "big")
    body = (30_000).to_bytes(4, "big") + inner * 30_000
    buffer = body + inner * 7_500_000
    started = time.thread_time()
    for projection in ("full", "facts"):
        with pytest.raises(binary.DecodeError):
            decoder(21, 0, "request", projection)(buffer, 0, len(body))
    assert time.thread_time() - started < 0.5


@pytest.mark.parametrize(("version", "length"), [(1, "7fffffff"), (2, "ffffffff07")])
def test_a_length_beyond_the_message_copies_nothing(version, length):
    """The token claims 2 GB; the buffer goes on for 32 MB behind the message."""
    body = bytes.fromhex(length) + b"token"
    buffer = body + bytes(32 << 20)
    for projection in ("full", "facts"):
        decode = decoder(36, version, "request", projection)
        tracemalloc.start()
        with pytest.raises(binary.DecodeError, match="truncated_body at auth_bytes"):
            decode(buffer, 0, len(body))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 1 << 20


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_kind_of_buffer_will_do(kind):
    buffer = b"zz" + bytes.fromhex("0001 0002 6162") + b"zz"
    assert decoder(17, 0, "response", "full")(kind(b"zz\0\0\0\0\0\1\0\2abzz"), 2, 12) == (
        {"error_code": 0, "mechanisms": ["ab"]},
        12,
    )
    assert decoder(17, 0, "request", "full")(kind(buffer), 4, 8) == ({"mechanism": "ab"}, 8)


def test_layouts_of_unknown_messages_are_refused_by_name():
    with pytest.raises(binary.DecodeError, match="unknown_api"):
        layout(max(catalog().apis) + 1, 0, "request")
    with pytest.raises(binary.DecodeError, match="unknown_version"):
        decode_body(3, catalog().api(3).max_version + 1, "request", b"")
    with pytest.raises(binary.DecodeError, match="unknown_version"):
        decode_data("OffsetCommitValue", catalog().data("OffsetCommitValue").versions.last + 1, b"")
    with pytest.raises(ValueError, match="direction"):
        decode_body(3, 13, "reply", b"")
    with pytest.raises(KeyError):
        decode_data("NoSuchRecord", 0, b"")
