"""Batches and records: what other implementations wrote comes out again; damage is told, never more."""

import base64
import gzip
import json
import struct
from pathlib import Path

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from record_bytes import NOON, batch, message, record, zigzag

from kwsniff.config import Config
from kwsniff.rows.events import ANOMALIES
from kwsniff.spec.batches import batches, records
from kwsniff.spec.binary import DecodeError
from tests.strength import examples

FIXTURES = json.loads((Path(__file__).parents[1] / "data/records/batches.json").read_text())
BATCHES = FIXTURES["batches"]


def raw(text):
    return None if text is None else base64.b64decode(text)


def expected(magic):
    """The records that were given to the implementations, as each magic keeps them."""
    for offset, (timestamp, key, value, headers) in enumerate(FIXTURES["records"]):
        kept = tuple((name, raw(data)) for name, data in headers) if magic == 2 else ()
        yield offset, timestamp if magic else None, raw(key), raw(value), kept


def read(data, config=Config()):  # noqa: B008
    return [r for b in batches(data, 0, len(data), config) for r in records(data, b, config)]


def failure(data, config=Config()):  # noqa: B008
    with pytest.raises(DecodeError) as caught:
        read(data, config)
    return caught.value.code


@pytest.mark.parametrize("fixture", BATCHES, ids=lambda fixture: fixture["name"])
def test_records_of_other_implementations_come_out_as_they_went_in(fixture):
    data = raw(fixture["data"])
    found = read(data)
    assert [r[:5] for r in found] == list(expected(fixture["magic"]))
    assert {r.crc_ok for r in found} == ({None} if fixture["magic"] == 2 else {True})


@pytest.mark.parametrize("fixture", BATCHES, ids=lambda fixture: fixture["name"])
def test_their_headers_say_what_they_were_told_to_write(fixture):
    data = raw(fixture["data"])
    magic, codec = fixture["magic"], fixture["codec"]
    found = list(batches(data, 0, len(data), Config()))
    assert {b.magic for b in found} == {magic}
    assert {b.codec_name for b in found} == {codec}
    assert all(b.crc_ok for b in found)
    producer_id = None if magic < 2 else fixture.get("ids", [-1])[0]
    assert {b.producer_id for b in found} == {producer_id}
    assert found[0].transactional == ("ids" in fixture)
    counts = [b.record_count for b in found]
    wrapped = magic < 2 and codec != "none"
    assert set(counts) == {None} if wrapped else sum(counts) == len(FIXTURES["records"])
    assert sum(b.size for b in found) == len(data)


def test_the_ids_of_a_transactional_producer_are_read():
    fixture = next(f for f in BATCHES if "ids" in f)
    data = raw(fixture["data"])
    [found] = batches(data, 0, len(data), Config())
    assert [found.producer_id, found.producer_epoch, found.base_sequence] == fixture["ids"]
    assert found.transactional


def test_every_field_of_a_batch_header_is_read():
    data = batch(record(0) + record(1), 2, attributes=0x78, base_offset=100, times=(5, 9), ids=(11, 12, 13))
    [found] = batches(b"---" + data, 3, 3 + len(data), Config())
    assert found == (
        *(3, 3 + len(data), 2, 100, 101, 0, True, 2, "log_append", 5, 9, 0, 11, 12, 13),
        *(True, True, True, False, None),
    )
    assert found.size == len(data)


def test_offsets_and_times_count_from_those_of_the_batch():
    data = batch(record(3, time=-2) + record(900, time=86_400_000), 2, base_offset=50, times=(NOON, NOON))
    assert [(r.offset, r.timestamp) for r in read(data)] == [(53, NOON - 2), (950, NOON + 86_400_000)]


def test_a_broker_that_stamps_records_stamps_all_of_a_batch_alike():
    data = batch(record(0, time=0) + record(1, time=7), 2, attributes=0x08, times=(NOON, NOON + 50))
    assert [r.timestamp for r in read(data)] == [NOON + 50, NOON + 50]


def test_null_and_empty_keys_values_and_headers_are_told_apart():
    [found] = read(batch(record(0, None, b"", [(b"a", None), (b"a", b""), (b"", b"x")]), 1))
    assert (found.key, found.value) == (None, b"")
    assert found.headers == (("a", None), ("a", b""), ("", b"x"))


