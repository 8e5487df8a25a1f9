"""Every command and every block of Python in docs/spark.md is run by a test, or is on paper and says so.

What the page says is taken as it stands but for places: `/mnt`, `/tmp`, the bucket, the master.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import tomllib
from contextlib import chdir
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from packaging.requirements import Requirement

from kwsniff.cli.running import run
from kwsniff.config import Config
from kwsniff.count.naming import named
from kwsniff.rows.schema import EVENTS
from kwsniff.run.offline import events
from kwsniff.spark.results import Results
from tests.samples import CAPTURES, sample
from tests.spark import documented
from tests.spark.rotated import rotated

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATIENCE = 300
PAPER = "on paper"
"""What cannot be run where tests are: there is neither YARN nor Kubernetes."""
HERE = "test_commands_of_the_page_do_what_they_say"
EXTRAS = "test_what_is_to_be_installed_is_here"
SUBMITTED = "tests.spark.test_ways:test_spark_submit_ships_a_slim_archive"
RUN_BY = {
    "pip install 'kwsniff[spark]'": EXTRAS,
    "pip install 'kwsniff[spark,lake]'": EXTRAS,
    "kwsniff pipeline captures/ --out results": HERE,
    "kwsniff pipeline captures/librdkafka-groups.pcapng --out /tmp/results": HERE,
    "kwsniff pipeline captures/java-groups.pcapng.zst --out /tmp/results --append": HERE,
    "kwsniff pipeline captures/ --out /tmp/lake --format delta": HERE,
    "kwsniff pipeline captures/ --out s3://bucket/lake --format delta":
        "tests.spark.test_s3:test_delta_tables_are_written_there",
    "kwsniff pipeline captures/ --out lake --format iceberg": HERE,
    "kwsniff slow results": HERE,
    "duckdb -c": "test_the_query_for_duckdb_s_own_shell",
    "tcpdump -i any -G 60": "tests.spark.rotated:rotated",  # leaves files as it would
    "kwsniff pipeline --follow /captures/broker1 --out results": "test_a_directory_is_followed",
    "kwsniff pipeline captures/ --out results --master 'local[4]'": "test_a_number_of_cores",
    "kwsniff pipeline /mnt/captures --out /mnt/results --master spark://head:7077":
        "tests.spark.test_cluster:test_a_cluster_gives_the_events_of_one_process",
    "kwsniff pipeline --master sc://…":
        "tests.spark.test_ways:test_the_pipeline_over_connect_is_refused_in_one_line",
    "python -m venv slim && ": SUBMITTED,
    "pip install venv-pack && ": SUBMITTED,
    "MAIN=$(python -c ": SUBMITTED,
    "spark-submit --master spark://head:7077 ": SUBMITTED,
    "spark-submit --master yarn ": PAPER,
    "spark-submit --master k8s://https://cluster:6443 ": PAPER,
}  # fmt: skip
"""What runs each command, by its beginning: a test of this module, or of another one."""
ONCE = {
    'remote("sc://': "tests.spark.test_ways:test_the_data_source_works_over_connect",
    "spark.readStream": "test_a_stream_of_the_page_is_grouped_by_spark",
}
"""Blocks of Python that are run by another test, by what stands in them."""


def run_by(command: str) -> str | None:
    found = [name for begin, name in RUN_BY.items() if command == begin or _begins(command, begin)]
    return found[0] if len(found) == 1 else None


def _begins(command: str, begin: str) -> bool:
    return not begin.startswith("kwsniff") and command.startswith(begin)


def elsewhere(code: str) -> bool:
    """Whether another test runs a block of Python."""
    return any(mark in code for mark in ONCE)


@pytest.mark.parametrize("command", documented.commands())
def test_every_command_is_run_by_a_test_or_is_on_paper(command: str) -> None:
    name = run_by(command)
    assert name is not None, "a command that no test runs"
    if name != PAPER:
        assert is_there(name)


def is_there(name: str) -> bool:
    module, _, function = name.rpartition(":")
    return callable(getattr(importlib.import_module(module or __name__), function, None))


def test_no_test_is_named_for_a_command_that_is_gone() -> None:
    known = documented.commands()
    for begin in RUN_BY:
        assert any(command == begin or _begins(command, begin) for command in known), begin
    assert all(any(mark in code for code, _ in documented.python()) for mark in ONCE)
    assert all(map(is_there, ONCE.values()))


@pytest.mark.parametrize("command", [each for each in documented.commands() if run_by(each) == EXTRAS])
def test_what_is_to_be_installed_is_here(command: str) -> None:
    project = tomllib.loads((documented.ROOT / "pyproject.toml").read_text())["project"]
    wanted = Requirement(shlex.split(command)[-1])
    assert wanted.name == project["name"]
    for extra in wanted.extras:
        for each in map(Requirement, project["optional-dependencies"][extra]):
            if each.name != wanted.name:
                assert importlib.metadata.version(each.name) in each.specifier


# On this machine


def expected(*paths: Path) -> pa.Table:
    """What one process makes of them."""
    return pa.Table.from_batches(list(named(events([str(path) for path in paths], Config()))), EVENTS)


class Desk:
    """A folder with captures in which the page's commands are given."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.captures = place / "captures"
        (place / "tmp").mkdir()
        self.captures.mkdir()
        for name in ("librdkafka-groups.pcapng", "java-groups.pcapng.zst", "rotation"):
            (self.captures / name).symlink_to(CAPTURES / name)

    def text(self, text: str) -> str:
        """What the page says, with places here."""
        for there in ("tmp", "data"):
            text = text.replace(f"/{there}/", f"{self.place}/{there}/")
        return text

    def command(self, text: str) -> list[str]:
        """Without the program."""
        return shlex.split(self.text(text))[1:]


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    return Desk(tmp_path_factory.mktemp("desk"))


