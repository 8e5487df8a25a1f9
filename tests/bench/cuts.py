"""Cuts captures into splits and compares with one process: the same rows in the same order.

    tests/bench/cuts.py [--splits 6] [--max-buffered BYTES] CAPTURE.pcap ...

With NAME:VARIANT.pcap, `variants.py` is asked for the variant first, as in `cluster-small-200k.pcap:lost-20`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

import pyarrow as pa
import variants

from kwsniff.config import Config
from kwsniff.rows.schema import EVENTS
from kwsniff.run.offline import events
from tests.bench.estimate import ports
from tests.parts.compare import cut_at, decode

HEAD = "| capture | splits | rows | gaps | `truncated` | `buffer_limit` | decoded again | as one process |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("captures", nargs="+")
    parser.add_argument("--splits", type=int, default=6)
    parser.add_argument("--max-buffered", type=int)
    choice = parser.parse_args()
    print(HEAD)
    print("| --- |" + " --- |" * (HEAD.count("|") - 2))
    same = True
    with tempfile.TemporaryDirectory(prefix="kwsniff-cuts-") as scratch:
        for each in choice.captures:
            same &= compared(each, choice.splits, choice.max_buffered, Path(scratch))
    sys.exit(0 if same else 1)


def compared(given: str, count: int, max_buffered: int | None, scratch: Path) -> bool:
    """Print a row; whether the rows are those of one process."""
    name, _, variant = given.partition(":")
    recorded = Path(name)
    config = Config(ports=ports(recorded) or Config().ports)
    if max_buffered is not None:
        config = Config(ports=config.ports, max_buffered_bytes=max_buffered)
    path = recorded
    if variant:
        path = scratch / f"{recorded.stem}-{variant}.pcap"
        variants.make(recorded, {variant: path})
    expected = pa.Table.from_batches(list(events([str(path)], config)), EVENTS)
    splits = cut_at([str(path)], [(number + 1) / count for number in range(count - 1)], config)
    outcome = decode(splits, config)
    same = outcome.independent and outcome.events.equals(expected)
    codes = expected["code"].to_pylist()
    cells = [
        path.stem, len(splits), f"{expected.num_rows:,}", f"{codes.count('gap'):,}",
        f"{expected['status'].to_pylist().count('truncated'):,}", f"{codes.count('buffer_limit'):,}",
        f"{outcome.again} pairs of endpoints" + (f", {outcome.whole} splits" if outcome.whole else ""),
        "yes" if same else "NO",
    ]  # fmt: skip
    print(f"| {' | '.join(map(str, cells))} |", flush=True)
    if variant:
        path.unlink()
    return same


if __name__ == "__main__":
    main()
