"""Sums of record data against `tests.oracle.records`: batches and messages of every kind, one behind the
other, cut short and damaged; and the checksums, against other implementations and published values."""

from __future__ import annotations

import random
import sys
import zlib
from pathlib import Path
from struct import pack
from typing import Any

import pytest
from body_machine import Machine, codecs, number
from crc32c import crc32c as package_crc32c

from kwsniff.engine.steps import CODEC_UNKNOWN, CUT_SHORT, MALFORMED, sum_up
from kwsniff.native import octets
from tests.oracle.records import RecordsSummary, summarize

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "spec"))
from record_bytes import batch, message


def summary(machine: Machine, data: bytes, is_request: bool, verify: bool) -> dict[str, Any]:
    buffer = b"\x02\x02" + data + b"\x02" * 70
    row = machine.t.rows[0]
    base = sum_up(buffer, 2, 2 + len(data), is_request, verify, row)
    row = machine.row("rows")
    return {
        "records": number(row.records), "bytes": row.bytes, "codec": codecs(row.codecs),
        "base_offset": number(base), "mismatches": row.mismatches, "damage": row.damage,
    }  # fmt: skip


def expected(found: RecordsSummary, is_request: bool) -> dict[str, Any]:
    damage = CUT_SHORT if found.partial and is_request else 0
    damage |= {None: 0, "batch_malformed": MALFORMED, "codec_unknown": CODEC_UNKNOWN}[found.malformed]
    return {
        "records": found.records, "bytes": found.bytes, "codec": found.codec,
        "base_offset": found.base_offset, "mismatches": found.crc_mismatches, "damage": damage,
    }  # fmt: skip


def piece(rng: random.Random) -> bytes:
    magic = rng.choice((0, 1, 2, 2, 2))
    codec = rng.choice((0, 0, 0, 1, 2, 3, 4, 5, 7))
    crc = rng.choice((None, None, None, 5))
    if magic < 2:
        return message(magic, rng.randbytes(rng.randrange(40)), attributes=codec, crc=crc)
    payload = rng.randbytes(rng.choice((0, 20, 300)))
    count = rng.choice((0, 1, len(payload) // 7, 50, -1))
    attributes, base_offset = codec | rng.choice((0, 0x10, 0x30)), rng.choice((0, 1 << 40))
    return batch(payload, count, attributes=attributes, base_offset=base_offset, crc=crc)


@pytest.mark.parametrize("seed", range(40))
def test_record_data_of_any_kind_is_summed_up_as_before(seed: int) -> None:
    machine, rng = Machine(), random.Random(seed)
    for _ in range(25):
        data = b"".join(piece(rng) for _ in range(rng.choice((0, 1, 1, 2, 3))))
        if rng.random() < 0.3:
            data = data[: rng.randrange(len(data) + 1)]
        if data and rng.random() < 0.3:
            wrong = bytearray(data)
            wrong[rng.randrange(len(wrong))] = rng.choice((0, 1, 2, 3, 0x7F, 0xFF))
            data = bytes(wrong)
        for is_request in (False, True):
            verify = rng.random() < 0.8
            found = summary(machine, data, is_request, verify)
            assert found == expected(summarize(data, 0, len(data), verify_crc=verify), is_request), data.hex()


HEADER = pack(">qi", 0, 48) + b"\x00\x00\x00\x00\x02" + bytes(80)
WHOLE = batch(b"r" * 70, 10)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (WHOLE, {"records": 10, "bytes": 131, "codec": "none", "base_offset": 7, "mismatches": 0}),
        (batch(b"packed", 900, attributes=4), {"records": 900, "codec": "zstd", "damage": 0}),
        (
            batch(b"", 2, attributes=4, base_offset=100) + batch(b"y" * 30, 4) + batch(b"", 3, attributes=4),
            {"records": 9, "codec": "zstd+none", "base_offset": 100},
        ),
        (batch(b"r" * 10, 1, attributes=0x10) + batch(b"r" * 10, 1, attributes=0x30), {"records": 2}),
        (message(0, offset=41) + message(0, offset=42), {"records": 2, "base_offset": 41, "mismatches": 0}),
        (message(1, attributes=1, offset=9), {"records": None, "base_offset": None, "codec": "gzip"}),
        (message(0) + message(1) + batch(b"r" * 7, 1), {"records": 3, "mismatches": 0}),
        *((WHOLE + WHOLE[:kept], {"records": 10, "damage": CUT_SHORT}) for kept in (1, 12, 16, 17, 61, 80)),
        (pack(">qi", 0, 0), {"records": None, "damage": MALFORMED}),
        (b"", {"records": 0, "bytes": 0, "codec": None, "base_offset": None}),
        (batch(b"r" * 9000, 1, crc=1) + message(1, crc=1), {"mismatches": 2}),
        *(
            (wrong + WHOLE, {"records": None, "damage": MALFORMED})
            for wrong in (
                bytes(200), HEADER, pack(">qi", 0, -1) + bytes(80), pack(">qi", 0, 0), batch(b"r" * 20, -1),
                pack(">qi", 0, 20) + b"\x00\x00\x00\x00\x01" + bytes(80),
                pack(">qi", 0, 40) + b"\x00\x00\x00\x00\x03" + bytes(80), batch(b"r" * 20, 2_000_000_000),
            )
        ),
        (batch(b"r" * 9, 1, attributes=5), {"codec": "unknown", "damage": CODEC_UNKNOWN}),
        (message(1, attributes=7), {"codec": "unknown", "damage": CODEC_UNKNOWN}),
    ],
)  # fmt: skip
def test_sums_are_those_that_can_be_read_off_the_bytes(data: bytes, said: dict[str, Any]) -> None:
    found = summary(Machine(), data, True, True)
    assert {name: found[name] for name in said} == said


def test_a_wrong_checksum_is_not_counted_where_none_is_verified() -> None:
    assert summary(Machine(), batch(b"r" * 9, 1, crc=1), True, False)["mismatches"] == 0


PUBLISHED = [
    (bytes(32), 0x8A9136AA), (b"\xff" * 32, 0x62A8AB43), (bytes(range(32)), 0x46DD794E),
    (bytes(range(31, -1, -1)), 0x113FDB5C), (b"123456789", 0xE3069283), (b"", 0),
]  # fmt: skip


@pytest.mark.parametrize(("data", "crc"), PUBLISHED)
def test_crc32c_is_that_of_rfc_3720(data: bytes, crc: int) -> None:
    assert octets.crc32c(data, 0, len(data)) == crc
    assert octets.crc32c_by_table(data, 0, len(data)) == crc


def test_checksums_of_any_length_and_place_are_those_of_other_implementations() -> None:
    data = random.Random(4).randbytes(300)
    for start in range(9):
        for end in range(start, 300, 7):
            part = data[start:end]
            assert octets.crc32c(data, start, end) == package_crc32c(part)
            assert octets.crc32c_by_table(data, start, end) == package_crc32c(part)
            assert octets.crc32(data, start, end) == zlib.crc32(part)
            assert octets.crc32_by_table(data, start, end) == zlib.crc32(part)
