"""What is wrong with bodies and record data: each code, in its words and at its packet."""

from __future__ import annotations

import gzip
from struct import pack
from typing import Any

import pytest

from tests.playbook import Play, anomaly, handshake, play, request, response
from tests.spec.record_bytes import batch, message, record, text

PRODUCE, FETCH, DESCRIBE_GROUPS, DELETE_GROUPS, HEARTBEAT = 0, 1, 15, 42, 68
NO_TAGS = b"\0"
ONE = pack(">i", 1)


def sized(data: bytes) -> bytes:
    return pack(">i", len(data)) + data


def produced(*records: bytes, acks: int = 1) -> bytes:
    """The body of a Produce request of version 3, its partitions those of `a` from 0 on."""
    partitions = b"".join(pack(">i", index) + sized(data) for index, data in enumerate(records))
    return pack(">hhi", -1, acks, 1000) + ONE + text("a") + pack(">i", len(records)) + partitions


def fetched(records: bytes) -> bytes:
    """The body of a Fetch response of version 4."""
    partition = pack(">ihqqi", 3, 0, 9, 9, -1) + sized(records)
    return pack(">i", 0) + ONE + text("a") + ONE + partition


GOOD = batch(record(), 1)
BAD_CRC = batch(record(), 1, crc=1)
SHORT = GOOD[:-1]
MALFORMED = batch(record(), 1000)
STRANGE = batch(record(), 1, attributes=7)
DAMAGE = [
    (BAD_CRC, [("crc_mismatch", "1 of a-0")]),
    (BAD_CRC + BAD_CRC, [("crc_mismatch", "2 of a-0")]),
    (SHORT, [("batch_malformed", "batch of a-0 cut short")]),
    (MALFORMED, [("batch_malformed", "record data of a-0")]),
    (STRANGE, [("codec_unknown", "record data of a-0")]),
    (
        STRANGE + SHORT,
        [("batch_malformed", "batch of a-0 cut short"), ("codec_unknown", "record data of a-0")],
    ),
    (BAD_CRC + MALFORMED, [("crc_mismatch", "1 of a-0"), ("batch_malformed", "record data of a-0")]),
    (GOOD, []),
]  # fmt: skip


def started(**choices: Any) -> Play:
    return play(**choices) >> handshake()


def expect(script: Play, emitted: list[tuple[str, str]], packet: int) -> None:
    for code, detail in emitted:
        script = script << anomaly(code, detail=detail, packet=packet)
    assert [row["code"] for row in script.events() if row["event"] == "anomaly"] == [
        code for code, _ in emitted
    ]


@pytest.mark.parametrize("topics", [None, frozenset(("status", "detail"))])
@pytest.mark.parametrize(("records", "emitted"), DAMAGE)
def test_record_data_that_a_producer_sends(
    records: bytes, emitted: list[tuple[str, str]], topics: frozenset[str] | None
) -> None:
    expect(started(columns=topics) >> request(PRODUCE, 1, 3, produced(records)), emitted, 4)


@pytest.mark.parametrize(("records", "emitted"), DAMAGE)
def test_record_data_that_wants_no_answer(records: bytes, emitted: list[tuple[str, str]]) -> None:
    expect(started() >> request(PRODUCE, 1, 3, produced(records, acks=0)), emitted, 4)


@pytest.mark.parametrize(
    ("records", "emitted"),
    [
        (BAD_CRC, [("crc_mismatch", "1 of a-3")]),
        (GOOD + SHORT, []),  # brokers cut by bytes
        (MALFORMED, [("batch_malformed", "record data of a-3")]),
        (STRANGE, [("codec_unknown", "record data of a-3")]),
    ],
)
def test_record_data_that_a_broker_sends(records: bytes, emitted: list[tuple[str, str]]) -> None:
    asked = pack(">iiiib", -1, 500, 1, 1000, 0) + pack(">i", 0)
    script = started() >> request(FETCH, 1, 4, asked) >> response(1, body=fetched(records))
    expect(script, emitted, 5)


