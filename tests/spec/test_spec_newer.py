"""How far the layout of one version can be trusted with the next: over all of Kafka's history, random
messages of every version but the first are read with the layout of the version before.

`kwsniff.engine.requests.read_newer` rests on it.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from spec_encoder import Encoder, Maker
from spec_tables import RENAMED, messages, versions_of

from kwsniff.spec.binary import DecodeError
from kwsniff.spec.compile import decoder

EXAMPLES = 30
MANY = 100_000


@pytest.fixture(scope="module")
def outcomes() -> Counter[tuple[str, bool]]:
    """How often the layout before fits to the last byte, leaves bytes or fails; and what it says is right."""
    found: Counter[tuple[str, bool]] = Counter()
    for message in messages():
        if message["dir"] == "data" or message["name"] in RENAMED:
            continue
        for version in versions_of(message)[1:]:
            rng = random.Random(f"{message['name']} {message['dir']} {version}")
            found.update(outcome(message, version, rng) for _ in range(EXAMPLES))
    return found


def outcome(message: dict[str, Any], version: int, rng: random.Random) -> tuple[str, bool]:
    body = Maker(rng, version).body(message["fields"])
    data = Encoder(message, version, rng).encode(body)
    try:
        read, after = decoder(message["key"], version - 1, message["dir"])(data, 0, len(data), MANY)
    except DecodeError:
        return "fails", True
    return "fits" if after == len(data) else "leaves bytes", agrees(read, body)


def agrees(read: Any, sent: Any) -> bool:
    """Whether every field that both have is the same."""
    if isinstance(read, dict) and isinstance(sent, dict):
        return all(agrees(read[name], sent[name]) for name in read.keys() & sent.keys())
    if isinstance(read, list) and isinstance(sent, list):
        return len(read) == len(sent) and all(map(agrees, read, sent))
    return bool(read == sent)


def test_what_fits_to_the_last_byte_is_read_right_in_998_of_1000_cases(
    outcomes: Counter[tuple[str, bool]],
) -> None:
    fits, wrong = outcomes["fits", True], outcomes["fits", False]
    assert fits > 5_000
    assert wrong / (fits + wrong) < 0.002


def test_what_leaves_bytes_is_misread_too_often_to_be_said(outcomes: Counter[tuple[str, bool]]) -> None:
    right, wrong = outcomes["leaves bytes", True], outcomes["leaves bytes", False]
    assert wrong / (right + wrong) > 0.1


def test_it_fits_for_more_than_half_of_the_new_versions(outcomes: Counter[tuple[str, bool]]) -> None:
    assert outcomes["fits", True] / outcomes.total() > 0.4
