"""One process measured as the operating system saw it, and the page that figures are written to."""

from __future__ import annotations

import os
import platform
import shlex
import signal
import statistics
import subprocess
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
MIB = 1 << 20
BEGIN, END = "<!-- measured -->", "<!-- end of what was measured -->"


@dataclass(frozen=True)
class Run:
    """What one process and its children took."""

    seconds: float
    cpu: float
    """Seconds, user and system."""
    peak: int
    """Bytes of the largest process."""
    whole: bool = True
    """Not ended because it took too long."""


def measured(
    command: list[str], more: Mapping[str, str] | None = None, limit: float = threading.TIMEOUT_MAX
) -> Run:
    """Run a command; output it does not redirect itself goes nowhere.

    `more` goes into its environment; after `limit` seconds it is ended, with what it started.

    Raises:
        RuntimeError: it failed; 3 (the input is damaged in part) is no failure.
    """
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    begin = time.perf_counter()
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=ROOT,
        env=environment | dict(more or {}),
        start_new_session=True,
    )
    timer = threading.Timer(limit, os.killpg, (process.pid, signal.SIGKILL))
    timer.start()
    _, status, usage = os.wait4(process.pid, 0)
    timer.cancel()
    seconds = time.perf_counter() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 3) and seconds < limit:
        raise RuntimeError(f"{shlex.join(command)}: exit {process.returncode}")
    return Run(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024, seconds < limit)


def median(runs: list[Run]) -> Run:
    """Of each figure its median."""
    return Run(
        statistics.median(run.seconds for run in runs),
        statistics.median(run.cpu for run in runs),
        max(run.peak for run in runs),
    )


def machine() -> str:
    """The machine in one line."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = (line.split(":")[1].strip() for line in lines if "model name" in line)
    model = next(models, platform.processor())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    tshark = subprocess.run(["tshark", "--version"], capture_output=True, text=True, check=False).stdout
    system = f"{platform.system()} {platform.release()}, Python {platform.python_version()}"
    return (
        f"{os.cpu_count()} cores ({model}), {memory:.0f} GiB, {system}, "
        f"{tshark.splitlines()[0].split('(Git')[0].strip()}"
    )


def write(path: Path, table: list[str]) -> None:
    """Put the table between its marks in the page."""
    page = path.read_text()
    head, rest = page.split(BEGIN)
    tail = rest.split(END)[1]
    path.write_text(f"{head}{BEGIN}\n" + "\n".join(table) + f"\n{END}{tail}")