def test_more_damage_in_one_request_than_notes_have_room_for_at_first() -> None:
    # Interpreted tables begin with 64 rows.
    script = started(kernels="never") >> request(PRODUCE, 1, 3, produced(*[BAD_CRC] * 300))
    expect(script, [("crc_mismatch", f"1 of a-{index}") for index in range(300)], 4)


@pytest.mark.parametrize(
    ("body", "code", "detail"),
    [
        (ONE + pack(">h", 9) + b"ab", "truncated_body", "request groups[0], offset 6"),
        (ONE + text("ab") + b"\0", "trailing_bytes", "1 bytes after the request body"),
        (ONE + pack(">h", -1), "length_invalid", "request groups[0], offset 4"),
        (pack(">i", 1000) + text("ab"), "array_too_long", "request groups, offset 4"),
        (ONE + b"\0\2\xc3\x28", "text_invalid", "request groups[0], offset 6"),
        (pack(">i", 3) + text("ab") * 3, "element_limit", "request"),
    ],
)
def test_a_request_that_cannot_be_read(body: bytes, code: str, detail: str) -> None:
    script = started(max_elements=2) >> request(DESCRIBE_GROUPS, 1, 0, body)
    expect(script, [(code, detail)], 4)


def test_a_number_that_does_not_end() -> None:
    script = started() >> request(DELETE_GROUPS, 1, 2, NO_TAGS + b"\xff" * 9)
    expect(script, [("varint_too_long", "request groups_names, offset 0")], 4)


def test_a_marker_that_is_none() -> None:
    asked = NO_TAGS + b"\2g\2m" + pack(">i", 0) + b"\0\0" + pack(">i", -1) + b"\0\0\0" + NO_TAGS
    emitted = NO_TAGS + pack(">ih", 0, 0) + b"\0\0" + pack(">ii", 1, 1) + b"\5" + NO_TAGS
    script = started() >> request(HEARTBEAT, 1, 0, asked) >> response(1, body=emitted)
    expect(script, [("value_invalid", "response assignment, offset 16")], 5)


def nested(depth: int) -> bytes:
    """A message of magic 0 inside so many compressed ones."""
    made = message(0)
    for _ in range(depth):
        made = message(0, gzip.compress(made), attributes=1)
    return made


@pytest.mark.parametrize(
    ("records", "code", "where", "choices"),
    [
        (batch(b"no gzip", 1, attributes=1), "codec_failed", "record batch of a at offset 7", {}),
        (
            batch(gzip.compress(record(value=bytes(5000))), 1, attributes=1), "decompressed_size_limit",
            "record batch of a at offset 7", {"max_decompressed_bytes": 2000},
        ),
        (
            batch(gzip.compress(record(value=bytes(5000))), 1, attributes=1), "decompression_ratio_limit",
            "record batch of a at offset 7", {"max_decompression_ratio": 3},
        ),
        (nested(4), "nesting_limit", "record batch of a", {"max_nesting": 2}),
        (batch(record() + b"\0", 1), "trailing_bytes", "record batch of a at offset 7", {}),
    ],
)  # fmt: skip
def test_what_only_records_that_are_shown_tell(
    records: bytes, code: str, where: str, choices: dict[str, Any]
) -> None:
    script = started(full=True, records=True, **choices)
    expect(script >> request(PRODUCE, 1, 3, produced(records)), [(code, where)], 4)


def test_a_text_that_only_what_is_shown_needs_costs_no_more_than_what_is_shown() -> None:
    """Alone the JSON of a body whose error message is not text is missing."""
    emitted = NO_TAGS + pack(">ih", 0, 0) + b"\3\xc3\x28\0" + pack(">ii", 1, 1) + b"\xff" + NO_TAGS
    asked = NO_TAGS + b"\2g\2m" + pack(">i", 0) + b"\0\0" + pack(">i", -1) + b"\0\0\0" + NO_TAGS
    script = started(full=True) >> request(HEARTBEAT, 1, 0, asked) >> response(1, body=emitted)
    expect(script, [("text_invalid", "response error_message, offset 7")], 5)
    [call] = [row for row in script.events() if row["event"] == "call"]
    assert (call["status"], call["error_code"], call["response"]) == ("ok", 0, None)
    assert '"group_id":"g"' in call["request"]
