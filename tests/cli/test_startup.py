from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kwsniff import __version__
from kwsniff.cli.running import run
from tests.cli.conftest import ROOT, call, process
from tests.samples import CAPTURES

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
    assert "kwsniff.count.where.term" not in modules  # nor the language of --where


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
