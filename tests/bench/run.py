"""Measures kwsniff beside tshark on the recorded workloads and writes docs/performance.md.

    python -m tests.bench.run [--rounds N] [--only SECTION …] [--cache FOLDER] [--out FILE]

All in one go on one machine; what counts are ratios, because machines are noisy. kwsniff is installed from a
wheel of this tree, and its first run after that is what is compared. Wall time, CPU seconds (with child
processes) and peak memory are those the operating system reports. Workloads that are not there are recorded
first (`record.py`).
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from tests.bench.aims import CLUSTER, MOCK, SECTIONS, Line
from tests.bench.measure import CACHE, Meter, machine, record, say

HEAD = [
    "| workload | rival s | first s | later s | what counts | aim | reached |",
    "| --- | --- | --- | --- | --- | --- | --- |",
]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="of kwsniff after its first run")
    parser.add_argument("--only", nargs="*", choices=SECTIONS, default=list(SECTIONS), metavar="SECTION")
    parser.add_argument("--cache", type=Path, default=CACHE)
    parser.add_argument("--out", type=Path)
    choice = parser.parse_args()
    record((*CLUSTER, *MOCK), choice.cache)
    lines = [f"On {time.strftime('%Y-%m-%d')}: {machine()}."]
    with tempfile.TemporaryDirectory(prefix="kwsniff-bench-") as scratch:
        meter = Meter(choice.cache, Path(scratch), choice.rounds)
        for name in choice.only:
            about = (SECTIONS[name].__doc__ or "").strip()
            lines += ["", f"**{name}**: {about}", "", *HEAD, *map(row, SECTIONS[name](meter))]
    say(lines, choice.out)


def row(line: Line) -> str:
    figures = f"{line.rival} | {line.first} | {line.again} | {line.counts} | {line.aim}"
    return f"| {line.what} | {figures} | {'yes' if line.reached else '**no**'} |"


if __name__ == "__main__":
    main()
