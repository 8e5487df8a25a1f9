"""Packets that a live session keeps can be read by everybody."""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from kwsniff.capture import savefile as pcapng
from kwsniff.capture.error import LiveError
from kwsniff.capture.keymaterial import AddedLines
from kwsniff.capture.savefile import PcapngFiles, WriterRotation, WrittenInterface
from kwsniff.capture.source import CaptureTotals, blocks
from kwsniff.net.packets import PacketBlock
from tests.damage import disk

INTERFACES = [WrittenInterface("lo", 1, "tcp port 9092"), WrittenInterface("eth0", 101, "")]


def block(
    name: str, *packets: bytes, linktype: int = 1, start: int = 1_700_000_000_123_456_789
) -> PacketBlock:
    lengths = np.array([len(packet) for packet in packets], np.int64)
    number = np.arange(len(packets), dtype=np.int64)
    return PacketBlock(
        capture=name, data=np.frombuffer(b"".join(packets), np.uint8), offset=np.cumsum(lengths) - lengths,
        caplen=lengths, origlen=lengths + 5, time_ns=start + number, number=number + 1,
        linktype=np.full(len(packets), linktype),
    )  # fmt: skip


def read(path: str) -> list[tuple[int, int, int, bytes]]:
    rows = []
    for each in blocks(path):
        data = each.data.tobytes()
        columns = (each.linktype, each.time_ns, each.origlen, each.offset, each.caplen)
        for link, time, length, at, size in zip(*(column.tolist() for column in columns), strict=True):
            rows.append((link, time, length, data[at : at + size]))
    return rows


def test_what_was_written_is_read_again(tmp_path: Path) -> None:
    path = str(tmp_path / "kept.pcapng")
    files = PcapngFiles(path, INTERFACES)
    files.write(block("lo", b"a" * 60, b"bc", b""))
    files.write(block("eth0", b"d" * 61, b"unwanted", linktype=101, start=1), np.array([True, False]))
    files.close()
    t = 1_700_000_000_123_456_789
    expected = [(1, t, 65, b"a" * 60), (1, t + 1, 7, b"bc"), (1, t + 2, 5, b""), (101, 1, 66, b"d" * 61)]
    assert read(path) == expected


def test_the_drops_are_in_the_file(tmp_path: Path) -> None:
    path = str(tmp_path / "kept.pcapng")
    files = PcapngFiles(path, INTERFACES)
    files.write(block("lo", b"a" * 60))
    files.count("lo", 100, 7, 3)
    files.close()
    totals = CaptureTotals()
    assert sum(len(each) for each in blocks(path, totals=totals)) == 1
    assert totals.dropped == 10


def test_a_file_can_be_read_while_it_grows(tmp_path: Path) -> None:
    path = str(tmp_path / "kept.pcapng")
    files = PcapngFiles(path, INTERFACES)
    for count in range(1, 4):
        files.write(block("lo", b"x" * 100))
        assert len(read(path)) == count
    files.close()


def test_no_file_is_larger_than_the_size_asked_for(tmp_path: Path) -> None:
    files = PcapngFiles(str(tmp_path / "kept.pcapng"), INTERFACES, WriterRotation(size=5000))
    for size in range(100):
        files.write(block("lo", *[b"x" * (20 + size + number) for number in range(50)]))
    files.close()
    paths = sorted(tmp_path.iterdir())
    assert [Path(name).name for name in files.files] == [path.name for path in paths]
    assert paths[0].name.startswith("kept_00001_")
    assert paths[0].name.endswith(".pcapng")
    sizes = [path.stat().st_size for path in paths]
    assert max(sizes) <= 5000
    assert min(sizes[:-1]) > 5000 - 32 - 172
    lengths = [len(data) for name in files.files for *_, data in read(name)]
    assert lengths == [20 + size + number for size in range(100) for number in range(50)]


def test_only_a_packet_that_is_larger_by_itself_makes_a_larger_file(tmp_path: Path) -> None:
    files = PcapngFiles(str(tmp_path / "kept.pcapng"), INTERFACES, WriterRotation(size=1000))
    files.write(block("lo", b"x" * 300, b"y" * 2000, b"z" * 300))
    files.close()
    assert [[len(data) for *_, data in read(name)] for name in files.files] == [[300], [2000], [300]]


def test_another_file_begins_after_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(pcapng.time, "monotonic", lambda: clock[0])
    files = PcapngFiles(str(tmp_path / "kept"), INTERFACES, WriterRotation(seconds=60))
    for clock[0] in (0.0, 30.0, 61.0, 90.0, 122.0):
        files.write(block("lo", b"x"))
    files.close()
    assert [len(read(name)) for name in files.files] == [2, 2, 1]


def line(number: int) -> bytes:
    return f"CLIENT_RANDOM {number:064x} {number:096x}\n".encode()


