"""The ways to run the pipeline that docs/spark.md shows, and what is said when a part of one dies."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyspark
import pytest

from kwsniff.spark.sparksession import java_home
from tests.samples import sample
from tests.spark import documented, test_cluster
from tests.spark.streams import one_process, written
from tests.spark.test_cluster import children

ROOT = Path(__file__).parents[2]
GROUPS = sample("librdkafka-groups").paths
PATIENCE = 240
cluster, master, environment = test_cluster.cluster, test_cluster.master, test_cluster.environment


@pytest.mark.costly
def test_the_data_source_works_over_connect(tmp_path: Path) -> None:
    """The page's own lines, and a filter that must leave the other counts alone."""
    (code,) = (code for code, _ in documented.python() if "sc://" in code)
    code = code.replace("sc://host:15002", "local[1]").replace('"/mnt/captures"', repr(GROUPS))
    code += (
        "print(type(spark).__module__, calls.where(\"api = 'Fetch'\").count(), calls.count())\nspark.stop()\n"
    )
    own = {**os.environ, "JAVA_HOME": java_home(), "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [sys.executable, "-c", code], env=own, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    calls = sample("librdkafka-groups").calls
    fetches = sum(row["api"] == "Fetch" for row in calls)
    counts = [str(len(calls)), "pyspark.sql.connect.session", str(fetches), str(len(calls))]
    assert done.stdout.split() == counts, done.stderr[-2000:]


def test_the_pipeline_over_connect_is_refused_in_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "kwsniff", "pipeline", *GROUPS, "--out", str(tmp_path / "out")]
    done = subprocess.run(
        [*command, "--master", "sc://127.0.0.1:15002"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("kwsniff: sc://127.0.0.1:15002: the pipeline needs a master such as ")
    assert not (tmp_path / "out").exists()


def is_java(pid: int) -> bool:
    return "java" in Path(f"/proc/{pid}/comm").read_text()


def is_worker(pid: int) -> bool:
    return b"pyspark" in Path(f"/proc/{pid}/cmdline").read_bytes() and not is_java(pid)


@pytest.mark.costly
@pytest.mark.parametrize(("victim", "said"), [(is_java, "Spark"), (is_worker, "Spark failed")])
def test_what_dies_is_told_in_one_line_and_can_be_run_again(
    tmp_path: Path, victim: Callable[[int], bool], said: str
) -> None:
    out = tmp_path / "out"
    command = [
        sys.executable,
        "-m",
        "kwsniff",
        "pipeline",
        *GROUPS,
        "--out",
        str(out),
        "--master",
        "local[2]",
    ]
    run = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        until = time.monotonic() + PATIENCE
        while not list(out.glob("_staging/*/counted-0/*.arrow")) and not list(out.glob("data/*/calls")):
            assert run.poll() is None, run.communicate()
            assert time.monotonic() < until
            time.sleep(0.002)
        os.kill(run.pid, signal.SIGSTOP)  # or it would be over
        found = [each for each in children(run.pid) if victim(each)]
        for each in found:
            os.kill(each, signal.SIGKILL)
        os.kill(run.pid, signal.SIGCONT)
        _, errors = run.communicate(timeout=PATIENCE)
    finally:
        if run.poll() is None:
            os.killpg(run.pid, signal.SIGKILL)
    assert found
    if run.returncode:  # workers that were idle are not missed
        lines = [line for line in errors.splitlines() if not re.search(r"\d tasks|^kwsniff: [a-z ]+$", line)]
        assert len(lines) == 1, errors
        assert lines[0].startswith(f"kwsniff: {said}")
        assert not (out / "manifest.json").exists()
    again = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert again.returncode == 0, again.stderr
    assert written(out).equals(one_process(GROUPS))


@pytest.mark.slow
def test_spark_submit_ships_a_slim_archive(master: str, environment: dict[str, str], tmp_path: Path) -> None:
    """The page's lines, in one shell; the driver finds its Python, and workers theirs in the archive."""
    making = re.compile(r"python -m venv|pip install venv|MAIN=")
    commands = [line for line in documented.commands() if making.match(line)]
    (submit,) = (line for line in documented.commands() if "spark-submit --master spark://" in line)
    script = "\n".join(
        [*commands, "rm -r slim", f"{submit} --partitions 2"]
    )  # the archive is all that is left
    (tmp_path / "captures").mkdir()
    for path in GROUPS:
        shutil.copy2(path, tmp_path / "captures")
    places = {"kwsniff[remote]": f"{ROOT}[remote]", "spark://head:7077": master, "/mnt": tmp_path}
    for there, here in places.items():
        script = script.replace(there, str(here))
    programs = [Path(sys.executable).parent, Path(pyspark.__file__).parent / "bin", os.environ["PATH"]]
    own = {"PATH": os.pathsep.join(map(str, programs)), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["bash", "-euc", script], cwd=tmp_path, env={**environment, **own}, capture_output=True, text=True,
        timeout=4 * PATIENCE, check=False,
    )  # fmt: skip
    assert done.returncode == 0, (
        done.stdout[-1000:] + done.stderr[-2000:]
    )  # spark-submit puts all on the former
    assert (tmp_path / "slim.tar.gz").stat().st_size < 250e6
    assert written(tmp_path / "results").drop("capture").equals(one_process(GROUPS).drop("capture"))


@pytest.mark.parametrize("master", ["local[x]", "local[0]", "nonsense", "spark://head"])
def test_a_master_that_spark_does_not_know_is_told_in_one_line(tmp_path: Path, master: str) -> None:
    command = [sys.executable, "-m", "kwsniff", "pipeline", *GROUPS, "--out", str(tmp_path / "out")]
    done = subprocess.run([*command, "--master", master], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    known = "Spark knows local[4], local[*], spark://HOST:PORT, yarn and k8s://URL"
    assert done.stderr == f"kwsniff: --master {master}: {known}\n"
    assert not (tmp_path / "out").exists()


UI = """
import json, sys, time, urllib.request
from pyspark.sql import SparkSession
from kwsniff.config import Config
from kwsniff.spark import finish, job
from kwsniff.spark.sparksession import context

spark = context("local[2]")
print(spark.getConf().get("spark.ui.enabled"))
finish.FILES_BYTES, finish.LEAST_BYTES, finish.SEVERAL = 1, 1, 2
job.run(spark, sys.argv[2:], sys.argv[1], Config(), split=20_000)
base = spark.uiWebUrl + "/api/v1/applications/" + spark.applicationId
with urllib.request.urlopen(base + "/stages") as answer:
    print(json.dumps(sorted({each["name"] for each in json.load(answer)})))
"""


@pytest.mark.costly
@pytest.mark.parametrize("way", ["submitted", "defaults"])
def test_spark_s_page_is_there_for_who_asks_for_it_and_names_what_is_done(tmp_path: Path, way: str) -> None:
    """Settings of the user count for more than those of kwsniff."""
    script = tmp_path / "run.py"
    script.write_text(UI)
    settings = {"spark.ui.enabled": "true", "spark.ui.port": "0"}
    own = {**os.environ, "JAVA_HOME": java_home(), "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
    command = [sys.executable]
    if way == "submitted":
        command = [f"{Path(pyspark.__file__).parent}/bin/spark-submit", "--master", "local[2]"]
        command += [part for name, text in settings.items() for part in ("--conf", f"{name}={text}")]
    else:
        own["SPARK_CONF_DIR"] = str(tmp_path)
        lines = [f"{name} {text}\n" for name, text in settings.items()]
        (tmp_path / "spark-defaults.conf").write_text("".join(lines))
    paths = sample("rotation").paths
    done = subprocess.run(
        [*command, str(script), str(tmp_path / "out"), *paths], env=own, capture_output=True, text=True,
        timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    enabled, stages = done.stdout.splitlines()[-2:]
    assert enabled == "true"
    wanted = {"decode splits", "join splits", "write tables", "join small files"}
    assert wanted <= set(json.loads(stages))
    assert not any("collect" in name or "runJob" in name for name in json.loads(stages))
    assert "[Stage " not in done.stderr
