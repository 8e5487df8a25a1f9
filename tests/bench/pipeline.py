"""Measures `kwsniff pipeline` on two cores beside `kwsniff decode` and writes docs/spark.md.

    tests/bench/pipeline.py [--rounds N] [--workload NAME] [--cache FOLDER] [--out FILE]

One session serves all rounds; that it starts, and that the first run in it is slower, is shown apart. In each
round one process, two processes and Spark do the same in turn: every column of every call as Parquet (Spark
makes statistics and calls.csv besides). CPU seconds are those of all processes involved, JVM included.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

from tests.bench.run import CACHE, HERE, MIB, ROOT, machine, measured, write

TICK = os.sysconf("SC_CLK_TCK")
FIRST = "Spark, first run"
STEADY = "Spark, steady"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workload", default="mixed")
    parser.add_argument("--cache", type=Path, default=CACHE)
    parser.add_argument("--out", type=Path)
    choice = parser.parse_args()
    if not (choice.cache / f"{choice.workload}.pcap").exists():
        record = [sys.executable, str(HERE / "record.py"), choice.workload, "--cache", str(choice.cache)]
        subprocess.run(record, check=True, cwd=ROOT)
    about = json.loads((choice.cache / f"{choice.workload}.json").read_text())
    with tempfile.TemporaryDirectory(prefix="kwsniff-bench-") as scratch:
        found = measure(
            choice.cache / f"{choice.workload}.pcap", about["ports"], choice.rounds, Path(scratch)
        )
    lines = [f"On {time.strftime('%Y-%m-%d')}: {machine()}.", "", *table(found, about["bytes"])]
    print("\n".join(lines))
    if choice.out is not None:
        write(choice.out, lines)


@dataclass
class Took:
    """What a step took."""

    seconds: float
    cpu: float
    worker: int = 0
    """Most memory that a Python worker held, in bytes."""
    shuffled: int = 0
    """Bytes."""


def measure(capture: Path, ports: list[int], rounds: int, scratch: Path) -> dict[str, list[Took]]:
    """Each step's measurements, by its name."""
    from kwsniff.config import Config
    from kwsniff.spark import job
    from kwsniff.spark.session import session

    decode = [sys.executable, "-m", "kwsniff", "decode", str(capture), "-q", "-f", "parquet"]
    decode += ["--port", ",".join(map(str, ports)), "-o", str(scratch / "events.parquet")]
    measured([*decode, "-j", "1"])  # compiles the kernels
    found: dict[str, list[Took]] = {}
    with Watched() as watch:
        spark = session("local[2]")
        spark.range(2).count()
    found["Spark, session start"] = [watch.took]
    for turn in range(rounds + 1):
        for jobs in (1, 2) if turn else ():
            run = measured([*decode, "-j", str(jobs)])
            found.setdefault(f"decode -j {jobs}", []).append(Took(run.seconds, run.cpu))
        with Watched() as watch:
            done = job.run(spark, [str(capture)], scratch / "out", Config(ports=tuple(ports)))
        watch.took.shuffled = done.manifest.splits.get("shuffled_bytes", 0)
        found.setdefault(STEADY if turn else FIRST, []).append(watch.took)
        print(f"{turn}: {watch.took}", file=sys.stderr, flush=True)
        shutil.rmtree(scratch / "out")
    spark.stop()
    return found


def table(found: dict[str, list[Took]], size: int) -> list[str]:
    """As rows of Markdown."""
    two = statistics.median(took.seconds for took in found["decode -j 2"])
    lines = ["| | seconds (least-most) | CPU seconds | MB/s | of -j 2 | a worker's memory | shuffled |"]
    lines.append("| --- | --- | --- | --- | --- | --- | --- |")
    for name, runs in found.items():
        seconds = [took.seconds for took in runs]
        middle = statistics.median(seconds)
        decoded = "session" not in name
        cells = [
            name,
            f"{middle:.1f} ({min(seconds):.1f}-{max(seconds):.1f})",
            f"{statistics.median(took.cpu for took in runs):.1f}",
            f"{size / middle / 1e6:.0f}" if decoded else "",
            f"{two / middle:.2f}×" if decoded else "",
            f"{max(took.worker for took in runs) / MIB:.0f} MiB" if runs[0].worker else "",
            f"{100 * runs[0].shuffled / size:.1f} %" if runs[0].shuffled else "",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


class Watched:
    """Looks at this process and all that come from it while a block runs."""

    def __enter__(self) -> Watched:
        self._over = threading.Event()
        self._peak = 0
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._cpu, self._begin = cpu_seconds(), time.perf_counter()
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        seconds = time.perf_counter() - self._begin
        self._over.set()
        self._thread.join()
        self.took = Took(seconds, cpu_seconds() - self._cpu, self._peak)

    def _look(self) -> None:
        while not self._over.wait(0.2):
            self._peak = max([self._peak, *map(resident, workers())])


def workers() -> list[int]:
    """Spark's Python workers among the processes that come from this one."""
    return [
        pid
        for pid in family()
        if b"pyspark" in _read(pid, "cmdline") and b"java" not in _read(pid, "cmdline")
    ]


def family() -> list[int]:
    """This process and all that come from it."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        pid = int(entry.name)
        fields = _read(pid, "stat").rpartition(b")")[2].split()
        if fields:
            children.setdefault(int(fields[1]), []).append(pid)
    found = [os.getpid()]
    for pid in found:
        found += children.get(pid, [])
    return found


def cpu_seconds() -> float:
    """Of the family, and of its members that have ended."""
    ticks = 0
    for pid in family():
        fields = _read(pid, "stat").rpartition(b")")[2].split()
        ticks += sum(map(int, fields[11:15]))
    return ticks / TICK


def resident(pid: int) -> int:
    """Bytes of memory that a process holds."""
    for line in _read(pid, "status").splitlines():
        if line.startswith(b"VmRSS"):
            return int(line.split()[1]) * 1024
    return 0


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:  # it has ended meanwhile
        return b""


if __name__ == "__main__":
    main()
