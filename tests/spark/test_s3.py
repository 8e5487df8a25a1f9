"""The pipeline reads from and writes to object storage: a server of its protocol on this machine."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest

from kwsniff.capture.place import Place
from kwsniff.config import Config
from kwsniff.count.naming import named
from kwsniff.rows.schema import EVENTS
from kwsniff.run.offline import events
from kwsniff.spark.results import NAME, Results
from kwsniff.spark.version import CLAIMS, Lock, OutputError
from tests.samples import sample
from tests.spark import documented
from tests.spark.conftest import BUCKET
from tests.spark.rotated import rotated
from tests.spark.streams import one_process

ROOT = Path(__file__).parents[2]
OPTIONS = ["--master", "local[2]"]


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pcap file of more than a megabyte."""
    (file,) = rotated(sample("hot-partition").paths, tmp_path_factory.mktemp("large"), 1 << 30)
    assert file.stat().st_size > 1 << 20
    return file


@pytest.fixture
def place(s3: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    for name, value in s3.items():
        monkeypatch.setenv(name, value)
    return Place.of(f"s3://{BUCKET}/{os.getpid()}-{tmp_path.name}")


def piped(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "kwsniff", "pipeline", *arguments, *OPTIONS], cwd=ROOT, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip


def finished(*arguments: str) -> str:
    process = piped(*arguments)
    _, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors
    return errors


def test_a_large_remote_file_is_read_in_splits_and_results_are_written_there(
    place: Place, capture: Path, tmp_path: Path
) -> None:
    remote = place / "captures" / "large.pcap"
    remote.replace(capture.read_bytes())
    out = place / "results"
    finished(remote.url, "--out", out.url, "--split-size", "1")
    found = Results(out.url)
    assert found.manifest.splits["splits"] == 2
    expected = pa.Table.from_batches(list(named(events([str(capture)], Config()))), EVENTS)
    rows = found.events().select(EVENTS.names)
    leave = ["capture"]  # there it is a URL
    assert sorted_rows(rows.drop(leave)) == sorted_rows(expected.drop(leave))
    assert {row["capture"] for row in rows.to_pylist()} == {remote.url}
    assert not (ROOT / "s3:").exists()
    names = {each.place.relative_to(out).split("/")[0] for each in out.files()}
    assert names == {"manifest.json", "_SUCCESS", "data"}  # nothing of the work is left
    statistics = out / str(found.manifest.statistics) / "api.csv"
    assert statistics.read().startswith(b'"api","api_key","calls",')


def sorted_rows(table: pa.Table) -> list[str]:
    return sorted(json.dumps(row, default=str) for row in table.to_pylist())


@pytest.mark.costly
def test_delta_tables_are_written_there(place: Place, tmp_path: Path) -> None:
    """The command is that of docs/spark.md."""
    from deltalake import DeltaTable

    (command,) = (each for each in documented.commands() if "--out s3://bucket/" in each)
    out = place / "lake"
    captures = tmp_path / "captures"
    captures.mkdir()
    paths = [shutil.copy2(path, captures) for path in sample("java-groups").paths]
    here = command.replace("captures/", f"{captures}/").replace("s3://bucket/lake", out.url)
    finished(*shlex.split(here)[2:])
    expected = one_process(paths)
    assert sorted_rows(Results(out.url).events().select(EVENTS.names)) == sorted_rows(expected)
    calls = DeltaTable(f"{out.url}/calls", storage_options={"AWS_ALLOW_HTTP": "true"})
    wanted = expected.filter(pa.compute.equal(expected["event"], "call"))
    found = pa.table(calls.to_pyarrow_table(columns=["request_packet"]))
    assert sorted(found["request_packet"].to_pylist(), key=str) == sorted(
        wanted["request_packet"].to_pylist(), key=str
    )


@pytest.mark.costly
def test_a_killed_run_leaves_the_earlier_result_and_a_second_one_is_refused(place: Place) -> None:
    out = place / "results"
    first, second = sample("midstream").paths, sample("java-groups").paths
    finished(*first, "--out", out.url)
    before = Results(out).events()
    process = piped(*second, "--out", out.url)
    try:
        until = time.monotonic() + 120
        while not any(each.place.url.endswith(".arrow") for each in (out / "_staging").files()):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < until
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGSTOP)
        with pytest.raises(OutputError, match=f"process {process.pid} on "):
            Lock(out).take()
        refused = piped(*second, "--out", out.url)
        _, errors = refused.communicate(timeout=120)
        assert (refused.returncode, errors.count("\n")) == (2, 1)
        assert "another run writes to it" in errors
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    assert Results(out).events().equals(before)
    assert len(list((out / CLAIMS).files())) == 1
    finished(*second, "--out", out.url)
    expected = one_process(second)
    assert Results(out).events().select(EVENTS.names).equals(expected)
    assert (out / NAME).about() is not None


@pytest.mark.costly
def test_a_bucket_that_is_not_there_is_told_in_one_line(place: Place) -> None:
    process = piped(*sample("midstream").paths, "--out", "s3://no-such-bucket-here/results")
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 2
    assert errors.count("\n") == 1
    assert "no-such-bucket-here" in errors
