"""Found out in stretches, a file's cuts are those that following all of its records gives."""

from __future__ import annotations

import random
import re
import struct
from pathlib import Path

import pytest

from kwsniff.capture.error import CaptureError
from kwsniff.config import Config
from kwsniff.run import plan
from kwsniff.run.plan import Split, can_be_cut, cut, followed, together
from tests.capture.files import (
    MICRO,
    MODIFIED,
    NANO,
    SECOND,
    START,
    frame,
    frames,
    ng_block,
    ng_enhanced,
    ng_interface,
    ng_options,
    ng_simple,
    pcap,
    pcapng,
    record,
)  # fmt: skip
from tests.samples import names, sample
from tests.strength import ALL

CONFIG = Config(block_bytes=4096, block_packets=30)
FRAMES = frames(400)
LARGE = frames(60, lambda index: (index * 977) % 3000)


def in_stretches(path: str, wanted: list[int], config: Config = CONFIG) -> list[Split] | None:
    size = Path(path).stat().st_size
    ends = [*wanted, None]
    found = [followed(path, *ends_of, size, config) for ends_of in zip([0, *wanted], ends, strict=True)]
    return together(path, found, size)


def written(folder: Path, data: bytes) -> str:
    path = folder / "capture"
    path.write_bytes(data)
    return str(path)


def some(size: int, seed: int, most: int = 12) -> list[int]:
    """Places in a file, also such that there are several in a record."""
    draw = random.Random(seed)
    near = draw.randrange(1, max(size, 2))
    places = {draw.randrange(1, max(size, 2)) for _ in range(draw.randrange(1, most))}
    return sorted(places | {near + each for each in range(draw.randrange(4)) if near + each < size})


