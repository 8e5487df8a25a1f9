"""Processes measured as the operating system saw them, kwsniff as it is just installed among them."""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CACHE = Path(os.environ.get("KWSNIFF_BENCH") or Path.home() / ".cache" / "kwsniff-bench")
MIB = 1 << 20
LONGEST = 240
"""Seconds for a rival: where packets are missing, tshark's time grows faster than the capture."""
Command = tuple[str, ...]


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
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT, start_new_session=True,
        env=environment | dict(more or {}),
    )  # fmt: skip
    timer = threading.Timer(limit, os.killpg, (process.pid, signal.SIGKILL))
    timer.start()
    _, status, usage = os.wait4(process.pid, 0)
    timer.cancel()
    seconds = time.perf_counter() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 3) and seconds < limit:
        raise RuntimeError(f"{shlex.join(command)}: exit {process.returncode}")
    return Run(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024, seconds < limit)


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


def record(names: tuple[str, ...], folder: Path) -> None:
    """Record the workloads that are not there."""
    command = [sys.executable, "-m", "tests.bench.record", *names, "--cache", str(folder)]
    subprocess.run(command, check=True, cwd=ROOT, stdout=sys.stderr)


def say(lines: list[str], page: Path | None, what: str = "measured") -> None:
    """Print the lines, and put them between their marks in the page."""
    print("\n".join(lines))
    if page is not None:
        head, rest = page.read_text().split(f"<!-- {what} -->")
        end = f"<!-- end of what was {what} -->"
        page.write_text("\n".join([f"{head}<!-- {what} -->", *lines, end]) + rest.split(end)[1])


class Installed:
    """kwsniff from a wheel in an environment of its own. The dependencies are those of the interpreter that
    runs the bench, so nothing is downloaded. `anew()` makes the next run a first one."""

    def __init__(self, folder: Path) -> None:
        """Raises `subprocess.CalledProcessError` when pip fails."""
        self._folder, self._home = folder, folder / "home"
        self._python = folder / "venv" / "bin" / "python"
        build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(folder), str(ROOT)]
        subprocess.run(build, check=True)
        venv = [sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")]
        subprocess.run(venv, check=True)
        asked = [self._python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
        self._packages = Path(subprocess.check_output(asked, text=True).strip())
        borrowed = [path for path in sys.path if path.endswith("-packages") and path != str(ROOT)]
        lines = dict.fromkeys([sysconfig.get_path("purelib"), *borrowed])
        (self._packages / "dependencies.pth").write_text("\n".join(lines) + "\n")

    def anew(self) -> None:
        """Install the wheel again, without what earlier runs left in it or in the user's folders."""
        shutil.rmtree(self._packages / "kwsniff", ignore_errors=True)
        shutil.rmtree(self._home, ignore_errors=True)
        self._home.mkdir()
        (wheel,) = self._folder.glob("*.whl")
        install = [sys.executable, "-m", "pip", "--python", str(self._python), "install", "--quiet"]
        options = ["--no-deps", "--force-reinstall", "--no-index", "--disable-pip-version-check"]
        subprocess.run([*install, *options, str(wheel)], check=True)

    def run(self, arguments: Command) -> Run:
        """Measure `kwsniff ARGUMENTS`, with a home folder of its own."""
        home = {"HOME": str(self._home), "XDG_CACHE_HOME": str(self._home / ".cache")}
        return measured([str(self._python.with_name("kwsniff")), *arguments], home)


class Meter:
    """Runs each command once for all lines of the table that need its figures: rivals as they are, and
    kwsniff as it is installed, in its first run and in later ones."""

    def __init__(self, folder: Path, scratch: Path, rounds: int) -> None:
        self.folder, self.scratch = folder, scratch
        self.ours: dict[Command, Run] = {}
        """The heaviest run of each command of kwsniff."""
        self._installed, self._rounds = Installed(scratch), rounds
        self.rival, self.first, self.again = cache(self._rival), cache(self._first), cache(self._again)

    def _rival(self, *command: str) -> Run:
        """The rival's only run, ended when it takes too long."""
        return self._told("rival", command, measured(list(command), limit=LONGEST))

    def _first(self, *arguments: str) -> Run:
        """kwsniff's run after its installation; raises RuntimeError when it fails."""
        self._installed.anew()
        return self._own("first", arguments)

    def _again(self, *arguments: str) -> Run:
        """Of later runs the median of each figure."""
        self.first(*arguments)
        runs = [self._own("again", arguments) for _ in range(self._rounds)]
        seconds = statistics.median(run.seconds for run in runs)
        cpu = statistics.median(run.cpu for run in runs)
        return Run(seconds, cpu, max(run.peak for run in runs))

    def _own(self, what: str, arguments: Command) -> Run:
        run = self._told(what, arguments, self._installed.run(arguments))
        self.ours[arguments] = max(run, self.ours.get(arguments, run), key=lambda each: each.peak)
        return run

    def _told(self, what: str, command: Command, run: Run) -> Run:
        figures = f"{run.seconds:.2f} s, {run.cpu:.2f} CPU s, {run.peak / MIB:.0f} MiB"
        print(f"{what}: {figures}: {shlex.join(command)}", file=sys.stderr, flush=True)
        return run
