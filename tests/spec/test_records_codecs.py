"""Decompression: compressed by the codecs' own libraries, bounded whatever comes."""

import gzip
import json
import random
import struct
import time
import tracemalloc
import zlib
from base64 import b64decode
from pathlib import Path

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from kwsniff.spec.binary import DecodeError
from kwsniff.spec.codecs import Allowance, decompress, with_lz4_header_checksum, xxh32_short

MIB = 1 << 20
CONTENT = random.Random(7).randbytes(2000) + b"text that repeats " * 3000


def xerial(*blocks):
    packed = [bytes(cramjam.snappy.compress_raw(block)) for block in blocks]
    return b"\x82SNAPPY\0\0\0\0\1\0\0\0\1" + b"".join(struct.pack(">i", len(p)) + p for p in packed)


COMPRESSORS = {
    "gzip": (1, gzip.compress),
    "snappy raw": (2, lambda data: bytes(cramjam.snappy.compress_raw(data))),
    "snappy xerial": (2, lambda data: xerial(*(data[at : at + 9000] for at in range(0, len(data), 9000)))),
    "lz4": (3, lz4.frame.compress),
    "lz4 with content size": (3, lambda data: lz4.frame.compress(data, store_size=True)),
    "lz4 of blocks": (3, lambda data: lz4.frame.compress(data, block_size=4, block_linked=False)),
    "zstd": (4, zstandard.compress),
    "zstd of unstated size": (4, zstandard.ZstdCompressor(write_content_size=False).compress),
}
EVERY_CODEC = pytest.mark.parametrize("name", COMPRESSORS)


def code_of(codec, data, limit=MIB, ratio=10_000, **more):
    with pytest.raises(DecodeError) as caught:
        decompress(codec, data, limit, ratio, **more)
    return caught.value.code


CODES = {"codec_failed", "codec_unknown", "decompressed_size_limit", "decompression_ratio_limit"}


def outcome(codec, data, limit, ratio, **more):
    """Content and code, of which one is None."""
    try:
        return decompress(codec, data, limit, ratio, **more), None
    except DecodeError as error:
        return None, error.code


@EVERY_CODEC
def test_what_a_codecs_own_library_compressed_comes_back(name):
    codec, compress = COMPRESSORS[name]
    assert decompress(codec, compress(CONTENT), MIB, 10_000) == CONTENT
    assert decompress(codec, memoryview(compress(CONTENT)), MIB, 10_000) == CONTENT


@EVERY_CODEC
def test_content_up_to_each_limit_is_given_and_beyond_it_refused(name):
    codec, compress = COMPRESSORS[name]
    data = compress(CONTENT)
    assert decompress(codec, data, len(CONTENT), 10_000) == CONTENT
    assert code_of(codec, data, len(CONTENT) - 1) == "decompressed_size_limit"
    assert code_of(codec, data, MIB, 3) == "decompression_ratio_limit"


BOMB = bytes(64 * MIB)


@EVERY_CODEC
def test_a_bomb_takes_neither_memory_beyond_the_limit_nor_time(name):
    codec, compress = COMPRESSORS[name]
    data = compress(BOMB)
    tracemalloc.start()
    begun = time.thread_time()
    try:
        code = code_of(codec, data, 2 * MIB, 1_000_000)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert code == "decompressed_size_limit"
    assert peak < 2 * 2 * MIB + 2 * len(data) + MIB
    assert time.thread_time() - begun < 2


def test_a_raw_snappy_block_is_not_believed_about_its_size():
    assert code_of(2, b"\xff\xff\xff\xff\x0f" + bytes(10)) == "decompression_ratio_limit"


@EVERY_CODEC
def test_a_cut_stream_fails(name):
    codec, compress = COMPRESSORS[name]
    data = compress(CONTENT)
    for kept in range(0, len(data), 37):
        if name == "snappy xerial" and kept == 0:
            continue
        code = code_of(codec, data[:kept])
        assert code == "codec_failed" or kept < 64, kept


@EVERY_CODEC
@given(position=st.integers(0, 10_000), change=st.integers(1, 255))
def test_a_flipped_byte_gives_content_or_a_decode_error(name, position, change):
    codec, compress = COMPRESSORS[name]
    data = bytearray(compress(CONTENT))
    data[position % len(data)] ^= change
    content, code = outcome(codec, bytes(data), MIB, 10_000)
    assert code in CODES or len(content) <= MIB


@given(codec=st.integers(0, 7), data=st.binary(max_size=300), legacy=st.booleans())
def test_any_bytes_give_content_or_a_decode_error(codec, data, legacy):
    content, code = outcome(codec, data, 5000, 100, legacy=legacy)
    assert code in CODES or len(content) <= max(5000, len(data))


