"""Files of tables: sorted, in folders by date and hour, whatever order rows come in."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from kwsniff.capture.place import Place
from kwsniff.spark import files
from kwsniff.spark.files import NO_HOUR, Folders, Stored, bundles, joined, rows_of
from kwsniff.spark.resulttables import CALLS, ROWS

START = datetime(2026, 11, 30, 22, 30, tzinfo=UTC)


def rows(times: Sequence[datetime | None], first: int = 0) -> pa.RecordBatch:
    given = {"time": times, "event": ["call"] * len(times)}
    table = pa.table({**given, "position": list(range(first, first + len(times)))})
    return pa.RecordBatch.from_pylist(table.to_pylist(), ROWS)


def read(root: Place, stored: Sequence[Stored]) -> list[dict[str, object]]:
    found = []
    for file in stored:
        own = [row for batch in rows_of(root / file.path, ["time", "position"]) for row in batch.to_pylist()]
        assert len(own) == file.rows
        if file.hour != NO_HOUR:
            assert own == sorted(own, key=lambda row: (row["time"], row["position"]))
            assert int(own[0]["time"].timestamp() * 1e6) == file.first
            assert int(own[-1]["time"].timestamp() * 1e6) == file.last
            assert {int(row["time"].timestamp()) // 3600 for row in own} == {file.hour}
        found += own
    return found


def test_rows_lie_in_the_folders_of_their_hours(tmp_path: Path) -> None:
    times = [START + timedelta(minutes=10 * number) for number in range(20)]
    root = Place.of(tmp_path)
    with Folders(CALLS, root, "calls", "part") as folders:
        folders.add(rows([*times[:7], None]))
        folders.add(rows(times[7:], 8))
    assert len(read(root, folders.stored)) == 21
    for time in times:
        place = tmp_path / "calls" / f"date={time:%Y-%m-%d}" / f"hour={time.hour}"
        assert time in ds.dataset(place, format="parquet").to_table()["time"].to_pylist()
    nowhere = "__HIVE_DEFAULT_PARTITION__"
    assert len(list((tmp_path / "calls" / f"date={nowhere}" / f"hour={nowhere}").iterdir())) == 1


@pytest.mark.parametrize("seed", range(4))
def test_late_rows_and_disorder_leave_sorted_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(files, "HELD", 50)
    monkeypatch.setattr(files, "HELD_BYTES", 40_000)
    monkeypatch.setattr(files, "MAX_OPEN", 2)
    chance = random.Random(seed)
    root = Place.of(tmp_path)
    count = 0
    with Folders(CALLS, root, "calls", "part") as folders:
        for number in range(60):
            now = START + timedelta(minutes=4 * number)
            times = [now + timedelta(seconds=chance.gauss(0, 90)) for _ in range(chance.randrange(1, 40))]
            if chance.random() < 0.2:
                times.append(START + timedelta(minutes=chance.random() * 60))
            folders.add(rows(times, count))
            count += len(times)
    assert sorted(row["position"] for row in read(root, folders.stored)) == list(range(count))
    assert sum(1 for path in tmp_path.rglob("*.parquet")) == len(folders.stored)


def test_all_hours_together_hold_so_many_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = Place.of(tmp_path)
    monkeypatch.setattr(files, "OPEN_BYTES", 20_000)
    most = 0
    with Folders(CALLS, root, "calls", "part") as folders:
        for number in range(60):
            folders.add(rows([START + timedelta(hours=number % 20)] * 50, 50 * number))
            most = max(most, sum(hour.bytes for hour in folders._open.values()))
    assert 15_000 < most <= 20_000
    assert sorted(row["position"] for row in read(root, folders.stored)) == list(range(3000))


def broken(root: Place) -> None:
    with Folders(CALLS, root, "calls", "part") as folders:
        folders.add(rows([START]))
        raise ZeroDivisionError


def test_what_breaks_off_leaves_nothing(root: str) -> None:
    with pytest.raises(ZeroDivisionError):
        broken(Place.of(root))
    assert list(Place.of(root).files()) == []


def test_two_attempts_leave_each_their_own_file(tmp_path: Path) -> None:
    root = Place.of(tmp_path)
    with Folders(CALLS, root, "c", "part") as first, Folders(CALLS, root, "c", "part") as second:
        first.add(rows([START]))
        second.add(rows([START]))
    assert first.stored[0].path != second.stored[0].path
    assert len(read(root, first.stored)) == len(read(root, second.stored)) == 1


def test_small_files_of_an_hour_are_joined(tmp_path: Path) -> None:
    root = Place.of(tmp_path)
    stored: list[Stored] = []
    for number in range(12):
        with Folders(CALLS, root, "calls", "part") as folders:
            folders.add(rows([START + timedelta(minutes=5 * (number * 7 % 12))], number))
        stored += folders.stored
    found = bundles(stored)
    assert sorted(len(bundle) for bundle in found) == [6, 6]
    together = [joined(bundle, root, "calls") for bundle in found]
    assert sorted(row["position"] for row in read(root, together)) == list(range(12))
    assert bundles(together) == []


@pytest.mark.parametrize("at_once", [1, 3, 50])
def test_files_are_joined_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    """Also where their times overlap, and where many rows have the same one."""
    monkeypatch.setattr(files, "AT_ONCE", at_once)
    chance = random.Random(at_once)
    root = Place.of(tmp_path)
    stored: list[Stored] = []
    for number in range(6):
        with Folders(CALLS, root, "calls", "part") as folders:
            at = [START + timedelta(seconds=chance.randrange(8 * number, 8 * number + 30)) for _ in range(20)]
            folders.add(rows(at, 20 * (number * 5 % 6)))
        stored += folders.stored
    together = read(root, [joined(stored, root, "calls")])
    assert together == sorted(read(root, stored), key=lambda row: (row["time"], row["position"]))
    assert len(together) == 120


def test_joined_files_stay_of_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "FULL", 200)
    sizes = [60, 150, 60, 60, 99, 20, 300]
    stored = [Stored("calls", str(number), 1, 10, size) for number, size in enumerate(sizes)]
    found = bundles(stored, small=100)
    assert [[int(file.path) for file in bundle] for bundle in found] == [[0, 2, 3], [4, 5]]
    assert bundles(stored, least=3, small=100) == [found[0]]
    assert bundles(stored, least=3, small=100, over=[1]) == found
    assert [[int(file.path) for file in bundle] for bundle in bundles(stored, small=61)] == [[0, 2, 3, 5]]