@pytest.fixture(scope="module")
def given(spark: SparkSession, desk: Desk) -> dict[str, int]:
    """The page's commands, given one after the other in one session, with their exit codes."""
    here = [command for command in documented.commands() if run_by(command) == HERE]
    with chdir(desk.place):
        return {command: run(desk.command(command)) for command in here}


def rows_of(table: pa.Table) -> list[str]:
    """In no order, and whatever the paths of captures."""
    names = [name for name in EVENTS.names if name != "capture"]
    return sorted(map(str, table.select(names).to_pylist()))


@pytest.mark.costly
def test_commands_of_the_page_do_what_they_say(given: dict[str, int], desk: Desk) -> None:
    assert set(given.values()) == {0}, given
    everything = rows_of(expected(desk.captures))
    for out in (desk.place / "results", desk.place / "tmp" / "lake", desk.place / "lake"):
        assert rows_of(Results(out).events()) == everything
    # The first command's files, and those of the second one.
    both = [
        row
        for name in ("librdkafka-groups.pcapng", "java-groups.pcapng.zst")
        for row in rows_of(expected(desk.captures / name))
    ]
    assert rows_of(Results(desk.place / "tmp" / "results").events()) == sorted(both)


@pytest.mark.costly
def test_the_query_for_duckdb_s_own_shell(given: dict[str, int], desk: Desk) -> None:
    import duckdb

    (command,) = (each for each in documented.commands() if each.startswith("duckdb -c "))
    with chdir(desk.place):
        assert duckdb.connect().sql(shlex.split(command)[2]).to_arrow_table().num_rows == 5


@pytest.mark.costly
def test_python_of_the_page_prints_what_it_shows(
    spark: SparkSession, given: dict[str, int], desk: Desk, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """One block after the other, as in a notebook that has a session."""
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.chdir(desk.place)
    followed_to_the_end(desk)
    said: dict[str, str] = {}
    known: dict[str, Any] = {}
    blocks = [block for block in documented.python() if not elsewhere(block[0])]
    for code, shown in blocks:
        capsys.readouterr()
        if "windows = " in code:
            code = code.replace('Results("results")', 'Results("stream")')
        exec(compile(desk.text(code), "docs/spark.md", "exec"), known)
        said[code] = capsys.readouterr().out
        if shown is not None:
            assert said[code].strip() == shown.strip()
    assert len(known["windows"])
    (counts,) = (text for code, text in said.items() if "job.run" in code)
    rows = expected(desk.captures)["event"].to_pylist()
    files = sum(each.is_file() for each in desk.captures.iterdir())
    assert counts == f"{rows.count('call')} calls in {files} files\n"


def followed_to_the_end(desk: Desk) -> None:
    """A stream's results, in `stream`."""
    rotated(sample("librdkafka-groups").paths, desk.place / "rotated", 300)
    options = "--window 5s --late 1s --settle 0 --end --master 'local[2]'"
    process = begun(desk, f"kwsniff pipeline --follow rotated --out stream {options}")
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, errors


# Processes of their own


def begun(desk: Desk, command: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "kwsniff", *desk.command(command)], cwd=desk.place, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip


@pytest.mark.costly
def test_a_number_of_cores(desk: Desk) -> None:
    (command,) = (each for each in documented.commands() if "local[4]" in each)
    process = begun(desk, command.replace("results", "cores"))
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, errors
    assert rows_of(Results(desk.place / "cores").events()) == rows_of(expected(desk.captures))


SESSION = """
from pyspark.sql import functions as f
from kwsniff.spark.datasource import register
from kwsniff.spark.sparksession import session
spark = session("local[2]")
register(spark)
"""
FINISHED = """
query.processAllAvailable()
print("rows", sum(each["numInputRows"] for each in query.recentProgress))
query.stop()
"""


@pytest.mark.costly
def test_a_stream_of_the_page_is_grouped_by_spark(desk: Desk) -> None:
    (code,) = (code for code, _ in documented.python() if "spark.readStream" in code)
    done = subprocess.run(
        [sys.executable, "-c", SESSION + desk.text(code) + FINISHED], cwd=desk.place, text=True,
        capture_output=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found = re.search(r"^rows (\d+)$", done.stdout, re.MULTILINE)
    assert found is not None
    assert int(found[1]) > 0


@pytest.mark.costly
def test_a_directory_is_followed(desk: Desk) -> None:
    (command,) = (each for each in documented.commands() if "--follow /captures" in each)
    files = rotated(sample("librdkafka-groups").paths, desk.place / "broker1", 300)
    out = desk.place / "followed"
    here = command.replace("/captures/broker1", "broker1").replace("results", "followed")
    process = begun(desk, here)
    try:
        until = time.monotonic() + PATIENCE
        while not (out / "manifest.json").exists():
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < until
            time.sleep(0.05)
        process.terminate()
        _, errors = process.communicate(timeout=PATIENCE)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, errors
    assert f"{len(files)} files read" in errors
