"""Measures kwsniff beside tshark on the recorded workloads and writes docs/performance.md.

    tests/bench/run.py [--rounds N] [--only NAME …] [--cache FOLDER] [--out FILE]

Every job runs its commands in turn, some rounds, in one go; what counts are ratios of medians, because
machines are noisy. Wall time, CPU seconds (user and system, with child processes) and peak memory are those
the operating system reports. Workloads are recorded first if they are not there (`record.py`).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

CACHE = Path(os.environ.get("KWSNIFF_BENCH") or Path.home() / ".cache" / "kwsniff-bench")
NAMES = ("chatty", "bulk", "wide", "damaged")
HERE = Path(__file__).parent
ROOT = HERE.parent.parent
FIELDS = (
    "frame.time_epoch",
    "tcp.stream",
    "kafka.api_key",
    "kafka.api_version",
    "kafka.correlation_id",
    "kafka.error",
)
COLUMNS = "time,connection,api,api_version,correlation_id,error"
MIB = 1 << 20


@dataclass
class Run:
    """One process, as the operating system saw it."""

    seconds: float
    cpu: float
    peak: int
    """Bytes."""


@dataclass
class Job:
    """Commands that answer the same question, the one to beat first."""

    name: str
    question: str
    commands: dict[str, list[str]]
    target: str
    rounds: int | None = None
    runs: dict[str, list[Run]] = field(default_factory=dict)


def measured(command: list[str]) -> Run:
    """Run a command to its end; output it does not redirect itself goes nowhere.

    Raises:
        RuntimeError: it failed.
    """
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    begin = time.perf_counter()
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT, env=environment
    )
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 3):
        raise RuntimeError(f"{shlex.join(command)}: exit {process.returncode}")
    return Run(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)


class Commands:
    """The commands for one workload."""

    def __init__(self, directory: Path, name: str, scratch: Path) -> None:
        self.path = str(directory / f"{name}.pcap")
        self.ports = [str(port) for port in json.loads((directory / f"{name}.json").read_text())["ports"]]
        self.scratch = scratch

    def tshark(self, *how: str) -> str:
        ports = " ".join(f"-d tcp.port=={port},kafka" for port in self.ports)
        return f"tshark -r {self.path} {ports} -Y kafka {shlex.join(how)}"

    def fields(self) -> list[str]:
        how = [part for name in FIELDS for part in ("-e", name)]
        return ["sh", "-c", f"{self.tshark('-T', 'fields', *how)} > {self.scratch}/tshark.tsv"]

    def every_field(self) -> list[str]:
        return ["sh", "-c", f"{self.tshark('-T', 'ek')} > {self.scratch}/tshark.ek"]

    def pandas(self) -> list[str]:
        script = shlex.join([sys.executable, str(HERE / "pandas_report.py"), f"{self.scratch}/tshark.tsv"])
        return ["sh", "-c", f"{self.fields()[2]} && {script}"]

    def kwsniff(self, command: str, *options: str, times: int = 1) -> list[str]:
        return [
            sys.executable,
            "-m",
            "kwsniff",
            command,
            *[self.path] * times,
            "-q",
            "--port",
            ",".join(self.ports),
            *options,
        ]

    def calls(self, *options: str, times: int = 1) -> list[str]:
        out = str(self.scratch / "calls.csv")
        return self.kwsniff("decode", "-f", "csv", "--columns", COLUMNS, "-o", out, *options, times=times)


def jobs(directory: Path, scratch: Path) -> list[Job]:
    """All that is measured."""
    chatty, bulk, wide, damaged = (Commands(directory, name, scratch) for name in NAMES)
    found = [
        Job(
            name,
            f"one row a call, six columns, on {name}",
            {"tshark": on.fields(), "kwsniff": on.calls("-j", "1")},
            target,
        )
        for name, on, target in (
            ("chatty", chatty, "10×"),
            ("bulk", bulk, "10×"),
            ("wide", wide, "8×"),
            ("damaged", damaged, "8×"),
        )
    ]
    all_columns = str(scratch / "all.csv")
    full = chatty.kwsniff("decode", "--full", "-f", "jsonl", "-o", str(scratch / "full.jsonl"))
    sample = str(ROOT / "captures" / "throttled.pcapng")
    start = [sys.executable, "-m", "kwsniff"]
    return [
        *found,
        Job(
            "all-columns",
            "every column of every call on chatty, against tshark's six",
            {
                "tshark": chatty.fields(),
                "kwsniff": chatty.kwsniff("decode", "-f", "csv", "-j", "1", "-o", all_columns),
            },
            "none",
            1,
        ),
        Job(
            "full",
            "every field of every message on chatty",
            {"tshark": chatty.every_field(), "kwsniff": [*full, "-j", "1"]},
            "10×",
            1,
        ),
        Job(
            "report",
            "call statistics on chatty, against six columns and pandas",
            {"tshark + pandas": chatty.pandas(), "kwsniff": chatty.kwsniff("report", "-j", "1")},
            "10×",
            2,
        ),
        Job(
            "memory",
            "peak memory on bulk twice over, against bulk once",
            {"twice": bulk.calls("-j", "1", times=2), "once": bulk.calls("-j", "1")},
            "≤ 350 MB, ≤ 1.1×",
        ),
        Job(
            "two-cores",
            "one row a call on chatty with -j 2, against -j 1",
            {"-j 1": chatty.calls("-j", "1"), "-j 2": chatty.calls("-j", "2")},
            "1.6×",
        ),
        Job(
            "two-cores-full",
            "every field on chatty with -j 2, against -j 1",
            {"-j 1": [*full, "-j", "1"], "-j 2": [*full, "-j", "2"]},
            "1.6×",
            1,
        ),
        Job(
            "start",
            "kwsniff --version, and decode of a small capture",
            {"--version": [*start, "--version"], "decode": [*start, "decode", "-q", sample]},
            "≤ 0.25 s, ≤ 0.8 s",
            7,
        ),
    ]


def measure(job: Job, rounds: int, tell: Callable[[str], None]) -> None:
    """Run the commands of a job in turn."""
    for turn in range(job.rounds or rounds):
        for tool, command in job.commands.items():
            run = measured(command)
            job.runs.setdefault(tool, []).append(run)
            figures = f"{run.seconds:.2f} s, {run.cpu:.2f} CPU s, {run.peak / MIB:.0f} MiB"
            tell(f"{job.name} {turn + 1}: {tool} {figures}")


def median(runs: list[Run], what: str) -> float:
    return statistics.median(getattr(run, what) for run in runs)


NO_RATIO = ("memory", "start")
"""Jobs whose commands are no rivals: what counts is the memory or the seconds of each."""


def rows(job: Job) -> list[str]:
    """Table rows: tool, seconds with spread, CPU seconds, memory, ratio."""
    slow = median(next(iter(job.runs.values())), "seconds")
    lines = []
    for tool, runs in job.runs.items():
        seconds = [run.seconds for run in runs]
        middle = median(runs, "seconds")
        last = tool == list(job.runs)[-1]
        ratio = f"{slow / middle:.1f}×" if last and job.name not in NO_RATIO else ""
        spread = f"{middle:.2f} ({min(seconds):.2f}-{max(seconds):.2f})"
        figures = f"{median(runs, 'cpu'):.2f} | {median(runs, 'peak') / MIB:.0f}"
        lines.append(
            f"| {job.name} | {tool} | {spread} | {figures} | {ratio} | {job.target if last else ''} |"
        )
    return lines


def machine() -> str:
    model = next(
        (
            line.split(":")[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.processor(),
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    tshark = subprocess.run(["tshark", "--version"], capture_output=True, text=True, check=False).stdout
    system = f"{platform.system()} {platform.release()}, Python {platform.python_version()}"
    return (
        f"{os.cpu_count()} cores ({model}), {memory:.0f} GiB, {system}, "
        f"{tshark.splitlines()[0].split('(Git')[0].strip()}"
    )


BEGIN, END = "<!-- measured -->", "<!-- end of what was measured -->"


def write(path: Path, table: list[str]) -> None:
    """Put the table between its marks in the page."""
    page = path.read_text()
    head, rest = page.split(BEGIN)
    tail = rest.split(END)[1]
    path.write_text(f"{head}{BEGIN}\n" + "\n".join(table) + f"\n{END}{tail}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--cache", type=Path, default=CACHE)
    parser.add_argument("--out", type=Path)
    choice = parser.parse_args()
    if any(not (choice.cache / f"{name}.pcap").exists() for name in ("chatty", "bulk", "wide", "damaged")):
        subprocess.run([sys.executable, "-m", "tests.bench.record"], check=True, cwd=ROOT)
    with tempfile.TemporaryDirectory(prefix="kwsniff-bench-") as scratch:
        every = jobs(choice.cache, Path(scratch))
        chosen = [job for job in every if not choice.only or job.name in choice.only]
        # Kernels are compiled once for all later runs; that is not what is measured here.
        measured(every[0].commands["kwsniff"])
        for job in chosen:
            measure(job, choice.rounds, lambda line: print(line, file=sys.stderr, flush=True))
    table = [
        f"On {time.strftime('%Y-%m-%d')}: {machine()}.",
        "",
        "| job | tool | seconds (least-most) | CPU seconds | peak MiB | ratio | aim |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        *(line for job in chosen for line in rows(job)),
        "",
        *(f"- *{job.name}*: {job.question}." for job in chosen),
    ]
    print("\n".join(table))
    if choice.out is not None:
        write(choice.out, table)


if __name__ == "__main__":
    main()
