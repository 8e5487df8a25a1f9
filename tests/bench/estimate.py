"""What 10 TB would take on a cluster, from runs over captures on this machine: a section of docs/spark.md.

    tests/bench/estimate.py [CAPTURE.pcap ...] [--figures tests/bench/figures.json] [--out docs/spark.md]
                            [--cores 400] [--gigabits 5] [--executors 100] [--terabytes 10] [--gibibytes 1]

Each capture is run once to warm up and then `--rounds` times by `kwsniff pipeline` in one session, and
watched as `pipeline.py` watches; what was measured is kept in the file of figures. Without captures, that
file is taken.

CPU and results go with the bytes. What is shuffled goes with the cuts, and joining with the splits: they are
taken one after the other, by tasks that share the connections. Nothing else is assumed but the cores, and
what storage gives to an executor.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import textwrap
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

from kwsniff.spark.splits import MOST_SHARES
from tests.bench.pipeline import Watched

GIGA, TERA, GIB = 10**9, 10**12, 1 << 30
FIGURES = Path(__file__).with_name("figures.json")
BEGIN, END = "<!-- estimated -->", "<!-- end of what was estimated -->"


@dataclass(frozen=True)
class Cluster:
    """What is assumed."""

    bytes: int
    executors: int
    cores: int
    """Of all executors together."""
    bytes_per_second: float
    """That one executor reads from storage."""
    split_bytes: int = GIB

    @property
    def splits(self) -> int:
        return -(-self.bytes // self.split_bytes)


@dataclass(frozen=True)
class Measured:
    """What a capture took."""

    name: str
    bytes: int
    cpu: float
    """Seconds of all processes."""
    splits: int
    shuffled: int
    joining: float
    """CPU seconds of joining a split."""
    results: int
    rows: int
    again: int
    """Pairs of endpoints that were decoded again."""


@dataclass(frozen=True)
class Estimate:
    """Seconds that the steps of a run take, and what is moved."""

    reading: float
    cpu: float
    """Of all cores together ..."""
    decoding: float
    """... and what that takes."""
    joining: float
    shuffled: float
    """Bytes."""
    results: float

    @property
    def whole(self) -> float:
        """If nothing overlaps."""
        return self.reading + self.decoding + self.joining


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("captures", nargs="*", type=Path)
    parser.add_argument("--figures", type=Path, default=FIGURES)
    parser.add_argument("--terabytes", type=float, default=10)
    parser.add_argument("--executors", type=int, default=100)
    parser.add_argument("--cores", type=int, default=400)
    parser.add_argument("--gigabits", type=float, default=5)
    parser.add_argument("--gibibytes", type=float, default=1)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--master", default="local[4]")
    parser.add_argument("--out", type=Path)
    choice = parser.parse_args()
    cluster = Cluster(
        int(choice.terabytes * TERA), choice.executors, choice.cores, choice.gigabits * GIGA / 8,
        int(choice.gibibytes * GIB),
    )  # fmt: skip
    if choice.captures:
        found = measured(choice.captures, choice.master, choice.rounds)
        choice.figures.write_text(json.dumps([asdict(each) for each in found], indent=1) + "\n")
    lines = section(read(choice.figures), cluster)
    print("\n".join(lines))
    if choice.out is not None:
        write(choice.out, lines)


def read(path: Path) -> list[Measured]:
    """Figures that were kept."""
    return [Measured(**each) for each in json.loads(path.read_text())]


def write(page: Path, lines: list[str]) -> None:
    """Put the section in its place."""
    before, _, rest = page.read_text(encoding="utf-8").partition(f"{BEGIN}\n")
    after = rest.partition(f"{END}\n")[2]
    page.write_text("\n".join([f"{before}{BEGIN}", *lines, f"{END}\n{after}"]), encoding="utf-8")


def measured(captures: list[Path], master: str, rounds: int) -> list[Measured]:
    from kwsniff.config import Config
    from kwsniff.spark import job
    from kwsniff.spark.sparksession import session

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
            found.append(of(capture, done.manifest, statistics.median(cpu), joining(capture, config)))
    spark.stop()
    return found


def joining(capture: Path, config: Any, splits: int = 4) -> float:
    """CPU seconds of joining one split, of so many, in this process: what the task does that joins all."""
    from tests.parts.compare import cut_at, decode

    parts = cut_at([str(capture)], [number / splits for number in range(1, splits)], config)
    return decode(parts, config).joining / max(len(parts) - 1, 1)


def ports(capture: Path) -> tuple[int, ...]:
    """The brokers' ports, as the note beside a recorded workload says."""
    note = capture.with_suffix(".json")
    return tuple(json.loads(note.read_text())["ports"]) if note.exists() else ()


