"""Compressed captures, pipes, stdin, and captures that lie elsewhere."""

from __future__ import annotations

import gzip
import io
import lzma
import os
import random
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Iterator

import lz4.frame
import pytest
import zstandard
from files import brief, expected, frame, frames, notes, pcap, pcapng, read
from fsspec.implementations.memory import MemoryFileSystem

from kwsniff.capture.error import CaptureError, Stop
from kwsniff.capture.place import find, is_remote, local
from kwsniff.capture.source import CaptureTotals, blocks, resolve, segments
from kwsniff.capture.stream import ByteStream
from kwsniff.config import Config
from kwsniff.net.segments import NOW
from kwsniff.run.offline import events
from tests.samples import CAPTURES, sample

# Compressed captures, pipes and stdin

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


# Captures that come through pipes: what is there is told, and the packets are those of the file

LONGER = frames(300, size=lambda index: index * 7 % 100)


class Pipe:
    """A named pipe with somebody who writes into it."""

    def __init__(self, path) -> None:
        self.path = str(path)
        os.mkfifo(path)
        self._descriptor = -1

    def write(self, *pieces: bytes, pause: float = 0.0) -> None:
        if self._descriptor < 0:
            self._descriptor = os.open(self.path, os.O_WRONLY)
        for piece in pieces:
            os.write(self._descriptor, piece)
            time.sleep(pause)

    def close(self) -> None:
        os.close(self._descriptor)

    def later(self, *pieces: bytes, pause: float = 0.0) -> None:
        """Write all and close, in a thread."""

        def work() -> None:
            self.write(*pieces, pause=pause)
            self.close()

        threading.Thread(target=work).start()


@pytest.fixture
def pipe(tmp_path):
    return Pipe(tmp_path / "pipe")


def pieces(data: bytes, seed: int) -> Iterator[bytes]:
    sizes = random.Random(seed)
    while data:
        size = sizes.choice((1, 7, 60, 999, 5000))
        yield data[:size]
        data = data[size:]


@pytest.mark.parametrize("make", [pcap, pcapng])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize("seed", [1, 2])
def test_packets_are_those_of_the_file_whatever_pieces_come(pipe, make, pack, seed):
    pipe.later(*pieces(pack(make(LONGER)), seed), pause=0.001)
    rows = read(pipe.path)
    assert (brief(rows), notes(rows)) == (expected(LONGER), [])


