"""Measures `kwsniff pipeline` beside `kwsniff decode -j 1` on captures of a cluster and writes docs/spark.md.

    python -m tests.bench.pipeline [--cache FOLDER] [--only NAME,...] [--cores 1,2,4] [--every] [--rounds N]
                                   [--out FILE]

For each number of cores a process of its own starts a session and runs the first capture twice: the start of
the session and the first run are shown apart. Then come `--rounds` steady runs of it; with the most cores, or
with `--every` on each, the other captures have theirs. `decode` writes every column of every call as Parquet;
the pipeline makes statistics, findings and the page besides. CPU seconds are those of all processes involved,
JVM included. It takes five minutes or so on four cores.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.bench.measure import CACHE, MIB, ROOT, Run, machine, measured, record, say
from tests.hostile.peak import descendants

TICK = os.sysconf("SC_CLK_TCK")
CAPTURES = "cluster-small,cluster-sasl,cluster-bulk,cluster-small-lost-1,cluster-small-lost-20"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cache", type=Path, default=CACHE)
    parser.add_argument("--only", default=CAPTURES)
    parser.add_argument("--cores", default="1,2,4")
    parser.add_argument("--every", action="store_true")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--session", type=int, help=argparse.SUPPRESS)
    choice = parser.parse_args()
    captures = [choice.cache / f"{name}.pcap" for name in choice.only.split(",")]
    if choice.session is not None:
        print(json.dumps(in_session(choice.session, captures, choice.rounds)))
        return
    record(tuple(capture.stem for capture in captures), choice.cache)
    say([f"On {time.strftime('%Y-%m-%d')}: {machine()}.", "", *measure(choice, captures)], choice.out)


@dataclass
class Took:
    """What a step took."""

    seconds: float
    cpu: float
    worker: int = 0
    """Most memory that a Python worker held, in bytes."""
    splits: dict[str, Any] = field(default_factory=dict)
    """What reading in splits came to (`kwsniff.spark.splits.Account`)."""
    rows: int = 0


def measure(choice: argparse.Namespace, captures: list[Path]) -> list[str]:
    """Both tables as rows of Markdown."""
    cores = sorted(map(int, choice.cores.split(",")))
    plain = {capture.stem: cpu(decoded(capture, choice.rounds)) for capture in captures}
    sessions = ["| | session start | first run | steady run | CPU | of one core |", f"|{' --- |' * 6}"]
    columns = (
        "decode -j 1, CPU | pipeline, CPU | ratio | seconds | splits | decoded again | shuffled | a worker"
    )
    lines = [f"| | {columns} | a worker |", f"|{' --- |' * 9}"]
    one = 0.0
    for count in cores:
        own = captures if choice.every or count == cores[-1] else captures[:1]
        runs = of_session(count, own, choice)
        steady = runs[own[0].stem]
        one = one or seconds(steady)
        cells = [f"{seconds(each):.1f} s" for each in (runs["start"], runs["first"], steady)]
        cells += [f"{cpu(steady):.1f} s", f"{one / seconds(steady):.2f}×"]
        sessions.append(f"| {own[0].stem}, local[{count}] | {' | '.join(cells)} |")
        lines += [of_capture(each, count, runs[each.stem], plain[each.stem]) for each in own]
    return [*sessions, "", *lines]


def of_capture(capture: Path, count: int, runs: list[Took], plain: float) -> str:
    """A capture beside `decode -j 1`."""
    splits, size = runs[0].splits, capture.stat().st_size
    cells = [
        f"{capture.stem}, {size / 1e6:,.0f} MB, {runs[0].rows:,} rows, local[{count}]",
        f"{plain:.1f} s", f"{cpu(runs):.1f} s", f"{cpu(runs) / plain:.2f}×", f"{seconds(runs):.1f}",
        str(splits.get("splits", 1)), again(splits), f"{100 * splits.get('shuffled_bytes', 0) / size:.1f} %",
        f"{max(each.worker for each in runs) / MIB:,.0f} MiB",
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def decoded(capture: Path, rounds: int) -> list[Run]:
    """What one process takes."""
    with tempfile.TemporaryDirectory(prefix="kwsniff-bench-") as scratch:
        command = [sys.executable, "-m", "kwsniff", "decode", str(capture), "-q", "-f", "parquet", "-j", "1"]
        command += ["--port", ",".join(map(str, ports_of(capture))), "-o", f"{scratch}/events.parquet"]
        return [measured(command) for _ in range(rounds + 1)][1:]  # the first one reads the disk


def ports_of(capture: Path) -> list[int]:
    ports: list[int] = json.loads(capture.with_suffix(".json").read_text())["ports"]
    return ports


def of_session(count: int, captures: list[Path], choice: argparse.Namespace) -> dict[str, list[Took]]:
    """What `in_session` says, from a process of its own: a JVM that is stopped leaves what it compiled."""
    names = ",".join(capture.stem for capture in captures)
    command = [sys.executable, "-m", "tests.bench.pipeline", "--cache", str(choice.cache), "--only", names]
    command += ["--rounds", str(choice.rounds), "--session", str(count)]
    done = subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    said = json.loads(done.stdout.splitlines()[-1])
    return {name: [Took(**each) for each in runs] for name, runs in said.items()}


def in_session(count: int, captures: list[Path], rounds: int) -> dict[str, list[dict[str, Any]]]:
    """Start a session with so many cores; its runs by capture, and `start` and `first`."""
    from kwsniff.spark.sparksession import context

    with Watched() as watch:
        spark = context(f"local[{count}]")
        spark.parallelize(range(count), count).count()
    found = {"start": [asdict(watch.took)], "first": [asdict(run(spark, captures[0]))]}
    for capture in captures:
        found[capture.stem] = [asdict(run(spark, capture)) for _ in range(rounds)]
        print(f"local[{count}] {capture.stem}: {found[capture.stem]}", file=sys.stderr, flush=True)
    spark.stop()
    return found


def run(spark: Any, capture: Path) -> Took:
    """One run of the pipeline."""
    from kwsniff.config import Config
    from kwsniff.spark import job

    config = Config(ports=tuple(ports_of(capture)))
    with tempfile.TemporaryDirectory(prefix="kwsniff-bench-") as scratch, Watched() as watch:
        done = job.run(spark, [str(capture)], f"{scratch}/out", config)
    watch.took.splits = done.manifest.splits
    watch.took.rows = sum(done.manifest.events.values())
    return watch.took


def again(splits: dict[str, Any]) -> str:
    """What was decoded again."""
    if not splits.get("again") and not splits.get("whole"):
        return "none"
    pairs = f"{splits['again']:,} pairs of endpoints in {splits['splits_again']} splits"
    return pairs + (f", {splits['whole']} splits whole" if splits["whole"] else "")


def seconds(runs: list[Took]) -> float:
    return statistics.median(each.seconds for each in runs)


def cpu(runs: list[Took] | list[Run]) -> float:
    return statistics.median(each.cpu for each in runs)


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
            self._peak = max([self._peak, *map(resident, family())])


def family() -> list[int]:
    """This process and all that come from it."""
    return [os.getpid(), *descendants(os.getpid())]


def cpu_seconds() -> float:
    """Of the family, and of its members that have ended."""
    ticks = 0
    for pid in family():
        fields = _read(pid, "stat").rpartition(b")")[2].split()
        ticks += sum(map(int, fields[11:15]))
    return ticks / TICK


def resident(pid: int) -> int:
    """Bytes of memory that a process holds, if it is one of Spark's Python workers."""
    command = _read(pid, "cmdline")
    if b"pyspark" not in command or b"java" in command:
        return 0
    pages = _read(pid, "statm").split()[1:2]
    return int(pages[0]) * os.sysconf("SC_PAGE_SIZE") if pages else 0


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:  # it has ended meanwhile
        return b""


if __name__ == "__main__":
    main()
