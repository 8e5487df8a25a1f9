"""Names of topics that tasks learn from their rows are those of the first row that is believed."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from kwsniff.config import Config
from kwsniff.rows.schema import EVENTS
from kwsniff.spark import finish, job
from kwsniff.spark import learnt as learning
from kwsniff.spark.learnt import KEPT, Namings, earliest, names_of
from kwsniff.spark.results import Results
from tests.samples import sample
from tests.spark.rotated import rotated
from tests.spark.streams import Followed, expected, one_process, stored

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Row = tuple[int, int, list[str | None] | None, list[str | None] | None]
"""Position, connection, names and uuids."""


def learnt(*rows: Row, batch: int = 2) -> Namings:
    """What some rows name, so many at a time, told as a task tells it."""
    made = Namings()
    for first in range(0, len(rows), batch):
        positions, numbers, names, ids = zip(*rows[first : first + batch], strict=True)
        lists = pa.list_(pa.string())
        columns = {
            "position": pa.array(positions), "rank": pa.array([0] * len(positions)),
            "number": pa.array(numbers), "topics": pa.array(names, lists), "topic_ids": pa.array(ids, lists),
        }  # fmt: skip
        made.add(pa.RecordBatch.from_pydict(columns))
    gone: Namings = pickle.loads(pickle.dumps(made))  # as Spark brings it to the driver
    return gone


def first_of(namings: Namings, *wrong: int) -> dict[str, tuple[int, str]]:
    left = namings.without(wrong)
    assert left is not None
    return earliest(left)


def test_the_first_row_names_a_topic() -> None:
    found = learnt(
        (1, 7, None, ["a"]), (2, 7, [None, "tea"], ["a", "b"]), (3, 7, ["milk"], None),
        (4, 8, ["cup", "pot"], ["a", "b"]), (5, 9, ["mug"], ["a"]),
    )  # fmt: skip
    assert first_of(found) == {"b": (2, "tea"), "a": (4, "cup")}
    assert found.numbers() == {7, 8, 9}


def test_connections_that_are_not_believed_name_nothing() -> None:
    found = learnt((1, 7, ["tea"], ["a"]), (2, 8, ["pot"], ["a"]), (3, 7, ["can"], ["b"]))
    assert first_of(found, 7) == {"a": (2, "pot")}
    assert first_of(found, 7, 8) == {}


def test_names_of_many_connections_are_kept_of_a_few() -> None:
    rows: list[Row] = [(at, at, [f"name {at}"], ["a"]) for at in range(KEPT + 1)]
    found = learnt(*rows)
    assert found.numbers() == set(range(KEPT))
    assert first_of(found, *range(KEPT - 1)) == {"a": (KEPT - 1, f"name {KEPT - 1}")}
    assert found.without(range(KEPT)) is None, "a later connection names it, nobody knows how"
    assert first_of(learnt(*rows[:KEPT]), *range(KEPT)) == {}, "none does"


def test_a_name_that_is_too_long_is_none() -> None:
    assert first_of(learnt((1, 7, ["x" * 100_000, "tea"], ["a", "a"]))) == {"a": (1, "tea")}


def test_the_first_uuids_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learning, "ROOM", 2)
    found = learnt((1, 7, ["tea"], ["a"]), (2, 8, ["pot"], ["b"]), (3, 9, ["cup"], ["c"]))
    assert first_of(found) == {"a": (1, "tea"), "b": (2, "pot")}
    assert found.without([7]) is None, "the third could be kept then"
    more = learnt((0, 7, ["can"], ["d"]))
    assert names_of(first_of(found) | first_of(more)) == {"d": "can", "a": "tea"}


# Fetch sessions whose calls several tasks finish, or several batches of a stream.


def unpacked(name: str, folder: Path) -> list[str]:
    """A sample as one file that can be cut."""
    return [str(file) for file in rotated(sample(name).paths, folder / name, packets=1_000_000)]


@pytest.mark.parametrize(
    ("names", "split"), [(["java-groups"], 20_000), (["java-streams", "java-groups"], 20_000)]
)
def test_groups_go_on_with_the_sessions_of_those_before(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: list[str], split: int
) -> None:
    """A group for each split: full fetches and incremental ones of the same session lie in several."""
    monkeypatch.setattr(finish, "LEAST_BYTES", 1)
    monkeypatch.setattr(finish, "FILES_BYTES", 1)
    paths = [path for name in names for path in unpacked(name, tmp_path)]
    made = job.run(spark, paths, tmp_path / "out", Config(), split=split)
    assert made.manifest.splits["splits"] > 3
    expected = one_process(paths)
    found = Results(tmp_path / "out").events().select(EVENTS.names)
    assert [name for name in EVENTS.names if not found[name].equals(expected[name])] == []


@pytest.mark.parametrize("sessions", [True, False])
def test_rows_without_sessions_are_not_read_for_them(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sessions: bool
) -> None:
    monkeypatch.setattr(finish, "LEAST_BYTES", 1)
    monkeypatch.setattr(finish, "FILES_BYTES", 1)
    read = []
    real = finish.opened_before
    monkeypatch.setattr(finish, "opened_before", lambda *given: read.append(given) or real(*given))
    name = "java-groups" if sessions else "librdkafka-groups"
    job.run(spark, unpacked(name, tmp_path), tmp_path / "out", Config(), split=20_000)
    assert bool(read) is sessions


def test_a_stream_goes_on_with_the_sessions_of_batches_before(spark: SparkSession, tmp_path: Path) -> None:
    followed = Followed(spark, tmp_path)
    files = rotated(sample("java-groups").paths, followed.source, packets=150)
    wanted = expected(files)
    size = sum(file.stat().st_size for file in files)
    made = followed.run(batch_bytes=size // 3, end=True)
    assert made.batch > 1
    found = stored(followed.out)
    assert [name for name in EVENTS.names if not found[name].equals(wanted[name])] == []