@pytest.mark.parametrize("make", [pcap, pcapng])
def test_damage_is_passed_over_as_in_the_file(pipe, tmp_path, make):
    data = bytearray(make(LONGER))
    data[len(data) // 2 : len(data) // 2 + 400] = b"\xff" * 400
    file = tmp_path / "file"
    file.write_bytes(data)
    pipe.later(bytes(data[:9000]), bytes(data[9000:]))
    found, wanted = read(pipe.path), read(str(file))
    assert brief(found) == brief(wanted)
    assert notes(found) == notes(wanted) == ["capture_damaged"]


def test_a_pipe_that_ends_inside_a_packet_is_cut_short(pipe):
    pipe.later(pcap(LONGER)[:-3])
    rows = read(pipe.path)
    assert (brief(rows), notes(rows)) == (expected(LONGER[:-1]), ["capture_cut_short"])


def test_packets_are_handed_out_while_the_writer_goes_on(pipe):
    data = pcap(LONGER)
    threading.Thread(target=lambda: pipe.write(data[:4000])).start()
    found = (block for block in blocks(pipe.path) if len(block))
    first = len(next(found))
    assert first > 0
    pipe.write(data[4000:])
    while first < len(LONGER):
        first += len(next(found))
    pipe.close()
    assert list(found) == []


def test_much_that_is_there_comes_in_large_blocks(pipe):
    many = pcap([(time_ns, frame(1, b"x" * 1400)) for time_ns, _ in frames(8000)])
    pipe.later(many)
    sizes = [len(block) for block in blocks(pipe.path) if len(block)]
    assert sum(sizes) == 8000
    assert len(sizes) <= 20


def _at(now: int, count: int) -> bytes:
    return pcap([(now + index, packet) for index, (_, packet) in enumerate(frames(count))])


@pytest.mark.parametrize(("age_s", "told"), [(0, True), (3600, False)])
def test_a_quiet_pipe_tells_the_time_if_its_packets_are_new(pipe, age_s, told):
    now = time.time_ns() - age_s * 10**9
    pipe.later(_at(now, 10), pause=2.0)
    times = [int(batch.schema.metadata[NOW]) for batch in segments([pipe.path]) if not len(batch)]
    assert bool(times) == told
    assert all(now < time_ns < now + 3 * 10**9 for time_ns in times)


def test_who_is_told_to_stop_keeps_what_came_and_finds_no_damage(pipe):
    data = pcap(LONGER)
    threading.Thread(target=lambda: pipe.write(data[:-5])).start()
    stop, totals = Stop(), CaptureTotals()
    rows = []
    for batch in segments([pipe.path], Config(), totals, stop=stop):
        rows += batch.to_pylist()
        stop.set()
    assert (brief(rows), notes(rows)) == (expected(LONGER[:-1]), [])
    assert totals.cut_short == 0


def test_stopping_does_not_wait_for_a_writer_who_never_came(pipe):
    stop = Stop()
    stop.set()
    began = time.monotonic()
    with pytest.raises(Exception, match="is empty"):
        list(segments([pipe.path], stop=stop))
    assert time.monotonic() - began < 5


# Captures that lie elsewhere are read as those of this machine

NAMES = ["librdkafka-groups.pcapng", "midstream.pcap", "java-groups.pcapng.zst"]


@pytest.fixture
def bucket() -> Iterator[MemoryFileSystem]:
    """Captures in memory, and something else among them."""
    system = MemoryFileSystem()
    for name in NAMES:
        system.pipe(f"/bucket/day/{name}", (CAPTURES / name).read_bytes())
    system.pipe("/bucket/day/notes.txt", b"mine")
    system.pipe("/bucket/day/deeper/midstream.pcap", (CAPTURES / "midstream.pcap").read_bytes())
    yield system
    system.rm("/bucket", recursive=True)


def rows(*paths: str) -> list[dict[str, object]]:
    found = [row for batch in events(paths, Config()) for row in batch.to_pylist()]
    return [{**row, "capture": None} for row in found]


@pytest.mark.parametrize("name", NAMES)
def test_a_url_gives_the_events_of_the_file(bucket: MemoryFileSystem, name: str) -> None:
    assert rows(f"memory://bucket/day/{name}") == rows(str(CAPTURES / name))


def test_a_directory_stands_for_the_captures_in_it(bucket: MemoryFileSystem) -> None:
    found = [each.path for each in resolve(["memory://bucket/day"])]
    assert sorted(found) == sorted(f"memory://bucket/day/{name}" for name in NAMES)


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("day/*.pcapng*", ["day/java-groups.pcapng.zst", "day/librdkafka-groups.pcapng"]),
        ("*/midstream.pcap", ["day/midstream.pcap"]),
        ("**/midstream.pcap", ["day/deeper/midstream.pcap", "day/midstream.pcap"]),
        ("day/midstrea[m].pca?", ["day/midstream.pcap"]),
    ],
)
def test_patterns_match_as_in_a_shell(bucket: MemoryFileSystem, pattern: str, names: list[str]) -> None:
    assert [each.place.url for each in find(f"memory://bucket/{pattern}")] == [
        f"memory://bucket/{name}" for name in names
    ]


def test_a_file_url_is_a_path() -> None:
    path = str(CAPTURES / "midstream.pcap")
    for url in (f"file://{path}", f"file:{path}", f"file://localhost{path}"):
        assert local(url) == path
        assert not is_remote(url)
    assert rows(f"file://{path}") == rows(path)
    assert sample("midstream").calls


def test_what_is_missing_is_one_line(bucket: MemoryFileSystem) -> None:
    for url in ("memory://bucket/none.pcap", "memory://bucket/*.none", "nothing://bucket/a.pcap"):
        with pytest.raises(CaptureError) as error:
            resolve([url])
        assert str(error.value).startswith(f"{url}: ")
        assert "\n" not in str(error.value)


def test_a_file_that_a_url_does_not_lead_to_is_said_to_be_missing(bucket: MemoryFileSystem) -> None:
    # What fsspec says of it, over HTTP and here, is no more than the path.
    with pytest.raises(CaptureError, match=r"^memory://bucket/none\.pcap: no such file$"):
        resolve(["memory://bucket/none.pcap"])


def test_a_path_with_a_colon_is_a_path() -> None:
    assert not is_remote("12:30:00.pcap")
    assert not is_remote("dir/a:b.pcap")
    assert not is_remote("C:/captures/a.pcap")


def test_without_fsspec_one_line_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(CaptureError, match=r"needs fsspec: pip install 'kwsniff\[remote\]' aiohttp"):
        resolve(["http://127.0.0.1/a.pcap"])


def test_what_a_file_system_needs_besides_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    monkeypatch.delitem(sys.modules, "fsspec.implementations.http", raising=False)
    with pytest.raises(CaptureError) as error:
        resolve(["http://127.0.0.1:9/a.pcap"])
    assert str(error.value).startswith("http://127.0.0.1:9/a.pcap: needs ")
    assert "aiohttp: pip install 'kwsniff[remote]' " in str(error.value)
