"""Signals at places that are hard to meet: a run ends as it does by Ctrl-C, and leaves no half of a file."""

from __future__ import annotations

import csv
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kwsniff.capture.error import CaptureError
from kwsniff.cli import decode as job
from kwsniff.cli.running import run
from kwsniff.run.offline import events

SIGNALS = [(signal.SIGINT, 130), (signal.SIGTERM, 143)]
BEGIN = """
import signal, sys
from kwsniff.cli import decode as job
from kwsniff.cli.running import run
number = int(sys.argv[1])
"""
IN_A_BATCH = """
chosen, batches = job._Run._chosen, 0
def signalled(self, batch):
    global batches
    batches += 1
    if batches == 2:
        signal.raise_signal(number)
    return chosen(self, batch)
job._Run._chosen = signalled
"""
IN_A_FINALIZER = """
class Gone:
    def __del__(self):
        signal.raise_signal(number)
opened = job.open_writer
def signalled(*given, **named):
    Gone()
    return opened(*given, **named)
job.open_writer = signalled
"""
END = """
sys.exit(run(sys.argv[2:]))
"""


def signalled(where: str, number: int, *arguments: str) -> int:
    """The exit code of a run that sends itself a signal."""
    script = BEGIN + where + END
    done = subprocess.run(
        [sys.executable, "-c", script, str(int(number)), *arguments], capture_output=True, check=False
    )
    assert b"Exception" not in done.stderr
    return done.returncode


@pytest.mark.parametrize(("number", "code"), SIGNALS)
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_file_has_whole_rows_when_a_signal_ends_the_run(
    number: int, code: int, jobs: str, tmp_path: Path
) -> None:
    out = tmp_path / "events.csv"
    assert signalled(IN_A_BATCH, number, "decode", "captures", "-q", "-j", jobs, "-o", str(out)) == code
    assert list(tmp_path.iterdir()) == [out]
    with out.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows
    assert all(None not in row.values() for row in rows)


@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_a_signal_while_the_output_is_begun_is_not_lost(number: int, code: int, tmp_path: Path) -> None:
    """What a handler raises while an object is finalized, as happens in imports, reaches nobody."""
    out = tmp_path / "events.parquet"
    assert signalled(IN_A_FINALIZER, number, "decode", "captures/ipv6.pcap", "-o", str(out)) == code
    assert not list(tmp_path.iterdir())


def test_where_the_rows_are_that_came_before_an_input_failed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def failing(*given: Any, **named: Any) -> Iterator[pa.RecordBatch]:
        yield next(iter(events(*given, **named)))
        raise CaptureError("a worker process ended early; try -j 1")

    monkeypatch.setattr(job, "events", failing)
    out = tmp_path / "events.jsonl"
    assert run(["decode", "captures/ipv6.pcap", "-q", "-o", str(out)]) == 2
    said = f"kwsniff: a worker process ended early; try -j 1; {out} holds the rows so far\n"
    assert capsys.readouterr().err == said
    assert out.read_text()
    assert run(["decode", "captures/ipv6.pcap", "-q"]) == 2
    assert capsys.readouterr().err == "kwsniff: a worker process ended early; try -j 1\n"
