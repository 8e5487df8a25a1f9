"""Small files are joined while the driver writes its report."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest

from kwsniff.capture.place import Place
from kwsniff.config import Config
from kwsniff.spark import finish
from kwsniff.spark.finish import Finish, grouped
from kwsniff.spark.splits import SplitRun, make_plan
from kwsniff.spark.version import Version
from tests.samples import sample

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATHS = sample("rotation").paths


def finishing(spark: SparkSession, folder: Path) -> Finish:
    """A run that is decoded, each split a group of its own."""
    run = SplitRun(
        spark, make_plan(spark, PATHS, Config(), 20_000), Config(), Place.of(folder / "staging"), 0
    )
    assert run.decode()
    run.join()
    place = Version(Place.of(folder / "out"), None)
    return Finish(spark, grouped(run.files, 1, run.corrections), place, names=run.names)


def watched(monkeypatch: pytest.MonkeyPatch, before: Callable[[], Any]) -> list[Any]:
    """What joining small files came to, with something done before."""
    real, seen = finish.compacted, []

    def compacted(*given: Any) -> Any:
        before()
        seen.append(real(*given))
        return seen[-1]

    monkeypatch.setattr(finish, "compacted", compacted)
    monkeypatch.setattr(finish, "SEVERAL", 2)
    return seen


def test_files_are_joined_to_the_end_whatever_fails_meanwhile(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = Event()
    joined = watched(monkeypatch, lambda: failing.wait(60))
    made = finishing(spark, tmp_path)
    with pytest.raises(OSError, match="of ours"), made.running():  # noqa: PT012
        assert not joined
        failing.set()
        raise OSError("of ours")
    assert len(joined) == 1
    assert not made.files


def test_that_they_could_not_be_joined_comes_out(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise OSError("no space")

    watched(monkeypatch, fail)
    with pytest.raises(OSError, match="no space"):
        finishing(spark, tmp_path).run()


def test_joining_has_the_description_of_its_step(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context, name = spark.sparkContext, "spark.job.description"
    said: list[str | None] = []
    joined = watched(monkeypatch, lambda: said.append(context.getLocalProperty(name)))
    made = finishing(spark, tmp_path)
    context.setJobDescription("kwsniff: some step")
    try:
        made.run()
    finally:
        context.setLocalProperty(name, None)  # type: ignore[arg-type]
    assert said == ["kwsniff: some step"]
    assert made.files == joined[0]


INTERRUPTED = """
import os, signal, sys
from kwsniff.cli.running import run
from kwsniff.spark import finish

real = finish.bundles
def bundles(files, *how, **more):
    os.kill(os.getpid(), signal.SIGINT)
    return real(files, *how, **more)
finish.bundles = bundles
sys.exit(run(sys.argv[1:]))
"""


def test_ctrl_c_meanwhile_leaves_nothing_behind(tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = [sys.executable, "-c", INTERRUPTED, "pipeline", *PATHS, "-q"]
    done = subprocess.run(
        [*command, "--out", str(out), "--master", "local[2]"],
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 130, done.stderr
    assert "Traceback" not in done.stderr
    assert not (out / "manifest.json").exists()
    assert not (out / "_staging").exists()
