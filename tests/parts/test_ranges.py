"""Ranges of an input decoded side by side: the rows of one run, in its order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from kwsniff.capture.source import CaptureError, CaptureTotals, segments
from kwsniff.config import Config
from kwsniff.offline import events
from kwsniff.parts import ranges
from kwsniff.pipeline import analyze
from tests.samples import CAPTURES, names, sample

SAMPLES = ["librdkafka-groups", "quorum", "midstream", "sasl-0.10"]
CONFIG = Config(block_packets=100)


@pytest.mark.parametrize("jobs", [1, 3])
@pytest.mark.parametrize("size", [1, 20_000])
def test_rows_of_several_threads_are_those_of_one_run(jobs: int, size: int) -> None:
    paths = [path for name in SAMPLES for path in sample(name).paths]
    expected = pa.Table.from_batches(analyze(segments(paths, CONFIG), CONFIG))
    found = ranges.side_by_side(segments(paths, CONFIG), CONFIG, jobs, size)
    assert pa.Table.from_batches(found).equals(expected)


@pytest.mark.parametrize("name", names())
@pytest.mark.one_of(2)
def test_bodies_that_are_shown_find_their_calls(name: str) -> None:
    config = Config(block_packets=100, full=True)
    paths = sample(name).paths
    expected = pa.Table.from_batches(analyze(segments(paths, config), config))
    found = pa.Table.from_batches(ranges.side_by_side(segments(paths, config), config, 2, 50_000))
    assert found.equals(expected)


def test_what_was_read_is_counted_once() -> None:
    paths = [path for name in SAMPLES for path in sample(name).paths]
    alone, together = CaptureTotals(), CaptureTotals()
    list(events(paths, CONFIG, totals=alone))
    list(ranges.events(paths, CONFIG, 3, together))
    assert together == alone


def broken_off(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches
    raise CaptureError("gone")


def until_gone(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    with pytest.raises(CaptureError, match="gone"):
        yield from batches


def test_what_comes_before_damage_is_told() -> None:
    batches = list(segments(sample("librdkafka-groups").paths, CONFIG))[:5]
    expected = pa.Table.from_batches(until_gone(analyze(broken_off(batches), CONFIG)))
    found = until_gone(ranges.side_by_side(broken_off(batches), CONFIG, 2, 10_000))
    assert expected.num_rows
    assert pa.Table.from_batches(found).equals(expected)


def test_a_cut_file_is_noted_once(tmp_path: Path) -> None:
    cut = tmp_path / "cut.pcap"
    cut.write_bytes((CAPTURES / "librdkafka-errors.pcap").read_bytes()[:-7])
    expected = pa.Table.from_batches(events([str(cut)], CONFIG))
    found = ranges.side_by_side(segments([str(cut)], CONFIG), CONFIG, 2, 10_000)
    assert pa.Table.from_batches(found).equals(expected)


def test_an_unreadable_input_is_known_at_once(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match=r"missing\.pcap"):
        ranges.events([str(tmp_path / "missing.pcap")], CONFIG, 2, CaptureTotals())


def test_stopping_early_ends_the_threads() -> None:
    rows = ranges.side_by_side(segments(sample("librdkafka-groups").paths, CONFIG), CONFIG, 2, 10_000)
    assert next(rows).num_rows
    rows.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize("room", [0, 30_000, 1 << 30])
def test_rows_that_wait_for_their_turn_take_no_more_than_their_room(
    room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rooms: list[ranges.Room] = []
    least: list[int] = []

    class Watched(ranges.Room):
        def take(self, size: int) -> bool:
            taken = super().take(size)
            least.append(self.left)
            return taken

    def made(size: int) -> ranges.Room:
        rooms.append(Watched(size))
        return rooms[-1]

    monkeypatch.setattr(ranges, "TOLD_BYTES", room)
    monkeypatch.setattr(ranges, "Room", made)
    paths = [path for name in SAMPLES for path in sample(name).paths]
    expected = pa.Table.from_batches(analyze(segments(paths, CONFIG), CONFIG))
    found = pa.Table.from_batches(ranges.side_by_side(segments(paths, CONFIG), CONFIG, 2, 20_000))
    assert found.equals(expected)
    assert min(least) >= 0
    assert [each.left for each in rooms] == [room]
