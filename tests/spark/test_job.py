"""What a run leaves in its directory, and what a second run makes of it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from kwsniff.analysis.findings import Findings
from kwsniff.analysis.report import Report
from kwsniff.analysis.stored import is_stored, stored_events
from kwsniff.capture.place import Place
from kwsniff.capture.source import CaptureTotals
from kwsniff.config import Config
from kwsniff.count.naming import named
from kwsniff.rows.schema import EVENTS
from kwsniff.run.offline import events
from kwsniff.spark import job, version
from kwsniff.spark.results import OutputError, Results
from kwsniff.spark.resulttables import TABLES
from kwsniff.spark.version import Lock
from kwsniff.spec.load import catalog
from tests.damage.disk import small_disk
from tests.page import page_of
from tests.page.test_html import data_of
from tests.samples import CAPTURES, sample
from tests.spark.streams import one_process

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMES = ["librdkafka-groups", "java-groups", "tls"]
ROOT = CAPTURES.parent
PATHS = [path for name in NAMES for path in sample(name).paths]


@pytest.fixture(scope="module")
def made(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("pipeline") / "out"
    job.run(spark, PATHS, out, Config())
    return out


def stored(out: Path) -> pa.Table:
    return Results(out).events().select(EVENTS.names)


def test_events_are_those_of_one_process_with_topic_names(made: Path) -> None:
    assert stored(made).equals(one_process(PATHS))


def test_a_row_lies_in_the_folder_of_its_date_and_hour(made: Path) -> None:
    table = ds.dataset(made / "current" / "calls", format="parquet", partitioning="hive").to_table()
    assert table.num_rows == Results(made).manifest.events["call"]
    assert pc.strftime(table["time"], "%Y-%m-%d").to_pylist() == table["date"].to_pylist()
    assert pc.hour(table["time"]).to_pylist() == table["hour"].to_pylist()


@pytest.mark.parametrize("name", ["api", "client", "topic", "broker", "error"])
def test_statistics_are_those_of_the_report(made: Path, tmp_path: Path, name: str) -> None:
    errors = {code: (error.name, error.retriable) for code, error in catalog().errors.items()}
    Report.from_events(named(events(PATHS, Config())), errors=errors).write_csv(tmp_path)
    expected = pd.read_csv(tmp_path / f"{name}.csv")
    found = pd.read_csv(made / "current" / "statistics" / f"{name}.csv")
    assert len(expected)
    pd.testing.assert_frame_equal(found, expected)


def test_findings_are_those_of_the_report(made: Path) -> None:
    errors = {code: (error.name, error.retriable) for code, error in catalog().errors.items()}
    one = Findings()
    for batch in named(events(PATHS, Config())):
        one.take(batch)
    wanted = one.table(errors).sort_by([("code", "ascending"), ("subject", "ascending")])
    found = Results(made).table("findings").sort_by([("code", "ascending"), ("subject", "ascending")])
    assert found.to_pylist() == wanted.to_pylist()
    assert {"critical", "ok"} < set(found["severity"].to_pylist())
    lag = one.lag()
    assert len(lag)
    keys = [(name, "ascending") for name in lag.column_names]
    assert Results(made).table("lag").sort_by(keys).to_pylist() == lag.sort_by(keys).to_pylist()


@pytest.mark.parametrize("table", ["calls", "anomalies", "connections"])
def test_files_say_how_they_are_sorted_and_what_columns_mean(made: Path, table: str) -> None:
    files = Results(made).files(table)
    assert files
    for path in files:
        file = pq.ParquetFile(path)
        for number in range(file.num_row_groups):
            order = file.metadata.row_group(number).sorting_columns
            assert [file.schema_arrow.names[each.column_index] for each in order] == ["time", "position"]
        rows = file.read(["time", "position"])
        assert rows.equals(rows.sort_by([("time", "ascending"), ("position", "ascending")]))
        for field in file.schema_arrow:
            assert field.metadata[b"doc"] == TABLES[table].schema.field(field.name).metadata[b"doc"]


def test_whole_numbers_stay_whole_in_pandas(made: Path) -> None:
    calls = pd.read_parquet(made / "current" / "calls")
    assert calls["response_bytes"].isna().any()
    wanted = {"response_bytes": "Int64", "error_code": "Int32", "api_key": "Int32", "position": "Int64"}
    assert {name: str(calls[name].dtype) for name in wanted} == wanted
    assert calls["response_bytes"].sum() == pc.sum(Results(made).table("calls")["response_bytes"]).as_py()


def test_spark_shows_what_columns_mean(spark: SparkSession, made: Path) -> None:
    frame = spark.read.parquet(str(made / "current" / "calls"))
    comments = {field.name: field.metadata.get("comment") for field in frame.schema}
    assert comments["latency_us"] == "response_time - request_end_time, exact to the nanosecond [µs]"
    assert frame.count() == Results(made).manifest.events["call"]


def test_the_manifest_tells_what_was_read(made: Path) -> None:
    assert (made / "_SUCCESS").exists()
    manifest = json.loads((made / "manifest.json").read_text())
    assert manifest["version"] == 1
    assert {each["path"]: each["bytes"] for each in manifest["inputs"]} == {
        path: Path(path).stat().st_size for path in PATHS
    }
    totals = CaptureTotals()
    rows = sum(batch.num_rows for batch in events(PATHS, Config(), totals=totals))
    assert manifest["capture"]["packets"] == totals.packets
    assert manifest["capture"]["last_time_ns"] == totals.last_time_ns
    assert sum(manifest["events"].values()) == rows


def test_a_second_run_leaves_the_same_results(spark: SparkSession, tmp_path: Path) -> None:
    out = tmp_path / "out"
    paths = sample("midstream").paths
    job.run(spark, paths, out, Config())
    first = stored(out)
    job.run(spark, paths, out, Config())
    assert stored(out).equals(first)
    assert not (out / "_staging").exists()
    versions = [path.name[:6] for path in (out / "data").iterdir()]
    assert sorted(versions) == ["000001", "000002"]  # who reads the first one now is not left without files
    job.run(spark, paths, out, Config())
    assert sorted(path.name[:6] for path in (out / "data").iterdir()) == ["000002", "000003"]


def test_append_reads_only_what_is_new_and_leaves_what_is_there(spark: SparkSession, tmp_path: Path) -> None:
    out = tmp_path / "out"
    first, second = sample("midstream").paths, sample("java-groups").paths
    job.run(spark, first, out, Config())
    files = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in out.rglob("*.parquet")}
    kept = [file for file in Results(out).manifest.files if file.table not in ("findings", "lag")]
    added = job.run(spark, [*first, *second], out, Config(), append=True)
    assert [each.path for each in added.read] == second
    assert kept
    assert [file for file in added.manifest.files if file in kept] == kept
    assert all((path.stat().st_mtime_ns, path.read_bytes()) == known for path, known in files.items())
    apart = [batch for paths in (first, second) for batch in named(events(paths, Config()))]
    assert stored(out).equals(pa.Table.from_batches(apart, EVENTS))
    assert added.manifest.capture["files"] == 2
    again = job.run(spark, [*first, *second], out, Config(), append=True)
    assert again.read == []
    assert again.report is None


def test_append_refuses_other_settings(spark: SparkSession, tmp_path: Path) -> None:
    job.run(spark, sample("midstream").paths, tmp_path / "out", Config())
    with pytest.raises(OutputError, match="other settings"):
        job.run(spark, PATHS, tmp_path / "out", Config(ports=(1,)), append=True)


def test_a_directory_with_other_files_is_left_alone(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(OutputError, match=r"holds other files \(notes\.txt\)"):
        job.run(spark, PATHS, tmp_path, Config())
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_the_directory_of_a_stream_is_left_alone(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / ".stream").mkdir()
    with pytest.raises(OutputError, match="belongs to a stream"):
        job.run(spark, PATHS, tmp_path, Config())


def test_damage_in_the_input_is_told(spark: SparkSession, tmp_path: Path) -> None:
    cut = tmp_path / "cut.pcap"
    shutil.copy(CAPTURES / "librdkafka-errors.pcap", cut)
    cut.write_bytes(cut.read_bytes()[:-7])
    result = job.run(spark, [str(cut)], tmp_path / "out", Config())
    assert result.damaged
    assert result.manifest.capture["cut_short"] == 1


def test_a_second_run_is_refused_in_one_line(spark: SparkSession, tmp_path: Path) -> None:
    out = tmp_path / "out"
    lock = Lock(Place.of(out))
    lock.take()
    try:
        with pytest.raises(OutputError, match=f"another run writes to it .process {os.getpid()} on "):
            job.run(spark, PATHS, out, Config())
    finally:
        lock.release()
    job.run(spark, sample("midstream").paths, out, Config())


def test_other_commands_read_the_tables(made: Path) -> None:
    assert is_stored(str(made))
    found = pa.Table.from_batches(list(stored_events(str(made))), EVENTS)
    order = [("time", "ascending"), ("connection", "ascending"), ("correlation_id", "ascending")]
    assert found.sort_by(order).equals(stored(made).sort_by(order))
    few = pa.Table.from_batches(list(stored_events(str(made), frozenset(("event", "api")))), EVENTS)
    assert few.num_rows == found.num_rows
    assert few["api"].null_count == found["api"].null_count
    assert few["latency_us"].null_count == few.num_rows


PLACES: dict[str, tuple[Any, str, bool]] = {
    "unpublished": (version.Version, "publish", True),
    "staged": (job._JobRun, "_report", True),
    "written": (job._JobRun, "_findings", False),
    "published": (job.Manifest, "write", False),
    "shown": (version, "show", False),
}
"""Where a run ends: at a step, before or after its work."""


def ending(place: str, end: Callable[[], Any], patch: pytest.MonkeyPatch) -> None:
    """Let runs of this process end there."""
    owner, name, before = PLACES[place]
    real = getattr(owner, name)

    def work(*given: Any, **named: Any) -> Any:
        if not before:
            real(*given, **named)
        end()

    patch.setattr(owner, name, work)


KILLED = """
import os, signal, sys
import pytest
from kwsniff.cli.running import run
from tests.spark.test_job import ending