def test_a_header_name_that_is_no_utf_8_is_shown_with_replacements():
    [found] = read(batch(record(0, headers=[(b"\xffx", b"")]), 1))
    assert found.headers == (("�x", b""),)


def test_successive_batches_of_all_formats_are_read_one_after_the_other():
    data = (
        message(0, b"a", offset=1)
        + message(1, b"b", offset=2)
        + batch(record(0, value=b"c"), 1, base_offset=3)
    )
    assert [(r.offset, r.value) for r in read(data)] == [(1, b"a"), (2, b"b"), (3, b"c")]


@pytest.mark.parametrize("kept", [5, 12, 17, 60, 65])
def test_a_partial_last_batch_is_told_with_what_was_read_of_it(kept):
    data = batch(record(0), 1) + batch(record(0), 1, base_offset=8)[:kept]
    *whole, last = batches(data, 0, len(data), Config())
    assert len(whole) == 1
    assert last.partial
    assert last.size == kept
    assert last.base_offset == (8 if kept >= 12 else None)
    assert last.magic == (2 if kept >= 17 else None)


def test_a_wrong_crc_is_reported_and_the_records_are_read_all_the_same():
    data = batch(record(0, value=b"kept"), 1, crc=1)
    [found] = batches(data, 0, len(data), Config())
    assert found.crc_ok is False
    assert [r.value for r in records(data, found, Config())] == [b"kept"]
    [unverified] = batches(data, 0, len(data), Config(verify_crc=False))
    assert unverified.crc_ok is None


# Wrappers of magic 0 and 1


def wrap(magic, inside, *, offset, codec=1, **more):
    content = gzip.compress(inside) if codec == 1 else lz4.frame.compress(inside)
    return message(magic, content, offset=offset, attributes=codec | more.pop("attributes", 0), **more)


def test_offsets_in_a_wrapper_of_magic_1_count_back_from_the_wrappers_own():
    inside = b"".join(message(1, b"%d" % n, offset=n) for n in range(3))
    assert [r.offset for r in read(wrap(1, inside, offset=102))] == [100, 101, 102]


def test_compaction_leaves_holes_in_the_relative_offsets():
    inside = message(1, b"a", offset=2) + message(1, b"b", offset=9)
    assert [r.offset for r in read(wrap(1, inside, offset=109))] == [102, 109]


def test_offsets_in_a_wrapper_of_magic_0_are_their_own():
    inside = message(0, b"a", offset=40) + message(0, b"b", offset=41)
    assert [r.offset for r in read(wrap(0, inside, offset=41))] == [40, 41]


def test_a_wrapper_with_time_from_the_broker_gives_it_to_what_is_inside():
    inside = message(1, b"a", offset=0, timestamp=1) + message(1, b"b", offset=1, timestamp=2)
    data = wrap(1, inside, offset=1, attributes=0x08, timestamp=NOON)
    assert [r.timestamp for r in read(data)] == [NOON, NOON]
    assert [r.timestamp for r in read(wrap(1, inside, offset=1, timestamp=NOON))] == [1, 2]


@pytest.mark.parametrize("magic", [0, 1])
def test_wrappers_may_wrap_wrappers(magic):
    inner = wrap(magic, message(magic, b"a", offset=0) + message(magic, b"b", offset=1), offset=1, codec=3)
    data = wrap(magic, inner, offset=1)
    assert [(r.offset, r.value) for r in read(data)] == [(0, b"a"), (1, b"b")]


def test_wrappers_in_wrappers_beyond_the_limit_are_not_opened():
    data = message(1, b"deep", offset=0)
    for _ in range(3):
        data = wrap(1, data, offset=0)
    assert [r.value for r in read(data, Config(max_nesting=3))] == [b"deep"]
    assert failure(data, Config(max_nesting=2)) == "nesting_limit"


def test_all_wrappers_in_one_message_share_one_allowance():
    inside = b"".join(wrap(0, message(0, bytes(3000), offset=n), offset=n) for n in range(10))
    data = wrap(0, inside, offset=9)
    assert len(read(data, Config(max_decompressed_bytes=40_000))) == 10
    assert failure(data, Config(max_decompressed_bytes=20_000)) == "decompressed_size_limit"


