"""Measures `kwsniff pipeline` beside `kwsniff decode -j 1` on captures of a cluster and writes docs/spark.md.

    tests/bench/pipeline.py [--cache FOLDER] [--only NAME,...] [--cores 1,2,4] [--every] [--rounds N]
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

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

from tests.bench.run import CACHE, HERE, MIB, ROOT, machine, measured, write

TICK = os.sysconf("SC_CLK_TCK")
CAPTURES = "cluster-small,cluster-sasl,cluster-bulk,cluster-small-lost-1,cluster-small-lost-20"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
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
    for capture in captures:
        if not capture.exists():
            record = [sys.executable, str(HERE / "record.py"), capture.stem, "--cache", str(choice.cache)]
            subprocess.run(record, check=True, cwd=ROOT)
    lines = [f"On {time.strftime('%Y-%m-%d')}: {machine()}.", "", *measure(choice, captures)]
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
    splits: dict[str, Any] = field(default_factory=dict)
    """What reading in splits came to (`kwsniff.spark.splits.Account`)."""
    rows: int = 0


# Measuring


def measure(choice: argparse.Namespace, captures: list[Path]) -> list[str]:
    """Both tables as rows of Markdown."""
    cores = sorted(map(int, choice.cores.split(",")))
    plain = {capture.stem: decoded(capture, choice.rounds) for capture in captures}
    found: dict[int, dict[str, list[Took]]] = {}
    for count in cores:
        own = captures if choice.every or count == cores[-1] else captures[:1]
        found[count] = of_session(count, own, choice)
    sizes = {capture.stem: capture.stat().st_size for capture in captures}
    return [*sessions_table(found), "", *captures_table(found, plain, sizes)]


def decoded(capture: Path, rounds: int) -> list[Took]:
    """What one process takes."""
    with tempfile.TemporaryDirectory(prefix="kwsniff-bench-") as scratch:
        command = [sys.executable, "-m", "kwsniff", "decode", str(capture), "-q", "-f", "parquet", "-j", "1"]
        command += ["--port", ",".join(map(str, ports_of(capture))), "-o", f"{scratch}/events.parquet"]
        runs = [measured(command) for _ in range(rounds + 1)][1:]  # the first one reads the disk
    return [Took(run.seconds, run.cpu) for run in runs]


def ports_of(capture: Path) -> list[int]:
    ports: list[int] = json.loads(capture.with_suffix(".json").read_text())["ports"]
    return ports


def of_session(count: int, captures: list[Path], choice: argparse.Namespace) -> dict[str, list[Took]]:
    """What `in_session` says, from a process of its own: a JVM that is stopped leaves what it compiled."""
    names = ",".join(capture.stem for capture in captures)
    command = [sys.executable, __file__, "--cache", str(choice.cache), "--only", names]
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


# Tables


def sessions_table(found: dict[int, dict[str, list[Took]]]) -> list[str]:
    """What starting takes, and how more cores help with the first capture."""
    lines = ["| | session start | first run | steady run | CPU | of one core |"]
    lines.append("| --- | --- | --- | --- | --- | --- |")
    name = next(name for name in next(iter(found.values())) if name not in ("start", "first"))
    one = seconds(next(iter(found.values()))[name])
    for count, runs in found.items():
        cells = [f"{seconds(runs[kind]):.1f} s" for kind in ("start", "first", name)]
        cells += [f"{cpu(runs[name]):.1f} s", f"{one / seconds(runs[name]):.2f}×"]
        lines.append(f"| {name}, local[{count}] | {' | '.join(cells)} |")
    return lines


def captures_table(
    found: dict[int, dict[str, list[Took]]], plain: dict[str, list[Took]], sizes: dict[str, int]
) -> list[str]:
    """Each capture beside `decode -j 1`."""
    columns = (
        "decode -j 1, CPU | pipeline, CPU | ratio | seconds | splits | decoded again | shuffled | a worker"
    )
    lines = [f"| | {columns} |", f"|{' --- |' * 9}"]
    for count, every in found.items():
        for name, runs in every.items():
            if name in ("start", "first"):
                continue
            splits = runs[0].splits
            cells = [
                f"{name}, {sizes[name] / 1e6:,.0f} MB, {runs[0].rows:,} rows, local[{count}]",
                f"{cpu(plain[name]):.1f} s", f"{cpu(runs):.1f} s", f"{cpu(runs) / cpu(plain[name]):.2f}×",
                f"{seconds(runs):.1f}", str(splits.get("splits", 1)), again(splits),
                f"{100 * splits.get('shuffled_bytes', 0) / sizes[name]:.1f} %",
                f"{max(each.worker for each in runs) / MIB:,.0f} MiB",
            ]  # fmt: skip
            lines.append(f"| {' | '.join(cells)} |")
    return lines


def again(splits: dict[str, Any]) -> str:
    """What was decoded again."""
    if not splits.get("again") and not splits.get("whole"):
        return "none"
    pairs = f"{splits['again']:,} pairs of endpoints in {splits['splits_again']} splits"
    return pairs + (f", {splits['whole']} splits whole" if splits["whole"] else "")


def seconds(runs: list[Took]) -> float:
    return statistics.median(each.seconds for each in runs)


def cpu(runs: list[Took]) -> float:
    return statistics.median(each.cpu for each in runs)


# Looking at processes


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