ending(sys.argv[1], lambda: os.kill(0, signal.SIGKILL), pytest.MonkeyPatch())
sys.exit(run(sys.argv[2:]))
"""


def killed(paths: list[str], out: Path, place: str, append: bool) -> None:
    """Run the pipeline as a process that is killed there, with all that it started."""
    arguments = ["pipeline", *paths, "--out", str(out), *(["--append"] if append else [])]
    ended = subprocess.run(
        [sys.executable, "-c", KILLED, place, *arguments], stdout=subprocess.DEVNULL, cwd=ROOT,
        stderr=subprocess.DEVNULL, start_new_session=True, check=False,
    )  # fmt: skip
    assert ended.returncode == -signal.SIGKILL


@pytest.mark.costly
@pytest.mark.one_of(5)
@pytest.mark.parametrize("append", [False, True], ids=["again", "append"])
@pytest.mark.parametrize("place", PLACES)
def test_a_run_killed_anywhere_leaves_a_whole_result(
    spark: SparkSession, tmp_path: Path, place: str, append: bool
) -> None:
    leaves_a_whole_result(spark, tmp_path, killed, place, append)


@pytest.mark.one_of(6)
@pytest.mark.parametrize("append", [True, False], ids=["append", "again"])
@pytest.mark.parametrize("place", PLACES)
def test_a_run_that_breaks_off_leaves_a_whole_result(
    spark: SparkSession, tmp_path: Path, place: str, append: bool
) -> None:
    def broken_off(paths: list[str], out: Path, place: str, append: bool) -> None:
        def end() -> None:
            raise RuntimeError("broken off")

        with pytest.MonkeyPatch.context() as patch:
            ending(place, end, patch)
            with pytest.raises(RuntimeError, match="broken off"):
                job.run(spark, paths, out, Config(), append=append)

    leaves_a_whole_result(spark, tmp_path, broken_off, place, append)


def leaves_a_whole_result(
    spark: SparkSession,
    tmp_path: Path,
    ended: Callable[[list[str], Path, str, bool], None],
    place: str,
    append: bool,
) -> None:
    """What stands there is what the run before left, or the run that ended; the next one works."""
    out, fresh = tmp_path / "out", tmp_path / "fresh"
    first, second = sample("midstream").paths, sample("java-groups").paths
    paths = [*first, *second] if append else second
    job.run(spark, first, out, Config())
    before = stored(out)
    ended(paths, out, place, append)
    job.run(spark, first, fresh, Config())
    undisturbed = job.run(spark, paths, fresh, Config(), append=append)
    if place in ("published", "shown"):
        assert stored(out).equals(stored(fresh))
    else:
        assert stored(out).equals(before)
        current = ds.dataset(out / "current" / "calls", format="parquet")
        assert current.count_rows() == Results(out).manifest.events["call"]
    again = job.run(spark, paths, out, Config(), append=append)
    assert stored(out).equals(stored(fresh))
    current = ds.dataset(out / "current" / "calls", format="parquet")
    assert current.count_rows() == Results(out).manifest.events["call"]
    assert again.manifest.events == undisturbed.manifest.events
    assert not (out / "_staging").exists()


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_a_full_disk_leaves_no_success(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small") as disk:
        command = [sys.executable, "-m", "kwsniff", "pipeline", *PATHS, "--out", str(disk / "out")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 2, done.stderr[-1000:]
        assert done.stderr.splitlines()[-1] == "kwsniff: [Errno 28] No space left on device"
        assert not list(disk.rglob("_SUCCESS"))


# The page that the pipeline writes with its statistics is that of `kwsniff report --html`.


def test_the_pipeline_writes_the_page_of_the_report(spark: SparkSession, tmp_path: Path) -> None:
    paths = sample("librdkafka-groups").paths
    job.run(spark, paths, tmp_path / "out", Config())
    (page,) = tmp_path.rglob("report.html")
    written = data_of(page.read_text())
    made = data_of(page_of(named(events(paths, Config())), paths))
    for name in ("timeline", "latency", "matrix", "groups"):
        assert written[name] == made[name]
    for name in ("api", "client", "errors", "anomalies"):
        assert written["tables"][name]["rows"] == made["tables"][name]["rows"]
    assert len(written["slow"]) == 50
