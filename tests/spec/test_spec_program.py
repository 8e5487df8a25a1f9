"""The compiled kernel that reads bodies gives up or says what the generated decoder says: random bodies of
every message version, whole, cut short and damaged."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from spec_encoder import Encoder, Maker
from spec_tables import RENAMED, messages, versions_of

from kwsniff.binary import DecodeError
from kwsniff.config import MAX_ELEMENTS
from kwsniff.engine.bulk import columns as c
from kwsniff.engine.bulk.bodies import bodies
from kwsniff.engine.bulk.numbers import NONE
from kwsniff.engine.bulk.programs import SPEAKS_OF_MORE, Programs
from kwsniff.engine.bulk.texts import CAPACITY, SLOTS
from kwsniff.spec.compile import decoder
from kwsniff.spec.facts import Facts
from kwsniff.spec.load import catalog
from kwsniff.spec.program import HAS_TOPIC_ID, MAX_DEPTH
from kwsniff.spec.runtime import uuid_text

EXAMPLES = 4
MESSAGES = [
    message
    for message in messages()
    if message["name"] not in RENAMED and message["dir"] != "data" and message["key"] not in SPEAKS_OF_MORE
]


class Kernel:
    """Runs the kernel over one body."""

    def __init__(self) -> None:
        programs = Programs()
        for key, api in catalog().apis.items():
            for version in api.versions:
                programs.add(key, version)
        self.code, self.entries = programs.code, programs.entries
        self.rows, self.topics = np.zeros((4096, c.ROW_COLUMNS), np.int64), np.zeros((4096, 2), np.int64)

    def facts(self, key: int, version: int, direction: str, data: bytes) -> Facts | None:
        """What it says, without record data; None if it gives up."""
        buf = np.frombuffer(data + bytes(8), np.uint8)
        frames = np.zeros((2, c.FRAME_COLUMNS), np.int64)
        frames[:, c.KEY], frames[:, c.VERSION], frames[:, c.STOP] = key, version, len(data)
        frames[0, c.PARTNER] = c.NO_REPLY
        if direction == "response":
            frames[0, c.PARTNER], frames[1, c.KEY] = 1, -1
        spans, facts = np.zeros((CAPACITY + 1, 3), np.int64), np.zeros((2, c.FACT_COLUMNS), np.int64)
        at = int(direction == "response")
        done = bodies(
            at, frames[: at + 1], buf, self.code, self.entries, True, True, facts, self.rows, self.topics,
            np.zeros(3, np.int64), spans, np.full(SLOTS, -1, np.int32), np.zeros((CAPACITY, 3), np.int64),
            np.zeros(MAX_DEPTH + 2, np.int64), MAX_ELEMENTS,
        )  # fmt: skip
        assert done == at + 1
        return self._facts(facts[at], spans, data) if facts[at, c.CLEAN] else None

    def _facts(self, fact: Any, spans: Any, data: bytes) -> Facts:
        def text(place: int) -> str | None:
            if place < 0:
                return None
            start, size, kind = spans[place].tolist()
            raw = data[start : start + size]
            return uuid_text(raw) if kind else raw.decode()

        def number(value: int) -> int | None:
            return None if value == NONE else int(value)

        first, count = fact[c.TOPIC_FIRST], fact[c.TOPIC_COUNT]
        topics = self.topics[first : first + count]
        first, count = fact[c.ROW_FIRST], fact[c.ROW_COUNT]
        rows = [
            (text(row[0]), text(row[1]), int(row[2]), number(row[3]))
            for row in self.rows[first : first + count].tolist()
        ]
        ids = [text(uuid) for _, uuid in topics] if fact[c.FLAGS] & HAS_TOPIC_ID else []
        return Facts(
            number(fact[c.ERROR]), int(fact[c.ERRORS]), number(fact[c.THROTTLE]), number(fact[c.ACKS]),
            number(fact[c.MAX_WAIT]), text(fact[c.GROUP]), text(fact[c.MEMBER]),
            text(fact[c.TRANSACTIONAL_ID]), [text(name) for name, _ in topics], ids, rows, None,
        )  # fmt: skip


@pytest.fixture(scope="module")
def kernel() -> Kernel:
    return Kernel()


def expected(key: int, version: int, direction: str, data: bytes) -> Facts | None:
    """The decoder's facts in the same form; None if it refuses."""
    try:
        facts, _ = decoder(key, version, direction, "facts")(data, 0, len(data))
    except DecodeError:
        return None
    rows = [row[:4] for row in facts.partitions or []]
    return facts._replace(
        topics=facts.topics or [], topic_ids=facts.topic_ids or [], partitions=rows, extra=None
    )


def damaged(rng: random.Random, data: bytes) -> bytes:
    wrong = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        wrong[rng.randrange(len(wrong))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
    return bytes(wrong)


@pytest.mark.parametrize("published", MESSAGES, ids=[f"{m['name']}-{m['dir']}" for m in MESSAGES])
def test_the_kernel_says_what_the_decoder_says_or_gives_up(published: dict[str, Any], kernel: Kernel) -> None:
    key, direction = published["key"], published["dir"]
    certain = 0
    for version in versions_of(published):
        rng = random.Random(f"{published['name']} {direction} {version}")
        for _ in range(EXAMPLES):
            body = Maker(rng, version, rich=False).body(published["fields"])
            data = Encoder(published, version, rng).encode(body)
            cuts = [data[: rng.randrange(len(data))] for _ in range(4)] if data else []
            for bytes_ in (data, *cuts, *(damaged(rng, data) for _ in range(4) if data)):
                said = kernel.facts(key, version, direction, bytes_)
                if said is not None:
                    certain += bytes_ is data
                    assert said == expected(key, version, direction, bytes_), (version, bytes_.hex())
    assert certain or not versions_of(published), "the kernel gives up on every body"
