"""What 10 TB would take on a cluster, from runs over captures on this machine: a table for docs/spark.md.

    tests/bench/estimate.py CAPTURE.pcap ... [--cores 400] [--gigabits 5] [--executors 100] [--terabytes 10]

Each capture is run once to warm up and then `--rounds` times by `kwsniff pipeline` in one session. What was
measured (CPU seconds of driver, workers and Java, bytes shuffled, staged and written) is scaled by the bytes;
nothing else is assumed but the cores, and what storage gives to an executor.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

from tests.bench.pipeline import Watched

GIGA, TERA = 10**9, 10**12


@dataclass(frozen=True)
class Cluster:
    """What is assumed."""

    bytes: int
    executors: int
    cores: int
    """Of all executors together."""
    bytes_per_second: float
    """That one executor reads from storage."""


@dataclass(frozen=True)
class Measured:
    """What a capture took."""

    name: str
    bytes: int
    cpu: float
    """Seconds of all processes."""
    shuffled: int
    results: int
    rows: int
    again: int
    """Pairs of endpoints that were decoded again."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("captures", nargs="+", type=Path)
    parser.add_argument("--terabytes", type=float, default=10)
    parser.add_argument("--executors", type=int, default=100)
    parser.add_argument("--cores", type=int, default=400)
    parser.add_argument("--gigabits", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--master", default="local[*]")
    choice = parser.parse_args()
    cluster = Cluster(
        int(choice.terabytes * TERA), choice.executors, choice.cores, choice.gigabits * GIGA / 8
    )
    found = measured(choice.captures, choice.master, choice.rounds)
    print("\n".join(table(found, cluster)))


def measured(captures: list[Path], master: str, rounds: int) -> list[Measured]:
    from kwsniff.config import Config
    from kwsniff.spark import job
    from kwsniff.spark.session import session

    spark = session(master)
    found = []
    with tempfile.TemporaryDirectory(prefix="kwsniff-estimate-") as scratch:
        for capture in captures:
            config = Config(ports=ports(capture)) if ports(capture) else Config()
            cpu: list[float] = []
            for turn in range(rounds + 1):
                with Watched() as watch:
                    done = job.run(spark, [str(capture)], Path(scratch) / "out", config)
                if turn:  # the first one compiles and starts workers
                    cpu.append(watch.took.cpu)
            found.append(of(capture, done.manifest, statistics.median(cpu)))
    spark.stop()
    return found


def ports(capture: Path) -> tuple[int, ...]:
    """The brokers' ports, as the note beside a recorded workload says."""
    note = capture.with_suffix(".json")
    return tuple(json.loads(note.read_text())["ports"]) if note.exists() else ()


def of(capture: Path, manifest: Any, cpu: float) -> Measured:
    splits = manifest.splits
    return Measured(
        capture.stem, capture.stat().st_size, cpu, splits.get("shuffled_bytes", 0),
        sum(file.bytes for file in manifest.files), sum(manifest.events.values()), splits.get("again", 0),
    )  # fmt: skip


def table(found: list[Measured], cluster: Cluster) -> list[str]:
    """Rows of Markdown: a column for each capture."""
    times = [cluster.bytes / each.bytes for each in found]
    reading = 2 * cluster.bytes / (cluster.executors * cluster.bytes_per_second)
    rows = {
        "measured": [f"{each.bytes / 1e6:,.0f} MB, {each.rows:,} rows" for each in found],
        "CPU seconds a GB": [f"{each.cpu * GIGA / each.bytes:,.1f}" for each in found],
        "read: once to cut, once to decode": [minutes(reading) for _ in found],
        "CPU": [
            f"{each.cpu * factor:,.0f} s, {minutes(each.cpu * factor / cluster.cores)}"
            for each, factor in zip(found, times, strict=True)
        ],
        "shuffled": [
            f"{each.shuffled * factor / GIGA:,.0f} GB ({100 * each.shuffled / each.bytes:.2f} %)"
            for each, factor in zip(found, times, strict=True)
        ],
        "results": [
            f"{each.results * factor / TERA:,.2f} TB" for each, factor in zip(found, times, strict=True)
        ],
        "decoded again": [f"{each.again:,} pairs of endpoints" for each in found],
        "if nothing overlaps": [
            minutes(reading + each.cpu * factor / cluster.cores)
            for each, factor in zip(found, times, strict=True)
        ],
    }
    head = f"| {cluster.bytes / TERA:g} TB, {cluster.executors} executors, {cluster.cores} cores |"
    lines = [head + "".join(f" *{each.name}* |" for each in found), "| --- |" + " --- |" * len(found)]
    return lines + [f"| {name} | {' | '.join(cells)} |" for name, cells in rows.items()]


def minutes(seconds: float) -> str:
    return f"{seconds / 60:,.1f} min"


if __name__ == "__main__":
    main()
