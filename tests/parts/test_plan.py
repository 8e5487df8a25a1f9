"""Where files are cut, and that their parts together are the file."""

from __future__ import annotations

import gzip
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kwsniff.capture.source import CaptureTotals, segments
from kwsniff.config import Config
from kwsniff.run.part import SplitReader, independent
from kwsniff.run.plan import Split, cut, followed, pieces
from tests.capture.files import (
    MICRO,
    MODIFIED,
    NANO,
    START,
    frames,
    ng_block,
    ng_enhanced,
    ng_interface,
    ng_obsolete,
    ng_options,
    ng_secrets,
    ng_section,
    ng_simple,
    pcap,
    pcapng,
    record,
)  # fmt: skip
from tests.parts.cutting import plan

FRAMES = frames(200)
CONFIG = Config(block_bytes=4096, block_packets=30)
WANTED = list(range(500, 30_000, 1_700))


def rows_of(splits: list[Split]) -> tuple[list[dict[str, Any]], CaptureTotals]:
    """All rows of the splits, one after the other, and what they counted."""
    rows, totals = [], CaptureTotals()
    for number in range(len(splits)):
        reader = SplitReader(splits, number, CONFIG)
        rows += [row for batch in reader.segments() for row in batch.to_pylist()]
        totals.merge(reader.emitted.totals)
    return rows, totals


def whole(path: Path) -> tuple[list[dict[str, Any]], CaptureTotals]:
    totals = CaptureTotals()
    return [row for batch in segments([path], CONFIG, totals) for row in batch.to_pylist()], totals


def interfaces() -> bytes:
    """Two sections of different byte orders; interfaces with units of their own, one described late."""
    first = ng_section() + ng_interface() + b"".join(ng_enhanced(each) for each in FRAMES[:70])
    late = ng_interface(options=[(9, b"\x09")])
    late += b"".join(ng_enhanced(each, interface=1, ticks=each[0]) for each in FRAMES[70:120])
    second = ng_section(">") + ng_interface(">") + b"".join(ng_obsolete(each, ">") for each in FRAMES[120:])
    dropped = ng_block(5, struct.pack("<III", 0, 0, 0) + ng_options([(5, struct.pack("<Q", 4))]))
    return first + dropped + late + dropped + second


@pytest.mark.parametrize(
    "data",
    [
        pcap(FRAMES), pcap(FRAMES, ">"), pcap(FRAMES, magic=NANO), pcap(FRAMES, magic=MODIFIED),
        pcap(FRAMES)[:-7], pcapng(FRAMES), pcapng(FRAMES, ">"), interfaces(),
    ],
    ids=["pcap", "big-endian", "nanoseconds", "modified", "cut short", "pcapng", "big-endian ng", "sections"],
)  # fmt: skip
def test_the_parts_of_a_file_are_the_file(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "capture"
    path.write_bytes(data)
    splits = cut(str(path), WANTED, CONFIG)
    assert len(splits) > 5
    assert [split.start for split in splits[1:]] == [split.end for split in splits[:-1]]
    assert (splits[0].start, splits[-1].end) == (0, len(data))
    assert rows_of(splits) == whole(path)


@pytest.mark.parametrize(
    "data",
    [
        pcap(FRAMES[:100]) + bytes(range(1, 200)) + pcap(FRAMES[100:])[24:],
        pcap(FRAMES[:100]) + record((START + 10**18, FRAMES[0][1]), magic=MICRO) + pcap(FRAMES[100:])[24:],
        pcapng(FRAMES) + ng_simple(FRAMES[0][1]),
        gzip.compress(pcap(FRAMES)),
    ],
    ids=["damaged", "time jumps", "packets without a time", "compressed"],
)
def test_what_cannot_be_cut_for_sure_is_one_split(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "capture"
    path.write_bytes(data)
    assert cut(str(path), WANTED, CONFIG) == [Split(str(path))]
    assert rows_of([Split(str(path))]) == whole(path)


def test_small_files_share_a_split_and_large_ones_have_several(tmp_path: Path) -> None:
    for index, count in enumerate((10, 10, 200, 10)):
        first = sum((10, 10, 200, 10)[:index])
        (tmp_path / f"{index}.pcap").write_bytes(pcap(frames(230)[first : first + count]))
    splits = plan([str(tmp_path)], CONFIG, 5_000)
    names = [[Path(path).name for path in (split.path, *split.more)] for split in splits]
    assert names[0] == ["0.pcap", "1.pcap"]
    assert names[1:-1] == [["2.pcap"]] * (len(splits) - 2)
    assert len(splits) > 3
    assert names[-1] == ["3.pcap"]
    assert rows_of(splits)[0] == [row for index in range(4) for row in whole(tmp_path / f"{index}.pcap")[0]]


def test_a_file_with_secrets_of_tls_connections_is_one_split(tmp_path: Path) -> None:
    plain, path = tmp_path / "plain.pcapng", tmp_path / "secrets.pcapng"
    plain.write_bytes(pcapng(FRAMES))
    assert len(cut(str(plain), WANTED, CONFIG)) > 1
    assert len(pieces(str(plain), CONFIG, 5000)) > 1
    assert pieces(str(plain), replace(CONFIG, keylog="keys"), 5000) == [Split(str(plain))]
    first = b"".join(ng_enhanced(each) for each in FRAMES[:150])
    rest = b"".join(ng_enhanced(each) for each in FRAMES[150:])
    for data in (first + ng_secrets(b"abc") + rest, first + rest + ng_secrets(b"abc")):
        path.write_bytes(pcapng([]) + data)
        assert cut(str(path), WANTED, CONFIG) == [Split(str(path))]
        size = path.stat().st_size
        assert followed(str(path), 8000, None, size, CONFIG) is None


def test_secrets_in_one_of_several_splits_keep_them_from_being_read_apart(tmp_path: Path) -> None:
    one, other = tmp_path / "1.pcapng", tmp_path / "2.pcapng"
    one.write_bytes(pcapng(FRAMES[:100]) + ng_secrets(b"abc"))
    other.write_bytes(pcapng(FRAMES[100:]))
    for splits, apart in (
        ([Split(str(one)), Split(str(other))], False),
        ([Split(str(one), more=(str(other),))], True),
    ):
        readers = [SplitReader(splits, number, CONFIG) for number in range(len(splits))]
        columns = [each for reader in readers for each in reader.columns()]
        assert [each.secrets for each in columns if each.secrets] == [b"abc\n"]
        assert sum(map(len, columns)) == len(FRAMES)
        assert independent(splits, [reader.emitted for reader in readers]) is apart
