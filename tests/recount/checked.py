"""Compares what is shown with what is right, and counts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

Row = dict[str, Any]


class Checked:
    """Counts what was compared, and keeps what differs."""

    def __init__(self) -> None:
        self.figures: Counter[str] = Counter()
        self.amiss: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.about = ""
        """What is looked at, for those that are wrong."""

    def equal(self, output: str, where: str, shown: Any, right: Any) -> None:
        self.figures[output] += 1
        if not same(shown, right):
            self.amiss[output] += 1
            self.wrong.append(f"{self.about} {output} {where}: {shown!r}, right is {right!r}")

    def rows(self, output: str, shown: Sequence[Row], right: Sequence[Row], keys: Sequence[str]) -> None:
        """Compare rows by their keys, all columns of the right ones."""
        theirs = {tuple(str(row.get(key)) for key in keys): row for row in shown}
        mine = {tuple(str(row.get(key)) for key in keys): row for row in right}
        self.equal(output, f"one row for each {', '.join(keys)}", len(shown), len(theirs))
        more, missing = sorted(theirs.keys() - mine.keys()), sorted(mine.keys() - theirs.keys())
        self.equal(
            output, f"rows by {', '.join(keys)} that are no such, and that lack", (more, missing), ([], [])
        )
        for key in theirs.keys() & mine.keys():
            for name, value in mine[key].items():
                if name not in keys:
                    self.equal(output, f"{key} {name}", theirs[key].get(name), value)

    def table(self) -> Iterable[str]:
        """How many figures of each output there are, and how many are wrong."""
        yield f"{'output':<32}{'figures':>12}{'wrong':>8}"
        for output, count in sorted(self.figures.items()):
            yield f"{output:<32}{count:>12,}{self.amiss[output]:>8,}"
        yield f"{'all':<32}{self.figures.total():>12,}{self.amiss.total():>8,}"


def same(shown: Any, right: Any) -> bool:
    if isinstance(right, datetime):
        return shown is not None and datetime.fromisoformat(str(shown)) == right.astimezone(UTC)
    if isinstance(right, float) or isinstance(shown, float):
        if shown is None or right is None:
            return (shown is None or math.isnan(shown)) and (right is None or math.isnan(right))
        return math.isclose(shown, right, rel_tol=1e-9, abs_tol=1e-6)
    return bool(shown == right)