def of(capture: Path, manifest: Any, cpu: float, joining: float) -> Measured:
    splits = manifest.splits
    return Measured(
        capture.stem, capture.stat().st_size, cpu, splits.get("splits", 1), splits.get("shuffled_bytes", 0),
        joining, sum(file.bytes for file in manifest.files), sum(manifest.events.values()),
        splits.get("again", 0),
    )  # fmt: skip


def estimate(each: Measured, cluster: Cluster) -> Estimate:
    """What the traffic of a capture takes on the cluster."""
    factor = cluster.bytes / each.bytes
    cpu = each.cpu * factor
    return Estimate(
        reading=2 * cluster.bytes / (cluster.executors * cluster.bytes_per_second),
        cpu=cpu,
        decoding=cpu / cluster.cores,
        joining=each.joining * cluster.splits / MOST_SHARES,
        shuffled=each.shuffled / max(each.splits - 1, 1) * (cluster.splits - 1),
        results=each.results * factor,
    )


def section(found: list[Measured], cluster: Cluster) -> list[str]:
    """What docs/spark.md says of it: what is assumed, a column for each capture, and what breaks first."""
    made = [estimate(each, cluster) for each in found]
    return [*assumed(cluster), "", *table(found, made, cluster), "", *breaks(found, made, cluster)]


def assumed(cluster: Cluster) -> list[str]:
    size, gigabits = cluster.bytes / TERA, cluster.bytes_per_second * 8 / GIGA
    cores, split = cluster.cores // cluster.executors, cluster.split_bytes / GIB
    return wrapped(
        f"Assumed: {size:g} TB in {cluster.executors} files; {cluster.executors} executors, with {cores} "
        f"cores and {gigabits:g} Gbit/s each; splits of {split:g} GiB, so {cluster.splits:,} of them."
    )


def table(found: list[Measured], made: list[Estimate], cluster: Cluster) -> list[str]:
    rows = {
        "measured": [f"{each.bytes / 1e6:,.0f} MB, {each.rows:,} rows" for each in found],
        "CPU seconds a GB": [f"{each.cpu * GIGA / each.bytes:,.1f}" for each in found],
        "read: once to cut, once to decode": [span(each.reading) for each in made],
        "CPU": [f"{each.cpu:,.0f} s, {span(each.decoding)}" for each in made],
        f"joining, {MOST_SHARES} tasks": [span(each.joining) for each in made],
        "shuffled": [
            f"{each.shuffled / GIGA:,.0f} GB ({100 * each.shuffled / cluster.bytes:.2f} %)" for each in made
        ],
        "results": [f"{each.results / GIGA:,.0f} GB" for each in made],
        "pairs of endpoints decoded again, as measured": [f"{each.again:,}" for each in found],
        "if nothing overlaps": [span(each.whole) for each in made],
    }
    head = f"| {cluster.bytes / TERA:g} TB, {cluster.executors} executors, {cluster.cores} cores |"
    lines = [head + "".join(f" *{each.name}* |" for each in found), "| --- |" + " --- |" * len(found)]
    return lines + [f"| {name} | {' | '.join(cells)} |" for name, cells in rows.items()]


def breaks(found: list[Measured], made: list[Estimate], cluster: Cluster) -> list[str]:
    """What takes longest of what more executors do not help, and what to do then."""
    file = cluster.bytes / cluster.executors / cluster.bytes_per_second
    single = span(cluster.bytes / cluster.bytes_per_second)
    worst, name = max((each.joining, figures.name) for each, figures in zip(made, found, strict=True))
    least = min(each.cpu / each.joining for each in made)
    limits = [
        (worst, f"**Joining.** {MOST_SHARES} tasks, each with a share of the connections, take the splits in "
                f"their order: {span(worst)} with *{name}*. From {least:,.0f} cores on a run may wait for "
                f"them. Capture points are independent, because a connection is seen where its broker is: a "
                f"run for each of {cluster.executors} brokers joins in {span(worst / cluster.executors)}."),
        (file, f"**One large file.** If it is not as most are (damage, several sections), its record headers "
               f"are followed by one task: {span(file)} for each of {cluster.executors} files, all at once; "
               f"a single one would take {single}."),
    ]  # fmt: skip
    texts = [text for _, text in sorted(limits, reverse=True)]
    room = max(each.results for each in made) / GIGA
    texts.append(
        f"**Room.** Results, up to {room:,.0f} GB, and staged events, four times as much, are in the output "
        "until the run is over, and the version before until the next."
    )
    lines = [line for number, text in enumerate(texts, 1) for line in wrapped(f"{number}. {text}", "   ")]
    return ["What breaks first, of what more executors do not help:", "", *lines]


def wrapped(text: str, indent: str = "") -> list[str]:
    return textwrap.wrap(text, 118, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def span(seconds: float) -> str:
    """A time in minutes, or what reads better."""
    if seconds < 60:
        return f"{seconds:,.0f} s"
    return f"{seconds / 60:,.1f} min" if seconds < 7200 else f"{seconds / 3600:,.1f} h"


if __name__ == "__main__":
    main()
