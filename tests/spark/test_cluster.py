"""The pipeline on a cluster: a master and two workers of Spark's own on this machine, ended by the test."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyspark
import pytest

from kwsniff.spark.sparksession import java_home
from tests.samples import sample
from tests.spark import documented
from tests.spark.conftest import free_port
from tests.spark.rotated import rotated
from tests.spark.streams import one_process, written

pytestmark = pytest.mark.costly

ROOT = Path(__file__).parents[2]
STARTER = Path(pyspark.__file__).parent / "bin" / "spark-class"
PATIENCE = 240


def listens(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="module")
def environment() -> dict[str, str]:
    return {**os.environ, "JAVA_HOME": java_home(), "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": str(ROOT)}


@dataclass
class Cluster:
    """A master and its workers."""

    url: str
    place: Path
    workers: list[subprocess.Popen[bytes]]


@pytest.fixture(scope="module")
def cluster(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster with two workers of one core each."""
    place = tmp_path_factory.mktemp("cluster")
    port = free_port()
    url = f"spark://127.0.0.1:{port}"
    role = "org.apache.spark.deploy"
    started: list[subprocess.Popen[bytes]] = []

    def start(*command: str) -> None:
        with (place / "log").open("ab") as log:
            started.append(
                subprocess.Popen(
                    [STARTER, *command], cwd=place, env=environment, stdout=log, stderr=log,
                    start_new_session=True,
                )
            )  # fmt: skip

    try:
        start(f"{role}.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0")
        until = time.monotonic() + PATIENCE
        while not listens(port):
            assert time.monotonic() < until, (place / "log").read_text()
            time.sleep(0.1)
        worker = ["--host", "127.0.0.1", "--webui-port", "0", "--cores", "1", "--memory", "1g"]
        for name in ("first", "second"):
            start(f"{role}.worker.Worker", *worker, "--work-dir", str(place / name), url)
        while (place / "log").read_text().count("Registering worker") < 2:
            assert time.monotonic() < until, (place / "log").read_text()
            time.sleep(0.1)
        yield Cluster(url, place, started[1:])
    finally:
        for process in reversed(started):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            process.wait(60)


@pytest.fixture
def master(cluster: Cluster) -> str:
    return cluster.url


def piped(environment: dict[str, str], *arguments: str) -> str:
    """What a run of `kwsniff pipeline` says; it must succeed."""
    done = subprocess.run(
        [sys.executable, "-m", "kwsniff", "pipeline", *arguments], cwd=ROOT, env=environment, text=True,
        capture_output=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_cluster_gives_the_events_of_one_process(
    master: str, environment: dict[str, str], tmp_path: Path
) -> None:
    """The command is that of docs/spark.md."""
    (command,) = (each for each in documented.commands() if "kwsniff" in each and "--master spark:" in each)
    here = command.replace("/mnt", str(tmp_path)).replace("spark://head:7077", master)
    (tmp_path / "captures").mkdir()
    paths = [shutil.copy2(path, tmp_path / "captures") for path in sample("librdkafka-groups").paths]
    piped(environment, *shlex.split(here)[2:], "--partitions", "3")
    assert written(tmp_path / "results").equals(one_process(paths))


def test_a_stream_runs_on_a_cluster(master: str, environment: dict[str, str], tmp_path: Path) -> None:
    files = rotated(sample("midstream").paths, tmp_path / "in", 300)
    arguments = ["--follow", str(tmp_path / "in"), "--out", str(tmp_path / "out"), "--master", master]
    said = piped(environment, *arguments, "--end", "--settle", "0", "--partitions", "2")
    expected = one_process([str(file) for file in files])
    assert written(tmp_path / "out").equals(expected)
    calls = expected["event"].to_pylist().count("call")
    assert sum(int(line.split()[2].replace(",", "")) for line in said.splitlines()) == calls


def test_a_worker_that_is_killed_costs_no_row(
    cluster: Cluster, environment: dict[str, str], tmp_path: Path
) -> None:
    paths = sample("librdkafka-groups").paths
    out = tmp_path / "out"
    run = subprocess.Popen(
        [
            sys.executable, "-m", "kwsniff", "pipeline", *paths, "--out", str(out), "--master", cluster.url,
            "--partitions", "6",
        ],
        cwd=ROOT, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    until = time.monotonic() + PATIENCE
    while not list(out.glob("_staging/*/events-of-tasks/*.arrow")):
        assert run.poll() is None, run.communicate()
        assert time.monotonic() < until
        time.sleep(0.01)
    killed = cluster.workers.pop()
    for executor in children(killed.pid):
        with suppress(ProcessLookupError):
            os.kill(executor, signal.SIGKILL)
    killed.kill()
    killed.wait()
    _, errors = run.communicate(timeout=PATIENCE)
    assert run.returncode == 0, errors
    assert written(out).equals(one_process(paths))


def children(pid: int) -> list[int]:
    """The processes that come from one."""
    found = []
    for each in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            number, _, rest = each.read_text().partition(" ")
            if int(rest.rpartition(")")[2].split()[1]) == pid:
                found += [int(number), *children(int(number))]
    return found
