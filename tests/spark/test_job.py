"""What a run leaves in its directory, and what a second run makes of it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest

from kwsniff.capture.source import CaptureTotals
from kwsniff.cli.naming import named
from kwsniff.config import Config
from kwsniff.offline import events
from kwsniff.report import Report
from kwsniff.spark import job
from kwsniff.spark.manifest import OutputError
from kwsniff.spec.load import catalog
from kwsniff.table import EVENTS
from tests.damage.disk import small_disk
from tests.samples import CAPTURES, sample

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMES = ["librdkafka-groups", "java-groups", "midstream"]
PATHS = [path for name in NAMES for path in sample(name).paths]


@pytest.fixture(scope="module")
def made(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("pipeline") / "out"
    job.run(spark, PATHS, out, Config())
    return out


def stored(out: Path) -> pa.Table:
    table = ds.dataset(out / "events", format="parquet", partitioning=None).to_table().sort_by("position")
    return table.select(EVENTS.names).cast(EVENTS)


def test_events_are_those_of_one_process_with_topic_names(made: Path) -> None:
    assert stored(made).equals(pa.Table.from_batches(list(named(events(PATHS, Config()))), EVENTS))


def test_a_row_lies_in_the_folder_of_its_date_and_hour(made: Path) -> None:
    table = ds.dataset(made / "events", format="parquet", partitioning="hive").to_table()
    assert table.num_rows == stored(made).num_rows
    assert pc.strftime(table["time"], "%Y-%m-%d").to_pylist() == table["date"].to_pylist()
    assert pc.hour(table["time"]).to_pylist() == table["hour"].to_pylist()


@pytest.mark.parametrize("name", ["api", "client", "topic", "broker", "error", "calls"])
def test_statistics_are_those_of_the_report(made: Path, tmp_path: Path, name: str) -> None:
    errors = {code: (error.name, error.retriable) for code, error in catalog().errors.items()}
    Report.from_events(events(PATHS, Config()), errors=errors, keep_calls=True).write_csv(tmp_path)
    expected = pd.read_csv(tmp_path / f"{name}.csv")
    found = pd.read_csv(made / "statistics" / f"{name}.csv")
    if name == "calls":  # there by time, here as they were completed
        keys = list(expected.columns)
        expected = expected.sort_values(keys, ignore_index=True)
        found = found.sort_values(keys, ignore_index=True)
    assert len(expected)
    pd.testing.assert_frame_equal(found, expected)


def test_anomalies_are_listed_apart(made: Path) -> None:
    anomalies = ds.dataset(made / "anomalies", format="parquet").to_table().sort_by("position")
    everything = stored(made)
    wanted = everything.filter(pc.equal(everything["event"], "anomaly"))
    assert anomalies["code"].to_pylist() == wanted["code"].to_pylist()
    assert anomalies["detail"].to_pylist() == wanted["detail"].to_pylist()


def test_the_manifest_tells_what_was_read(made: Path) -> None:
    assert (made / "_SUCCESS").exists()
    manifest = json.loads((made / "manifest.json").read_text())
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
    assert not (out / job.STAGING).exists()


def test_append_reads_only_what_is_new(spark: SparkSession, tmp_path: Path) -> None:
    out = tmp_path / "out"
    first, second = sample("midstream").paths, sample("java-groups").paths
    job.run(spark, first, out, Config())
    added = job.run(spark, [*first, *second], out, Config(), append=True)
    assert [each.path for each in added.read] == second
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
    (tmp_path / "events").mkdir()
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


def test_a_killed_run_leaves_no_success_and_can_be_run_again(spark: SparkSession, tmp_path: Path) -> None:
    out, fresh = tmp_path / "out", tmp_path / "fresh"
    command = [sys.executable, "-m", "kwsniff", "pipeline", *PATHS, "--out", str(out)]
    killed = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    for _ in range(1200):
        if list(out.glob(f"{job.STAGING}/*")) or killed.poll() is not None:
            break
        time.sleep(0.05)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    assert not (out / "_SUCCESS").exists()
    job.run(spark, PATHS, out, Config())
    job.run(spark, PATHS, fresh, Config())
    assert stored(out).equals(stored(fresh))
    assert (out / "_SUCCESS").exists()


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_a_full_disk_leaves_no_success(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small") as disk:
        command = [sys.executable, "-m", "kwsniff", "pipeline", *PATHS, "--out", str(disk / "out")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 2, done.stderr[-1000:]
        assert done.stderr.splitlines()[-1] == "kwsniff: [Errno 28] No space left on device"
        assert not list(disk.rglob("_SUCCESS"))
