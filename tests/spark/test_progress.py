"""What is said of a job while it runs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from kwsniff.config import Config
from kwsniff.spark import job, splits, tasks
from kwsniff.spark.tasks import Steps, watched
from tests.samples import sample

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_step_tells_tasks_bytes_and_the_time_left() -> None:
    now = [100.0]
    steps = Steps(lambda: now[0])
    assert steps.line(0, 0) == "starting"
    steps("decoding 2 GB in 3 files", 2_000_000_000)
    assert steps.line(0, 8) == "decoding 2 GB in 3 files: 0/8 tasks, about 0 bytes of 2 GB"
    now[0] += 30
    assert steps.line(2, 8) == "decoding 2 GB in 3 files: 2/8 tasks, about 500 MB of 2 GB, 1:30 left"
    steps("publishing")
    assert steps.line(0, 0) == "publishing"
    steps("stitching")
    now[0] += 100
    assert steps.line(1, 50) == "stitching: 1/50 tasks, 1:21:40 left"


def test_bytes_are_counted_from_the_beginning_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Finding out where to cut is a step of its own: its tasks read no share of the bytes."""
    capture = sample("kafka-0.10").paths[0]
    steps: list[tuple[str, int]] = []
    stages: dict[str, str] = {}
    real = tasks.run

    def run(spark: Any, name: str, *given: Any) -> Any:
        stages[name] = steps[-1][0]
        return real(spark, name, *given)

    monkeypatch.setattr(splits, "run", run)
    job.run(
        spark, [capture], tmp_path / "out", Config(), split=60_000,
        tell=lambda step, size: steps.append((step, size)),
    )  # fmt: skip
    assert [step for step, size in steps if size] == ["decoding 190 kB in 1 file, in 3 parts"]
    assert stages["find where to cut"] == "finding where to cut"
    assert stages["decode splits"] == "decoding 190 kB in 1 file, in 3 parts"


def test_without_a_terminal_a_line_comes_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tasks, "LINE_INTERVAL", 0.05)
    monkeypatch.setattr(tasks, "counts", lambda spark: (3, 4))
    spark: Any = SimpleNamespace()
    with watched(spark) as steps:
        steps("writing")
        time.sleep(0.4)
    lines = capsys.readouterr().err.splitlines()
    assert 2 <= len(lines) <= 9
    assert lines[-1].startswith("kwsniff: writing: 3/4 tasks, 0:00 left")
    with watched(spark, quiet=True):
        time.sleep(0.2)
    assert capsys.readouterr().err == ""


def test_a_job_of_spark_is_told_while_it_runs(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One of its two tasks waits until the line was seen."""
    monkeypatch.setattr(tasks, "LINE_INTERVAL", 0.1)
    seen = tmp_path / "seen"
    place = str(seen)

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            while batch.column(0)[0].as_py() and not Path(place).exists():
                time.sleep(0.02)
            yield batch

    def job() -> int:
        return int(spark.range(0, 2, 1, 2).mapInArrow(work, "id long").count())

    said = ""
    with watched(spark) as steps, ThreadPoolExecutor(1) as thread:
        steps("decoding 2 GB in 1 file", 2_000_000_000)
        count = thread.submit(job)
        until = time.monotonic() + 120
        try:
            while "1/2 tasks" not in said:
                assert not count.done(), said
                assert time.monotonic() < until, said
                said += capsys.readouterr().err
                time.sleep(0.05)
        finally:
            seen.touch()
        assert count.result() == 2
    line = next(line for line in said.splitlines() if "1/2 tasks" in line)
    assert line.startswith("kwsniff: decoding 2 GB in 1 file: 1/2 tasks, about 1 GB of 2 GB, ")
    assert line.endswith(" left")
