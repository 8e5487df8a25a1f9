"""Fetch sessions whose calls several tasks finish, or several batches of a stream."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from kwsniff.config import Config
from kwsniff.count.naming import named
from kwsniff.rows.schema import EVENTS
from kwsniff.run.offline import events
from kwsniff.spark import finish, job
from kwsniff.spark.results import Results
from tests.samples import sample
from tests.spark.rotated import rotated
from tests.spark.streams import Followed, expected, stored

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
    expected = pa.Table.from_batches(list(named(events(paths, Config()))), EVENTS)
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
