"""Whole connections beside what kwsniff tells of them.

`python -m tests.intact FILE... [--port N] [-v]` compares captures with the independent reading;
`python -m tests.intact --segmentations 10000` makes legal segmentations and counts those told wrong.
"""

from __future__ import annotations

import argparse
from collections import Counter
from time import monotonic

from tests.intact.checking import Verdict, check
from tests.intact.comparison import Difference, compare
from tests.intact.segmenting import STYLES, case

AT_ONCE = 400


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.intact",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("files", nargs="*")
    parser.add_argument("--port", type=int, action="append")
    parser.add_argument("-v", "--verbose", action="store_true", help="name what is told wrong")
    parser.add_argument("--segmentations", type=int, default=0, metavar="N", help="make so many")
    parser.add_argument("--style", action="append", choices=list(STYLES), help="of these styles only")
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="first seed of each style")
    asked = parser.parse_args()
    wrong = 0
    if asked.files:
        print("| file | connections | whole | calls | not told | invented | anomalies |")
        print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for path in asked.files:
        found = compare(path, asked.port or (9092, 9093, 9094))
        wrong += not found.right
        show(found, asked.verbose)
    if asked.segmentations:
        wrong += segmentations(asked.segmentations, asked.style or list(STYLES), asked.first, asked.verbose)
    raise SystemExit(1 if wrong else 0)


def show(found: Difference, verbose: bool) -> None:
    """A row of the table; `verbose`: what is behind its figures."""
    print(
        f"| {found.path} | {found.connections} | {found.whole} | {found.calls} | {len(found.untold)} "
        f"| {len(found.invented)} | {len(found.anomalies)} |"
    )
    if not verbose:
        return
    for reason, count in found.judged_not.most_common():
        print(f"    not judged: {count} {reason}")
    for kind, lines in (("not told", found.untold), ("invented", found.invented)):
        for name, call in lines[:20]:
            print(f"    {kind}: {name} {call}")
    for each in found.anomalies[:20]:
        print("    anomaly:", *each)
    if found.of_content:
        print("    of content:", dict(found.of_content))


def segmentations(count: int, styles: list[str], first: int, verbose: bool) -> int:
    """Make `count` segmentations, of all styles in turn; how many are told wrong."""
    tried: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    kinds: dict[str, Counter[str]] = {style: Counter() for style in styles}
    packets, begun = 0, monotonic()
    places = [(styles[at % len(styles)], first + at // len(styles)) for at in range(count)]
    for start in range(0, count, AT_ONCE):
        cases = [case(style, seed) for style, seed in places[start : start + AT_ONCE]]
        packets += sum(len(one.packets) for one in cases)
        for verdict in check(cases):
            tried[verdict.case.style] += 1
            if verdict.wrong:
                failed[verdict.case.style] += 1
                kinds[verdict.case.style].update(verdict.wrong.keys())
                _tell(verdict, verbose)
    print("| style | segmentations | wrong | in how many of them what |")
    print("| --- | ---: | ---: | --- |")
    for style in styles:
        what = ", ".join(f"{kind} {times}" for kind, times in kinds[style].most_common())
        print(f"| {style} | {tried[style]} | {failed[style]} | {what} |")
    print(f"\n{failed.total()} of {count} told wrong; {packets} packets, {monotonic() - begun:.0f} s")
    return failed.total()


def _tell(verdict: Verdict, verbose: bool) -> None:
    print(str(verdict) if verbose else str(verdict).split("\n")[0], flush=True)


if __name__ == "__main__":
    main()
