from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from kwsniff import __version__
from tests.cli.conftest import ROOT, call, process

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
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    return set(run.stderr.split())


def test_the_version_is_that_of_the_package() -> None:
    assert process("--version", module="kwsniff").stdout.decode() == f"kwsniff {__version__}\n"


def test_version_and_help_import_nothing_heavy() -> None:
    for arguments in (["--version"], ["--help"], ["decode", "--help"]):
        assert not imported(*arguments).intersection(HEAVY)


def test_decode_imports_no_pandas(capture: Callable[..., str]) -> None:
    modules = imported("decode", "-q", "-f", "csv", capture(call()), stand_in=True)
    assert "pyarrow" in modules
    assert not modules & {"pandas", "scapy", "rich.console"}


def fastest(*arguments: str) -> float:
    """Seconds of the fastest of five runs, so that other work on the machine weighs little."""
    times = []
    for _ in range(5):
        start = time.perf_counter()
        assert process(*arguments, module="kwsniff").returncode == 0
        times.append(time.perf_counter() - start)
    return min(times)


def test_the_version_comes_within_a_quarter_of_a_second() -> None:
    assert fastest("--version") <= 0.25


def test_a_capture_without_packets_is_decoded_within_four_fifths_of_a_second(tmp_path: Path) -> None:
    capture = tmp_path / "none.pcap"
    # The header of a little-endian pcap file, version 2.4, snap length 65535, Ethernet.
    capture.write_bytes(bytes.fromhex("d4c3b2a1 0200 0400 00000000 00000000 ffff0000 01000000"))
    assert fastest("decode", str(capture)) <= 0.8