def test_a_wrong_crc_inside_a_wrapper_is_told_of_that_record():
    inside = message(1, b"a", offset=0, crc=7) + message(1, b"b", offset=1)
    assert [r.crc_ok for r in read(wrap(1, inside, offset=1))] == [False, True]


@pytest.mark.parametrize(
    "inside",
    [
        b"\0",
        message(1)[:-1],
        message(1) + b"\0" * 30,
        struct.pack(">qi", 0, -40) + bytes(40),
        batch(record(0), 1),
    ],
)
def test_a_wrapper_around_something_else_is_malformed(inside):
    assert failure(wrap(1, inside, offset=0)) == "batch_malformed"


def test_a_wrapper_without_value_is_malformed():
    assert failure(message(1, None, attributes=1)) == "batch_malformed"


# Damage inside a batch


@pytest.mark.parametrize(
    ("payload", "count", "code"),
    [
        (record(0) + record(1)[:-1], 2, "batch_malformed"),
        (record(0) + b"\0" * 7, 1, "trailing_bytes"),
        (zigzag(-5) + bytes(9), 1, "batch_malformed"),
        (zigzag(2) + bytes(9), 1, "batch_malformed"),
        (zigzag(8) + b"\0\0\0" + zigzag(-2) + bytes(9), 1, "batch_malformed"),
        (zigzag(8) + b"\0\0\0" + zigzag(50) + bytes(9), 1, "batch_malformed"),
        (zigzag(8) + b"\0\0\0\0\0" + zigzag(40) + bytes(9), 1, "batch_malformed"),
        (zigzag(8) + b"\0\0\0\0\0" + zigzag(1) + zigzag(-1) + bytes(9), 1, "batch_malformed"),
        (b"\xff" * 12, 1, "varint_too_long"),
    ],
)
def test_records_that_contradict_their_batch_are_told(payload, count, code):
    assert failure(batch(payload, count)) == code


def test_the_records_before_the_damage_are_delivered():
    data = batch(record(0, value=b"good") + b"\xff" * 12, 2)
    [found] = batches(data, 0, len(data), Config())
    reader = records(data, found, Config())
    assert next(reader).value == b"good"
    with pytest.raises(DecodeError) as caught:
        next(reader)
    assert caught.value.path == "records[1]"


def test_a_count_that_the_decompressed_bytes_cannot_hold_is_refused_at_once():
    assert failure(batch(gzip.compress(record(0)), 2_000_000_000, attributes=1)) == "batch_malformed"


def test_a_great_number_of_empty_headers_is_refused():
    assert len(read(batch(record(0, headers=[(b"", None)] * 1000), 1))[0].headers) == 1000
    assert failure(batch(record(0, headers=[(b"", None)] * 100_001), 1)) == "batch_malformed"


def test_an_unknown_codec_is_told():
    assert failure(batch(record(0), 1, attributes=6)) == "codec_unknown"


SAMPLE = (
    batch(gzip.compress(record(0) + record(1, headers=[(b"a", b"b")])), 2, attributes=1)
    + wrap(1, message(1, b"x", offset=0) + message(1, b"y", offset=1), offset=1)
    + batch(zstandard.compress(record(0, value=bytes(300))), 1, attributes=4)
    + batch(lz4.frame.compress(record(0, value=bytes(300))), 1, attributes=3)
    + batch(bytes(cramjam.snappy.compress_raw(record(0, value=bytes(300)))), 1, attributes=2)
    + batch(record(0) + record(1), 2)
)


@settings(max_examples=examples(400))
@given(st.data())
def test_damage_anywhere_gives_records_or_a_decode_error_and_nothing_else(data):
    damaged = bytearray(SAMPLE[: data.draw(st.integers(0, len(SAMPLE)))] or b"\0")
    for _ in range(data.draw(st.integers(0, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    config = Config(max_decompressed_bytes=10_000)
    taken = bytes(damaged)
    for found in batches(taken, 0, len(taken), config):
        code, got = None, []
        try:
            got = list(records(taken, found, config))
        except DecodeError as error:
            code = error.code
        assert code is None or code in ANOMALIES
        assert sum(len(r.value or b"") + len(r.key or b"") for r in got) <= 10_000 + len(taken)
