"""python -m tests.netem [--minutes N] [--seed N] [--row NAME] [--keep FOLDER]: the matrix as a table."""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.netem.matrix import IMPAIRMENTS, Cell, carry, judge
from tests.netem.views import VIEWS


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.netem", description=__doc__)
    parser.add_argument(
        "--minutes", type=float, default=5, help="rows are repeated with new seeds until then"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--row", action="append", help="only rows whose name begins so")
    parser.add_argument("--keep", type=Path, help="keep captures of rows that are told wrong here")
    options = parser.parse_args()
    rows = [each for each in IMPAIRMENTS if not options.row or each.name.startswith(tuple(options.row))]
    deadline = time.monotonic() + options.minutes * 60
    seed, wrong, calls = options.seed, 0, 0
    print("calls told right, else: not told/invented/anomalies\n")
    print(f"{'':18} seed packets " + "".join(f"{name:>14}" for name in VIEWS))
    while True:
        for impairment in rows:
            if seed > options.seed and time.monotonic() > deadline:
                raise SystemExit(f"{calls} calls read, {wrong} cells wrong" if wrong else 0)
            with tempfile.TemporaryDirectory(prefix="kwsniff-netem-") as work:
                folder = Path(work)
                cell = judge(carry(impairment, seed, folder), folder)
                wrong += show(cell)
                calls += sum(outcome.calls for outcome in cell.outcomes.values())
                if options.keep and not all(outcome.is_right for outcome in cell.outcomes.values()):
                    shutil.copytree(
                        folder,
                        options.keep / f"{impairment.name}-{seed}".replace(" ", "-"),
                        dirs_exist_ok=True,
                    )
        seed += 1


def show(cell: Cell) -> int:
    """Print a row, and below it what is wrong by kind of traffic; how many of its captures are told wrong."""
    line = "".join(f"{cell.outcomes.get(name) or '-'!s:>14}" for name in VIEWS)
    print(f"{cell.impairment.name:18} {cell.seed:4} {cell.packets:7} {line}", flush=True)
    for problem, count in Counter(cell.problems).items():
        print(f"    {count} times {problem}")
    kinds = {chain[0].port: chain[0].kind for chain in cell.chains}
    for name, outcome in cell.outcomes.items():
        for title in ("missing", "invented", "anomalies"):
            found: Counter[str] = Counter()
            for (first, second, *_), count in getattr(outcome, title).items():
                # A request or a response and its port; an anomaly's port and its code.
                kind, what = (
                    (kinds.get(first), second) if title == "anomalies" else (kinds.get(second), first)
                )
                found[f"{kind} {what}"] += count
            if found:
                print(
                    f"    {name}, {title}: " + ", ".join(f"{what} {count}" for what, count in found.items())
                )
    return sum(not outcome.is_right for outcome in cell.outcomes.values())


if __name__ == "__main__":
    main()
