"""Files of events on their way, and rows of several of them in one order."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

from kwsniff.capture.place import Place
from kwsniff.spark.resulttables import ROWS
from kwsniff.spark.staged import StagedFile, merged, stored


def rows(positions: list[int]) -> pa.RecordBatch:
    given = {"event": ["call"] * len(positions), "position": positions}
    return pa.RecordBatch.from_pylist(pa.table(given).to_pylist(), ROWS)


def broken(place: Place) -> None:
    with StagedFile(place / "b.arrow") as file:
        file.add(rows([1]))
        raise ZeroDivisionError


def test_what_breaks_off_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        broken(Place.of(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_each_attempt_writes_and_tells_its_own_file(tmp_path: Path) -> None:
    place = Place.of(tmp_path) / "a.arrow"
    with StagedFile(place) as first, StagedFile(place) as second:
        first.add(rows([1]))
        second.add(rows([2, 3]))
    assert first.emitted().path != second.emitted().path
    for file, positions in ((first, [1]), (second, [2, 3])):
        (batch,) = stored(file.emitted().path)
        assert batch["position"].to_pylist() == positions
        assert file.emitted().bytes == Path(file.emitted().path).stat().st_size


def test_columns_of_a_staged_file_can_be_chosen(tmp_path: Path) -> None:
    with StagedFile(Place.of(tmp_path) / "a.arrow") as file:
        file.add(rows([0, 1, 2]))
    (batch,) = stored(file.emitted().path, ["position", "event"])
    assert batch.to_pydict() == {"position": [0, 1, 2], "event": ["call"] * 3}
    assert (file.emitted(4).rows, file.emitted(4).split, file.emitted(4).named) == (3, 4, False)


@pytest.mark.parametrize("seed", range(5))
def test_rows_of_several_sources_come_in_one_order(seed: int) -> None:
    chance = random.Random(seed)
    positions = list(range(500))
    sources: list[list[int]] = [[] for _ in range(chance.randrange(1, 6))]
    for position in positions:
        chance.choice(sources).append(position)

    def batches(source: list[int]) -> list[pa.RecordBatch]:
        found = []
        while source:
            count = chance.randrange(0, 60)
            now, source = source[:count], source[count:]
            chance.shuffle(now)  # within a batch they need not be in order
            found.append(rows(now))
        return found

    found = [row for batch in merged(iter(batches(each)) for each in sources) for row in batch["position"]]
    assert [row.as_py() for row in found] == positions