@pytest.fixture(params=[64, 4096, plan.WINDOW])
def window(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stretch is followed through windows of so many bytes; where the next one begins is looked for in
    the same, and 64 are too few for that."""
    monkeypatch.setattr(plan, "WINDOW", request.param)
    monkeypatch.setattr(plan, "HEAD", min(request.param, 4096))


def statistics(drops: int) -> bytes:
    return ng_block(5, struct.pack("<III", 0, 0, 0) + ng_options([(5, struct.pack("<Q", drops))]))


PLAIN = {
    "pcap": pcap(FRAMES),
    "large packets": pcap(LARGE),
    "big-endian": pcap(FRAMES, ">"),
    "nanoseconds": pcap(FRAMES, magic=NANO),
    "modified": pcap(FRAMES, magic=MODIFIED),
    "cut short": pcap(FRAMES)[:-7],
    "pcapng": pcapng(FRAMES),
    "big-endian ng": pcapng(FRAMES, ">"),
    "cut short ng": pcapng(FRAMES)[:-7],
}
INSIDE = pcap(frames(40))
HIDDEN = [(START + at * SECOND, each[1] + pcap(LARGE[at : at + 9])) for at, each in enumerate(FRAMES[:40])]
ODD = {
    "drops told at the end": pcapng(FRAMES) + statistics(4),
    "damaged": pcap(FRAMES[:200]) + bytes(range(1, 200)) + pcap(FRAMES[200:])[24:],
    "a hole": pcap(FRAMES[:200]) + bytes(900) + pcap(FRAMES[200:])[24:],
    "time jumps": pcap(FRAMES[:99]) + record((START + 10**18, FRAMES[0][1]), magic=MICRO) + pcap(FRAMES)[24:],
    "time jumps once": pcap([*FRAMES[:99], *((time + 10**16, data) for time, data in FRAMES[99:])]),
    "times from 0": pcap([(time - START, data) for time, data in FRAMES])[:-7],
    "packets without a time": pcapng(FRAMES) + ng_simple(FRAMES[0][1]),
    "an interface described late": pcapng(FRAMES) + ng_interface() + ng_enhanced(FRAMES[0], interface=1),
    "two sections": pcapng(FRAMES) + pcapng(FRAMES, ">"),
    "drops told in between": pcapng(FRAMES) + statistics(4) + pcapng(FRAMES)[48:],
    "drops told twice": pcapng(FRAMES[:300]) + statistics(4) + pcapng(FRAMES)[48:] + statistics(7),
    "captures in packets": pcap(HIDDEN),
    "captures in packets, cut short": pcap(HIDDEN)[:-20],
    "captures in packets of pcapng": pcapng([(time, data + pcapng(FRAMES[:20])) for time, data in HIDDEN]),
    "no packets": pcap([]),
    "no packets ng": pcapng([]),
}  # fmt: skip


@pytest.mark.parametrize("name", PLAIN)
def test_a_plain_file_is_cut_where_its_records_begin(name: str, tmp_path: Path) -> None:
    path = written(tmp_path, PLAIN[name])
    wanted = list(range(1500, len(PLAIN[name]) - 20_000, 1700))
    expected = cut(path, wanted, CONFIG)
    assert len(expected) > 8
    assert in_stretches(path, wanted) == expected


def test_drops_that_a_large_file_tells_at_its_end_are_told_with_the_last_split(tmp_path: Path) -> None:
    data = pcapng([(START + at, frame(at, bytes(1400))) for at in range(3000)]) + statistics(4)
    path = written(tmp_path, data)
    wanted = [500_000, 1_000_000]
    found = in_stretches(path, wanted)
    assert found == cut(path, wanted, CONFIG)
    assert found is not None
    assert [each.dropped for each in found] == [0, 0, 4]


@pytest.mark.usefixtures("window")
@pytest.mark.parametrize("name", [*PLAIN, *ODD])
def test_any_cuts_are_those_of_the_whole_chain_or_none(name: str, tmp_path: Path) -> None:
    data = {**PLAIN, **ODD}[name]
    path = written(tmp_path, data)
    for seed in range(60 if ALL else 6):
        wanted = some(len(data), seed)
        assert in_stretches(path, wanted) in (None, cut(path, wanted, CONFIG)), wanted


@pytest.mark.usefixtures("window")
@pytest.mark.parametrize("name", [*PLAIN, *ODD])
def test_nor_are_they_others_when_the_file_is_damaged(name: str, tmp_path: Path) -> None:
    data = {**PLAIN, **ODD}[name]
    for seed in range(60 if ALL else 6):
        draw = random.Random(seed)
        bad = bytearray(data)
        for _ in range(draw.randrange(1, 4)):
            bad[draw.randrange(len(bad))] = draw.randrange(256)
        path = written(
            tmp_path, bytes(bad[: draw.randrange(24, len(bad) + 1) if seed % 3 == 0 else len(bad)])
        )
        wanted = some(Path(path).stat().st_size, seed)
        try:
            expected = cut(path, wanted, CONFIG)
        except CaptureError as error:
            with pytest.raises(CaptureError, match=re.escape(str(error))):
                in_stretches(path, wanted)
        else:
            assert in_stretches(path, wanted) in (None, expected), seed


def test_a_capture_within_a_packet_misleads_nobody(tmp_path: Path) -> None:
    """A stretch that begins in one finds records of the inner capture, which prove nothing."""
    data = pcap(HIDDEN)
    path = written(tmp_path, data)
    inner = data.index(INSIDE[:8], 5000)  # the header of a capture in a packet
    found = followed(path, inner, None, len(data), CONFIG)
    expected = cut(path, [inner], CONFIG)
    assert found is None or found.first != expected[1].start
    assert in_stretches(path, [inner]) is None


@pytest.mark.one_of(6)
@pytest.mark.parametrize("name", names())
def test_samples_are_cut_in_the_same_places(name: str) -> None:
    for path in sample(name).paths:
        size = Path(path).stat().st_size
        if not can_be_cut(path):
            assert followed(path, 0, size // 2, size, Config()) is None
            continue
        for seed in range(12):
            wanted = some(size, seed, 40)
            assert in_stretches(path, wanted, Config()) in (None, cut(path, wanted, Config())), (path, seed)


@pytest.mark.parametrize("name", ["librdkafka-groups", "kafka-0.8", "ipv6", "tls"])
def test_no_record_of_these_samples_has_to_be_followed_twice(name: str) -> None:
    for path in sample(name).paths:
        size = Path(path).stat().st_size
        wanted = [size // 4, size // 2]
        found = in_stretches(path, wanted, Config())
        assert found is not None
        assert found == cut(path, wanted, Config())
