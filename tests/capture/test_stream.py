"""Compressed captures, pipes and stdin."""

from __future__ import annotations

import gzip
import io
import lzma
import os
import subprocess
import sys
import threading
import zlib

import lz4.frame
import pytest
import zstandard
from files import brief, expected, frames, notes, pcap, pcapng, read

from kwsniff.capture.source import CaptureTotals
from kwsniff.capture.stream import ByteStream

COMPRESS = {
    "gz": gzip.compress,
    "zst": zstandard.ZstdCompressor().compress,
    "lz4": lz4.frame.compress,
    "xz": lzma.compress,
}
PACKETS = frames(2000, size=lambda index: index * 7 % 100)


@pytest.mark.parametrize("codec", COMPRESS)
@pytest.mark.parametrize("make", [pcap, pcapng])
def test_a_compressed_capture_gives_the_same_rows(tmp_path, codec, make):
    path = tmp_path / f"test.{codec}"
    path.write_bytes(COMPRESS[codec](make(PACKETS)))
    rows = read(str(path))
    assert brief(rows) == expected(PACKETS)
    assert notes(rows) == []


@pytest.mark.parametrize("codec", COMPRESS)
def test_frames_or_members_of_a_compressed_file_are_joined(tmp_path, codec):
    data = pcap(PACKETS)
    path = tmp_path / "test"
    parts = [data[at : at + 5001] for at in range(0, len(data), 5001)]
    path.write_bytes(b"".join(COMPRESS[codec](part) for part in parts))
    assert brief(read(str(path))) == expected(PACKETS)


def in_small_blocks(codec, data):
    """Compressed so that a decoder can give some of it before it has seen all of it."""
    if codec == "lz4":
        return lz4.frame.compress(data, block_size=lz4.frame.BLOCKSIZE_MAX64KB)
    if codec == "zst":
        compressor = zstandard.ZstdCompressor().compressobj()
        parts = (data[at : at + 20_000] for at in range(0, len(data), 20_000))
        flush = zstandard.COMPRESSOBJ_FLUSH_BLOCK
        return b"".join(compressor.compress(part) + compressor.flush(flush) for part in parts)
    return COMPRESS[codec](data)


@pytest.mark.parametrize("codec", COMPRESS)
@pytest.mark.parametrize("share", [0.6, 0.9, 0.99])
def test_a_compressed_capture_cut_short_gives_what_can_be_read(tmp_path, codec, share):
    data = in_small_blocks(codec, pcap(PACKETS))
    path = tmp_path / "test"
    path.write_bytes(data[: int(len(data) * share)])
    totals = CaptureTotals()
    rows = read(str(path), totals)
    found = brief(rows)
    assert found == expected(PACKETS)[: len(found)]
    assert 100 < len(found) < len(PACKETS)
    assert notes(rows) == ["capture_cut_short"]
    assert totals.cut_short == 1


@pytest.mark.parametrize("codec", COMPRESS)
def test_broken_compressed_data_gives_what_came_before(tmp_path, codec):
    whole = pcap(PACKETS)
    parts = [COMPRESS[codec](whole[at : at + 20_000]) for at in range(0, len(whole), 20_000)]
    assert len(parts) > 5
    broken = bytearray(parts[3])
    broken[8:] = bytes(len(broken) - 8)
    path = tmp_path / "test"
    path.write_bytes(b"".join(parts[:3]) + bytes(broken) + b"".join(parts[4:]))
    totals = CaptureTotals()
    rows = read(str(path), totals)
    found = brief(rows)
    assert found == expected(PACKETS)[: len(found)]
    assert sum(16 + 54 + len(row[3]) for row in found) > 59_000
    assert len(notes(rows)) == totals.damaged + totals.cut_short == 1


@pytest.mark.parametrize("wrong", [-1, -8], ids=["length", "checksum"])
def test_a_gzip_with_a_wrong_trailer_gives_all_it_holds(tmp_path, wrong):
    data = bytearray(gzip.compress(pcap(PACKETS)))
    data[wrong] ^= 1
    path = tmp_path / "test"
    path.write_bytes(data)
    rows = read(str(path))
    assert (brief(rows), notes(rows)) == (expected(PACKETS), ["capture_damaged"])


def test_a_gzip_broken_in_the_middle_gives_all_before(tmp_path):
    packer = zlib.compressobj(wbits=31)
    data = packer.compress(pcap(PACKETS[:1500])) + packer.flush(zlib.Z_FULL_FLUSH)
    path = tmp_path / "test"
    path.write_bytes(data + b"\xff" * 100)  # a block of a type that does not exist
    rows = read(str(path))
    assert (brief(rows), notes(rows)) == (expected(PACKETS[:1500]), ["capture_damaged"])


def test_zeros_behind_compressed_data_are_padding(tmp_path):
    path = tmp_path / "test.gz"
    path.write_bytes(gzip.compress(pcap(PACKETS)) + bytes(512))
    rows = read(str(path))
    assert (brief(rows), notes(rows)) == (expected(PACKETS), [])


def test_a_small_file_that_expands_enormously_is_read_a_piece_at_a_time():
    bomb = zstandard.ZstdCompressor(level=19).compress(bytes(1 << 28))
    assert len(bomb) < 50_000
    stream = ByteStream(io.BytesIO(bomb), "bomb")
    buffer = memoryview(bytearray(1 << 20))
    assert stream.fill(buffer) == 1 << 20
    assert bytes(buffer) == bytes(1 << 20)


@pytest.mark.parametrize("sizes", [[1], [3, 5000, 1], [1 << 16]])
def test_pieces_of_any_size_fill_the_buffer(sizes):
    data = gzip.compress(pcap(PACKETS), mtime=0)

    class Dripping(io.BytesIO):
        def __init__(self):
            super().__init__(data)
            self.reads = 0

        def read(self, size=-1):
            self.reads += 1
            return super().read(min(size, sizes[self.reads % len(sizes)]))

    stream = ByteStream(Dripping(), "drip", len(data))
    whole = bytearray(len(pcap(PACKETS)) + 10)
    assert stream.fill(memoryview(whole)) == len(whole) - 10
    assert bytes(whole[:-10]) == pcap(PACKETS)
    assert stream.consumed == len(data)


def test_a_named_pipe_is_read(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=lambda: path.write_bytes(pcap(PACKETS)))
    writer.start()
    rows = read(str(path))
    writer.join()
    assert brief(rows) == expected(PACKETS)


CODE = """
from kwsniff.capture.source import segments, CaptureError
try:
    print(sum(len(batch) for batch in segments(["-"])))
except CaptureError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("data", "output"),
    [
        (pcap(PACKETS), "2000\n"),
        (COMPRESS["zst"](pcapng(PACKETS)), "2000\n"),
        (b"", "-: the file is empty\n"),
        (b"hello world", "-: is no capture file (neither pcap nor pcapng)\n"),
    ],
    ids=["pcap", "zstd", "empty", "text"],
)
def test_stdin_is_read(data, output):
    done = subprocess.run([sys.executable, "-c", CODE], input=data, capture_output=True, check=True)
    assert done.stdout.decode() == output
