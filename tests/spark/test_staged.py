"""Files that tasks write."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest

from kwsniff.lake.tables import ROWS
from kwsniff.spark import staged
from kwsniff.spark.staged import Folders, ParquetFile, StagedFile, stored

START = datetime(2026, 11, 30, 22, 30, tzinfo=UTC)


def rows(times: list[datetime | None]) -> pa.RecordBatch:
    given = {"time": times, "event": ["call"] * len(times), "position": list(range(len(times)))}
    return pa.RecordBatch.from_pylist(pa.table(given).to_pylist(), ROWS)


def test_rows_lie_in_the_folders_of_their_hours(tmp_path: Path) -> None:
    times = [START + timedelta(minutes=10 * number) for number in range(20)]
    with Folders(tmp_path, "part-1") as folders:
        folders.add(rows([*times[:7], None]))
        folders.add(rows(times[7:]))
    found = ds.dataset(tmp_path, format="parquet", partitioning=None)
    assert sorted(pc.drop_null(found.to_table()["time"]).to_pylist()) == times
    for time in times:
        place = tmp_path / f"date={time:%Y-%m-%d}" / f"hour={time.hour}"
        assert time in ds.dataset(place, format="parquet").to_table()["time"].to_pylist()
    nowhere = "__HIVE_DEFAULT_PARTITION__"
    assert [path.name for path in (tmp_path / f"date={nowhere}" / f"hour={nowhere}").iterdir()] == [
        "part-1.parquet"
    ]


def test_only_so_many_files_are_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staged, "MAX_OPEN", 3)
    times = [START + timedelta(hours=number) for number in (0, 1, 2, 3, 4, 0, 5, 6, 7, 0)]
    with Folders(tmp_path, "part-1") as folders:
        for time in times:
            folders.add(rows([time]))
            assert len(list(tmp_path.rglob(".*.part"))) <= 3
    assert not list(tmp_path.rglob(".*.part"))
    first = tmp_path / "date=2026-11-30" / "hour=22"
    assert sorted(path.name for path in first.iterdir()) == [
        "part-1-1.parquet", "part-1-2.parquet", "part-1.parquet"
    ]  # fmt: skip
    assert sorted(ds.dataset(tmp_path, format="parquet").to_table()["time"].to_pylist()) == sorted(times)


def broken(make: Callable[[], Any]) -> None:
    with make() as file:
        file.add(rows([START]))
        raise ZeroDivisionError


def test_what_breaks_off_leaves_nothing(tmp_path: Path) -> None:
    for make in (lambda: Folders(tmp_path, "a"), lambda: StagedFile(tmp_path / "b.arrow")):
        with pytest.raises(ZeroDivisionError):
            broken(make)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_two_attempts_leave_one_file(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    with ParquetFile(path) as first, ParquetFile(path) as second:
        first.add(rows([START]))
        second.add(rows([START]))
    assert [batch.num_rows for batch in stored(str(path))] == [1]
    assert list(tmp_path.iterdir()) == [path]


def test_columns_of_a_staged_file_can_be_chosen(tmp_path: Path) -> None:
    with StagedFile(tmp_path / "a.arrow") as file:
        file.add(rows([START] * 3))
    (batch,) = stored(str(tmp_path / "a.arrow"), ["event", "position"])
    assert batch.to_pydict() == {"event": ["call"] * 3, "position": [0, 1, 2]}
    assert (file.told(4).rows, file.told(4).split, file.told(4).named) == (3, 4, False)