def secrets_in(path: str) -> bytes:
    return b"".join(each.secrets for each in blocks(path))


def test_without_a_key_log_no_secrets_are_written_with_one_every_file_has_those_so_far(
    tmp_path: Path,
) -> None:
    keys, kept = tmp_path / "keys", tmp_path / "kept"
    kept.mkdir()
    keys.write_bytes(line(1))
    files = PcapngFiles(str(kept / "k"), INTERFACES, WriterRotation(size=1000), AddedLines(str(keys)))
    for number in range(2, 40):
        with keys.open("ab") as file:
            file.write(line(number))
        files.write(block("lo", b"x" * 300))
    files.close()
    paths = sorted(map(str, kept.iterdir()))
    assert paths == files.files
    # Sizes are those of the same packets without secrets.
    assert [len(read(path)) for path in paths] == [2] * 19
    for count, path in enumerate(paths, start=1):
        assert secrets_in(path) == b"".join(map(line, range(1, min(2 * count + 3, 40))))
    plain = PcapngFiles(str(tmp_path / "plain"), INTERFACES)
    plain.write(block("lo", b"x" * 300))
    plain.close()
    assert secrets_in(str(tmp_path / "plain")) == b""


def test_secrets_that_come_last_are_written_and_those_that_cannot_be_read_stop_no_packet(
    tmp_path: Path,
) -> None:
    path, keys = str(tmp_path / "kept.pcapng"), tmp_path / "keys"
    files = PcapngFiles(path, INTERFACES, key_log=AddedLines(str(keys)))
    files.write(block("lo", b"a"))
    keys.write_bytes(line(1) + b"# no secret\n" + line(2)[:-9])
    files.close()
    assert (len(read(path)), secrets_in(path)) == (1, line(1))


def test_a_long_key_log_is_written_in_blocks_that_everybody_takes(tmp_path: Path) -> None:
    path, keys = str(tmp_path / "kept.pcapng"), tmp_path / "keys"
    keys.write_bytes(b"".join(map(line, range(20_000))))
    files = PcapngFiles(path, INTERFACES, key_log=AddedLines(str(keys)))
    files.close()
    assert secrets_in(path) == keys.read_bytes()


@pytest.mark.parametrize(
    ("text", "rotation"),
    [
        ("100M", WriterRotation(100_000_000, None)),
        ("1.5G", WriterRotation(1_500_000_000, None)),
        ("90s", WriterRotation(None, 90)),
        ("100M,1h", WriterRotation(100_000_000, 3600)),
        ("2d", WriterRotation(None, 172_800)),
    ],
)
def test_when_to_rotate_is_a_size_or_a_time(text: str, rotation: WriterRotation) -> None:
    assert WriterRotation.of(text) == rotation


@pytest.mark.parametrize("text", ["", "100", "0M", "M", "1x", "1h;2M"])
def test_anything_else_is_neither(text: str) -> None:
    with pytest.raises(ValueError, match="neither a size"):
        WriterRotation.of(text)


def test_a_file_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(LiveError, match=r"cannot write .*: No such file or directory"):
        PcapngFiles(str(tmp_path / "missing" / "kept.pcapng"), INTERFACES)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with disk.small_disk(tmp_path / "disk", "64k") as place:
        yield place


@pytest.mark.root
@pytest.mark.parametrize("size", [41, 4000, 70_000])
def test_a_full_disk_leaves_a_file_of_whole_packets(small_disk: Path, size: int) -> None:
    path = small_disk / "kept.pcapng"
    files = PcapngFiles(str(path), INTERFACES)
    with pytest.raises(OSError, match=r"No space left on device.*kept\.pcapng"):  # noqa: PT012
        while True:
            files.write(block("lo", b"x" * size, b"y" * size))
    totals = CaptureTotals()
    assert sum(len(each) for each in blocks(str(path), totals=totals)) >= 65_536 // (32 + size + 3) - 3
    assert totals.cut_short == totals.damaged == 0


@pytest.mark.tshark
def test_wireshark_reads_it_too(tmp_path: Path) -> None:
    path = str(tmp_path / "kept.pcapng")
    ethernet = bytes(12) + struct.pack(">H", 0x0800) + bytes(50)
    files = PcapngFiles(path, INTERFACES)
    files.write(block("lo", ethernet, ethernet))
    files.count("lo", 100, 7, 3)
    files.close()
    names = ("time_epoch", "cap_len", "len", "interface_name")
    command = ["tshark", "-r", path, "-T", "fields", *(f"-eframe.{name}" for name in names)]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\n")
    assert told[0].split("\t") == ["1700000000.123456789", "64", "69", "lo"]
    info = subprocess.run(["capinfos", "-M", path], capture_output=True, text=True, check=True).stdout
    assert "tcp port 9092" in info