@EVERY_CODEC
def test_bytes_after_the_end_are_passed_over_or_fail(name):
    codec, compress = COMPRESSORS[name]
    data = compress(CONTENT) + bytes(3)
    if codec == 2:
        assert code_of(codec, data) == "codec_failed"
    else:
        assert decompress(codec, data, MIB, 10_000) == CONTENT


def test_nothing_is_compressed_with_codec_0_and_5_to_7_are_unknown():
    assert decompress(0, b"as it is", MIB, 1) == b"as it is"
    assert [code_of(codec, b"x") for codec in (5, 6, 7, -1)] == ["codec_unknown"] * 4


def test_members_of_gzip_and_frames_of_lz4_follow_one_another():
    assert decompress(1, gzip.compress(b"one ") + gzip.compress(b"two"), MIB, 100) == b"one two"
    assert decompress(3, lz4.frame.compress(b"one ") + lz4.frame.compress(b"two"), MIB, 100) == b"one two"
    assert decompress(2, xerial(b"one ") + xerial(b"two"), MIB, 100) == b"one two"
    bomb = gzip.compress(bytes(60)) * 100
    assert code_of(1, bomb, 5999) == "decompressed_size_limit"


@pytest.mark.parametrize("name", ["gzip", "lz4"])
def test_a_great_number_of_empty_members_is_given_up(name):
    codec, compress = COMPRESSORS[name]
    begun = time.thread_time()
    assert code_of(codec, compress(b"") * 200_000) == "codec_failed"
    assert time.thread_time() - begun < 3
    assert decompress(codec, compress(b"abc") * 5000, MIB, 10_000) == b"abc" * 5000


@pytest.mark.parametrize("size", [0, -1, 1 << 30])
def test_a_xerial_block_of_impossible_size_fails(size):
    assert code_of(2, xerial(b"fine") + struct.pack(">i", size) + b"abc") == "codec_failed"


def test_nothing_comes_of_nothing_compressed():
    for codec, compress in COMPRESSORS.values():
        assert decompress(codec, compress(b""), MIB, 100) == b""


# The LZ4 header checksum of old clients


def test_xxh32_gives_the_published_values():
    # Test vectors of the xxHash specification's reference implementation, seed 0.
    assert xxh32_short(b"") == 0x02CC5D05
    assert xxh32_short(b"a") == 0x550D7456
    assert xxh32_short(b"abc") == 0x32D153FF


@pytest.mark.parametrize("options", [{}, {"store_size": True}, {"content_checksum": True}, {"block_size": 6}])
def test_the_checksum_put_right_is_the_one_that_lz4_itself_writes(options):
    frame = lz4.frame.compress(CONTENT, **options)
    at = 14 if frame[4] & 0x08 else 6
    for wrong in range(0, 256, 5):
        broken = frame[:at] + bytes([wrong]) + frame[at + 1 :]
        assert with_lz4_header_checksum(broken) == frame
        assert decompress(3, broken, MIB, 10_000, legacy=True) == CONTENT
        assert wrong == frame[at] or code_of(3, broken) == "codec_failed"


def test_frames_of_an_old_client_need_the_checksum_put_right():
    fixtures = json.loads((Path(__file__).parents[1] / "data/records/batches.json").read_text())
    [old] = [f for f in fixtures["batches"] if f["magic"] == 0 and f["codec"] == "lz4"]
    frame = b64decode(old["data"])[26:]
    assert frame.startswith(b"\x04\x22\x4d\x18")
    assert code_of(3, frame) == "codec_failed"
    assert len(decompress(3, frame, MIB, 10_000, legacy=True)) > 1000


@pytest.mark.parametrize(
    "data", [b"", b"\x04\x22\x4d\x18", b"\x04\x22\x4d\x18\x68\x40\x01", b"no frame at all"]
)
def test_what_is_no_lz4_frame_is_left_as_it_is(data):
    assert with_lz4_header_checksum(data) == data
    assert code_of(3, data, legacy=True) == "codec_failed"


def test_an_allowance_is_used_up_by_content_and_by_failures():
    allowance = Allowance(1000, 100)
    assert allowance.decompress(1, gzip.compress(bytes(400))) == bytes(400)
    assert allowance.left == 600
    with pytest.raises(DecodeError):
        allowance.decompress(1, b"\x1f\x8bxx")
    assert allowance.left == 200
    with pytest.raises(DecodeError, match="decompressed_size_limit"):
        allowance.decompress(1, gzip.compress(bytes(201)))
    assert allowance.left == 0
    assert allowance.decompress(0, b"free") == b"free"


def test_opening_something_small_is_charged_all_the_same():
    allowance = Allowance(300, 100)
    assert allowance.decompress(1, gzip.compress(b"")) == b""
    assert allowance.left == 44
    assert allowance.decompress(1, gzip.compress(b"abc")) == b"abc"
    assert allowance.left == 0


def test_a_raw_deflate_stream_is_no_gzip():
    assert code_of(1, zlib.compress(b"zlib, not gzip")) == "codec_failed"
