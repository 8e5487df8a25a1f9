"""`summarize`: hand-made batches, so that every expected value is visible in the test."""

import struct
import time

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st
from record_bytes import NOON, batch, message

from tests.oracle.records import RecordsSummary, summarize

# The check value of CRC-32C (RFC 3720, B.4: 32 bytes of zeros) pins the polynomial.
assert crc32c(bytes(32)) == 0x8A9136AA


def whole(data, **options):
    """Summarize `data` inside a longer buffer: nothing outside the span may matter."""
    return summarize(b"\x00\x00\x00" + data + b"\xff" * 80, 3, 3 + len(data), **options)


def test_one_batch_gives_count_size_codec_and_offset():
    data = batch(b"r" * 70, 10)
    assert whole(data) == RecordsSummary(10, 131, "none", 7, 1, False, 0, None, 0, False, (2,), NOON)


@pytest.mark.parametrize(("bits", "name"), [(1, "gzip"), (2, "snappy"), (3, "lz4"), (4, "zstd")])
def test_the_codec_is_read_from_the_attributes_and_the_payload_left_alone(bits, name):
    summary = whole(batch(b"not compressed at all", 900, attributes=bits))
    assert (summary.codec, summary.records, summary.malformed) == (name, 900, None)


def test_several_batches_are_summed_and_codecs_joined_in_order_of_appearance():
    data = batch(b"x" * 20, 2, attributes=4, base_offset=100) + batch(b"y" * 30, 4, base_offset=102)
    data += batch(b"z" * 20, 3, attributes=4, times=(NOON, NOON + 9))
    summary = whole(data)
    assert summary.records == 9
    assert summary.codec == "zstd+none"
    assert summary.base_offset == 100
    assert summary.batches == 3
    assert summary.max_timestamp == NOON + 9


def test_transactional_and_control_batches_are_noticed():
    summary = whole(batch(b"r" * 10, 1, attributes=0x10) + batch(b"r" * 10, 1, attributes=0x30))
    assert (summary.transactional, summary.control, summary.records) == (True, 1, 2)
    assert whole(batch(b"r" * 10, 1, attributes=0x10)).transactional
    assert whole(batch(b"r" * 10, 1, attributes=0x20)).control == 1


@pytest.mark.parametrize("magic", [0, 1])
def test_plain_old_messages_are_counted_one_by_one(magic):
    summary = whole(message(magic, offset=41) + message(magic, offset=42) + message(magic, offset=43))
    assert (summary.records, summary.base_offset, summary.magics) == (3, 41, (magic,))
    assert summary.crc_mismatches == 0
    assert summary.max_timestamp == (NOON if magic else None)


@pytest.mark.parametrize("magic", [0, 1])
def test_the_count_and_first_offset_of_a_compressed_wrapper_are_unknown(magic):
    summary = whole(message(magic, attributes=1, offset=9))
    assert (summary.records, summary.base_offset, summary.codec) == (None, None, "gzip")
    assert summary.malformed is None


def test_formats_may_follow_one_another():
    summary = whole(message(0) + message(1) + batch(b"r" * 7, 1))
    assert (summary.magics, summary.records, summary.crc_mismatches) == ((0, 1, 2), 3, 0)


@pytest.mark.parametrize("kept", [1, 11, 12, 16, 17, 30, 61, 80])
def test_a_last_batch_cut_short_is_partial_and_not_counted(kept):
    summary = whole(batch(b"r" * 7, 1) + batch(b"r" * 20, 2)[:kept])
    assert (summary.partial, summary.records, summary.batches, summary.malformed) == (True, 1, 1, None)
    assert summary.bytes == 68 + kept


def test_no_data_is_no_batch():
    assert summarize(b"abc", 2, 2) == RecordsSummary(0, 0, None, None, 0, False, 0, None, 0, False, (), None)


@pytest.mark.parametrize(
    "data",
    [batch(b"r" * 7, 1, crc=1), batch(b"r" * 9000, 1, crc=1), message(0, crc=1), message(1, crc=1)],
)
def test_a_wrong_crc_is_counted_unless_crcs_are_not_verified(data):
    assert whole(data).crc_mismatches == 1
    assert whole(data + data).crc_mismatches == 2
    assert whole(data, verify_crc=False).crc_mismatches == 0
    assert whole(data + data, verify_crc=False).crc_mismatches == 0


@pytest.mark.parametrize(
    "data",
    [
        bytes(200),
        struct.pack(">qi", 0, -1) + b"\x00" * 80,
        struct.pack(">qi", 0, 48) + b"\x00\x00\x00\x00\x02" + bytes(80),
        struct.pack(">qi", 0, 20) + b"\x00\x00\x00\x00\x01" + bytes(80),
        struct.pack(">qi", 0, 40) + b"\x00\x00\x00\x00\x03" + bytes(80),
        struct.pack(">qi", 0, 0),
        batch(b"r" * 20, -1),
        batch(b"r" * 20, 2_000_000_000),
    ],
)
def test_a_header_that_contradicts_itself_is_malformed_and_ends_the_reading(data):
    summary = whole(data + batch(b"r" * 7, 1))
    assert (summary.malformed, summary.records) == ("batch_malformed", None)


@pytest.mark.parametrize("data", [batch(b"r" * 9, 1, attributes=5), message(1, attributes=7)])
def test_a_codec_outside_the_known_ones_is_named_unknown(data):
    summary = whole(data)
    assert (summary.codec, summary.malformed) == ("unknown", "codec_unknown")


def test_a_span_beyond_the_buffer_is_taken_as_cut_short():
    data = batch(b"r" * 7, 1)
    assert summarize(data, 0, len(data) + 5).records == 1
    assert summarize(data[:-1], 0, len(data)).partial
    assert summarize(data[:30], 0, len(data)).partial


@given(st.data())
def test_damage_anywhere_is_reported_and_never_raised(data):
    sample = batch(b"r" * 30, 3) + message(1) + batch(b"r" * 20, 2, attributes=0x30)
    where = data.draw(st.integers(0, len(sample) - 1))
    flipped = bytearray(sample)
    flipped[where] ^= data.draw(st.integers(1, 255))
    cut = data.draw(st.integers(0, len(sample)))
    summary = summarize(bytes(flipped)[:cut], 0, cut)
    assert summary.bytes == cut
    assert summary.records is None or 0 <= summary.records <= cut


def test_a_megabyte_of_smallest_messages_takes_linear_time():
    smallest = message(0, b"")
    begun = time.thread_time()
    summary = whole(smallest * 40_000)
    assert summary.records == 40_000
    assert time.thread_time() - begun < 5
