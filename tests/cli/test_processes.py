"""kwsniff as a process: what starting loads, and how signals end it."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kwsniff import __version__
from kwsniff.capture.error import CaptureError
from kwsniff.cli.running import run
from kwsniff.run.offline import events
from tests.cli.conftest import ROOT, call, process
from tests.samples import CAPTURES

# Startup

HEAVY = ("pandas", "scapy", "pyarrow", "numpy", "rich.console")


def imported(*arguments: str, stand_in: bool = False) -> set[str]:
    """Modules that a process holds after running the command line as its own."""
    code = (
        f"import sys; sys.argv = ['kwsniff', *{list(arguments)!r}]\n"
        f"if {stand_in}: from tests.cli import stand_in; stand_in.install()\n"
        "from kwsniff.cli.running import run\n"
        "code = run()\n"
        "print(*(name for name, module in sys.modules.items() if module), file=sys.stderr)\n"
        "sys.exit(code)"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    return set(done.stderr.split())


def test_the_version_is_that_of_the_package() -> None:
    assert process("--version", module="kwsniff").stdout.decode() == f"kwsniff {__version__}\n"


def test_version_and_help_import_nothing_heavy() -> None:
    for arguments in (["--version"], ["--help"], ["decode", "--help"]):
        assert not imported(*arguments).intersection(HEAVY)


def test_a_command_that_is_not_there_is_named_with_one_that_is() -> None:
    ended = process("decod", "x.pcap", module="kwsniff")
    assert (ended.returncode, ended.stdout) == (2, b"")
    assert ended.stderr.decode() == "kwsniff: no such command: decod (did you mean decode?)\n"


def test_decode_imports_no_pandas(capture: Callable[..., str]) -> None:
    modules = imported("decode", "-q", "-f", "csv", capture(call()), stand_in=True)
    assert "pyarrow" in modules
    assert not modules & {"pandas", "scapy", "rich.console", "numba", "numpy.ma", "dateutil"}
    assert "kwsniff.count.where.predicate" not in modules  # nor the language of --where


def test_the_command_line_may_be_given_by_its_path(tmp_path: Path) -> None:
    """As spark-submit does: the modules of the package do not hide those of the standard library."""
    page = tmp_path / "page.html"
    command = [sys.executable, str(ROOT / "kwsniff" / "__main__.py"), "report", str(CAPTURES / "ipv6.pcap")]
    done = subprocess.run(
        [*command, "--html", str(page)], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert page.stat().st_size > 100_000


def test_no_threads_wait_for_linear_algebra() -> None:
    """NumPy's library has a thread for each processor, and each keeps it busy for a third of a second."""
    code = (
        "import atexit, os, sys; sys.argv = ['kwsniff', 'decode', 'missing.pcap']\n"
        "atexit.register(lambda: print('numpy' in sys.modules, len(os.listdir('/proc/self/task'))))\n"
        "from kwsniff.cli import main\n"
        "main()"
    )
    own = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    threads = []
    for more in ({}, {"OPENBLAS_NUM_THREADS": "1"}):
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env=own | more,
            capture_output=True,
            text=True,
            check=False,
        )
        threads.append(done.stdout)
    assert threads[0] == threads[1]
    assert threads[0].startswith("True ")


CLOSED = [
    ("decode {} -q -o {} >&-", 0, ""),
    ("decode {} -q -j 4 -o {} <&- >&- 2>&-", 0, ""),
    ("decode {} -q >&-", 2, "kwsniff: Bad file descriptor\n"),
    ("report {} -q >&-", 2, "kwsniff: Bad file descriptor\n"),
    ("decode - -q <&-", 2, "kwsniff: -: Bad file descriptor\n"),
    ("decode missing.pcap 2>&-", 2, ""),
]


@pytest.mark.parametrize(("line", "code", "said"), CLOSED)
def test_what_is_closed_is_nowhere(line: str, code: int, said: str, tmp_path: Path) -> None:
    out = tmp_path / "events.csv"
    given = line.format(CAPTURES / "ipv6.pcap", out)
    done = subprocess.run(
        ["sh", "-c", f'exec "$0" -m kwsniff {given}', sys.executable], cwd=ROOT, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (code, "", said)
    if "events.csv" in given:
        plain = tmp_path / "plain.csv"
        assert run(["decode", str(CAPTURES / "ipv6.pcap"), "-q", "-o", str(plain)]) == 0
        assert out.read_text() == plain.read_text()


def test_too_little_memory_is_told_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def scarce(*given: object) -> None:
        raise MemoryError("Unable to allocate 5 MiB for an array")

    monkeypatch.setattr("kwsniff.cli.decode.decode", scarce)
    assert run(["decode", str(CAPTURES / "ipv6.pcap")]) == 2
    assert capsys.readouterr().err == "kwsniff: out of memory\n"


# Signals at places that are hard to meet: a run ends as it does by Ctrl-C, and leaves no half of a file

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

    monkeypatch.setattr("kwsniff.cli.telling.events", failing)
    out = tmp_path / "events.jsonl"
    assert run(["decode", "captures/ipv6.pcap", "-q", "-o", str(out)]) == 2
    said = f"kwsniff: a worker process ended early; try -j 1; {out} holds the rows so far\n"
    assert capsys.readouterr().err == said
    assert out.read_text()
    assert run(["decode", "captures/ipv6.pcap", "-q"]) == 2
    assert capsys.readouterr().err == "kwsniff: a worker process ended early; try -j 1\n"
