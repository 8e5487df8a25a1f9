"""Measures kwsniff beside tshark on the recorded workloads and writes docs/performance.md.

    tests/bench/run.py [--rounds N] [--only SECTION …] [--cache FOLDER] [--out FILE]

All in one go on one machine; what counts are ratios, because machines are noisy. kwsniff is installed from a
wheel of this tree, and its first run after that is what is compared. Wall time, CPU seconds (with child
processes) and peak memory are those the operating system reports. Workloads that are not there are recorded
first (`record.py`).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from aims import CLUSTER, MOCK, SECTIONS, Line
from installed import Installed
from measure import MIB, ROOT, machine, measured, write
from meter import Meter

__all__ = ["CACHE", "HERE", "MIB", "ROOT", "machine", "main", "measured", "write"]

CACHE = Path(os.environ.get("KWSNIFF_BENCH") or Path.home() / ".cache" / "kwsniff-bench")
HERE = Path(__file__).parent
HEAD = [
    "| workload | rival s | first s | later s | what counts | aim | reached |",
    "| --- | --- | --- | --- | --- | --- | --- |",
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=3, help="of kwsniff after its first run")
    parser.add_argument("--only", nargs="*", choices=SECTIONS, default=list(SECTIONS), metavar="SECTION")
    parser.add_argument("--cache", type=Path, default=CACHE)
    parser.add_argument("--out", type=Path)
    choice = parser.parse_args()
    record = [sys.executable, str(HERE / "record.py"), *CLUSTER, *MOCK, "--cache", str(choice.cache)]
    subprocess.run(record, check=True, cwd=ROOT)
    with tempfile.TemporaryDirectory(prefix="kwsniff-bench-") as scratch:
        installed = Installed(Path(scratch))
        installed.install()
        meter = Meter(choice.cache, Path(scratch), installed, choice.rounds)
        lines = [f"On {time.strftime('%Y-%m-%d')}: {machine()}.", *table(meter, choice.only)]
    print("\n".join(lines))
    if choice.out is not None:
        write(choice.out, lines)


def table(meter: Meter, sections: list[str]) -> Iterator[str]:
    """The sections, one after the other."""
    for name in sections:
        about = (SECTIONS[name].__doc__ or "").strip()
        yield from ("", f"**{name}**: {about}", "", *HEAD)
        yield from map(row, SECTIONS[name](meter))


def row(line: Line) -> str:
    figures = f"{line.rival} | {line.first} | {line.again} | {line.counts} | {line.aim}"
    return f"| {line.what} | {figures} | {'yes' if line.reached else '**no**'} |"


if __name__ == "__main__":
    main()
