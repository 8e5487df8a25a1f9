"""Whoever reads the documented path of the tables, knowing nothing of manifests, sees the version."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pandas as pd
import pyarrow.dataset as ds
import pytest

from kwsniff.config import Config
from kwsniff.spark import finish, job
from kwsniff.spark import streaming as stream
from kwsniff.spark.results import Manifest, Results
from tests.samples import sample
from tests.spark.rotated import later, rotated
from tests.spark.streams import Followed, come

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOURS = 10
TABLES = {"calls": "call", "exchanges": "exchange", "anomalies": "anomaly", "connections": "connection"}


@pytest.fixture
def hours(tmp_path: Path) -> list[str]:
    """A capture of four files, once in each of ten hours."""
    files = rotated(sample("lossy-network").paths, tmp_path / "first", 190)[:4]
    return [str(_later(file, tmp_path, hour)) for hour in range(HOURS) for file in files]


def _later(file: Path, folder: Path, hour: int) -> Path:
    made = folder / f"{hour:02}-{file.name}"
    later(file, made, hour)
    return made


@pytest.fixture
def many_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task for each split, a split for each file: several tasks write small files of the same hour."""
    monkeypatch.setattr(finish, "LEAST_BYTES", 1)
    monkeypatch.setattr(finish, "FILES_BYTES", 1)


def run(spark: SparkSession, paths: list[str], out: Path, **more: Any) -> Manifest:
    size = max(Path(path).stat().st_size for path in paths)
    return job.run(spark, paths, out, Config(), split=size, **more).manifest


def by_pandas(table: Path) -> int:
    return len(pd.read_parquet(table))


def by_arrow(table: Path) -> int:
    return int(ds.dataset(table, format="parquet", partitioning="hive").count_rows())


def by_duckdb(table: Path) -> int:
    query = f"select count(*) from read_parquet('{table}/*/*/*/*.parquet')"
    return int(duckdb.execute(query).fetchall()[0][0])


def by_polars(table: Path) -> int:
    polars = pytest.importorskip("polars")
    return int(polars.scan_parquet(f"{table}/**/*.parquet").select(polars.len()).collect().item())


READERS = {"pandas": by_pandas, "arrow": by_arrow, "duckdb": by_duckdb, "polars": by_polars}


def counted(out: Path, read: Callable[[Path], int]) -> dict[str, int]:
    """Rows by kind; a table without rows has no files, which some tools refuse to read."""
    tables = {kind: out / "current" / name for name, kind in TABLES.items()}
    return {kind: read(table) if any(table.rglob("*.parquet")) else 0 for kind, table in tables.items()}


@pytest.mark.usefixtures("many_groups")
def test_four_tools_see_what_the_manifest_counts_when_files_were_joined(
    spark: SparkSession, tmp_path: Path, hours: list[str]
) -> None:
    out = tmp_path / "out"
    done = run(spark, hours, out)
    files = done.tables["calls"]
    assert sum("/joined-" in file.path for file in files) == HOURS == len(files)
    wanted = done.events
    assert min(count for kind, count in wanted.items() if kind != "exchange") >= HOURS  # nothing is TLS
    for name, read in READERS.items():
        assert counted(out, read) == wanted, name
    assert counted(out, lambda table: spark.read.parquet(str(table)).count()) == wanted
    lying = {str(path.relative_to(out)) for path in (out / "data").rglob("*.parquet")}
    assert lying == {file.path for file in done.files}


@pytest.mark.usefixtures("many_groups")
@pytest.mark.parametrize("form", ["delta", "iceberg"])
def test_what_was_joined_does_not_lie_beside_it_in_other_formats(
    spark: SparkSession, tmp_path: Path, hours: list[str], form: str
) -> None:
    out = tmp_path / "out"
    done = run(spark, hours, out, form=form)
    assert sum("joined-" in file.path for file in done.tables["calls"]) == HOURS
    lying = {str(path.relative_to(out)) for path in out.glob("calls/date=*/*/*.parquet")}
    assert lying == {file.path for file in done.tables["calls"]}


@pytest.mark.usefixtures("many_groups")
def test_while_a_run_replaces_or_adds_readers_see_one_version_or_the_other(
    spark: SparkSession, tmp_path: Path, hours: list[str]
) -> None:
    out = tmp_path / "out"
    wanted = [run(spark, hours[:12], out).events["call"]]
    seen: set[int] = set()
    over = threading.Event()

    def reading() -> None:
        while not over.is_set():
            try:
                seen.add(by_arrow(out / "current" / "calls"))
            except FileNotFoundError:
                """The version changed between listing and opening, and that is said; no count is wrong."""

    reader = threading.Thread(target=reading)
    reader.start()
    try:
        wanted.append(run(spark, hours[:24], out).events["call"])
        wanted.append(run(spark, hours, out, append=True).events["call"])
    finally:
        over.set()
        reader.join()
    assert len(set(wanted)) == 3
    assert seen <= set(wanted)
    assert set(wanted[:2]) <= seen
    assert counted(out, by_pandas) == Results(out).manifest.events


def test_a_file_that_a_lost_attempt_left_is_not_seen(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that is killed while it writes, or whose task runs a second time, leaves files that count for
    nothing."""
    out = tmp_path / "out"
    real = job._JobRun._report

    def left(made: Any, *given: Any) -> Any:
        for path in out.glob("data/*/calls/*/*/*.parquet"):
            path.with_name("part-of-a-lost-attempt.parquet").write_bytes(path.read_bytes())
        return real(made, *given)

    monkeypatch.setattr(job._JobRun, "_report", left)
    job.run(spark, sample("java-groups").paths, out, Config())
    assert counted(out, by_pandas) == Results(out).manifest.events


def test_a_stream_has_one_path_too(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it joined stays in `data` for a while, for those who asked the manifest."""
    monkeypatch.setattr(stream, "JOINED", 2)
    followed = Followed(spark, tmp_path)
    before: list[tuple[Path, int]] = []
    for file in rotated(sample("librdkafka-groups").paths, tmp_path / "all", 300):
        come([file], followed.source)
        followed.run()
        wanted = Results(followed.out).manifest.events
        for name, read in READERS.items():
            assert counted(followed.out, read) == wanted, name
        # Who resolves the link first reads that version to its end, whatever comes meanwhile.
        assert all(by_arrow(table) == count for table, count in before)
        before = [*before, ((followed.out / "current").resolve() / "calls", wanted["call"])]
    assert by_arrow(followed.out / "data" / "stream" / "calls") > wanted["call"]
    followed.run(end=True)
    assert counted(followed.out, by_duckdb) == Results(followed.out).manifest.events
