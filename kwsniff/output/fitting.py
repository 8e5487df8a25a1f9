"""Tables of text that fit a width: columns are left out, those of the greatest rank first, then long texts
are cut. Widths are counted in the cells of a terminal, of which some characters take two and some none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kwsniff.output.text import cell_width, fitted

GAP = 2
"""Cells between columns."""


@dataclass(frozen=True, slots=True)
class Fit:
    """What a column of a table needs."""

    heading: str
    rank: int = 0
    """How soon it is left out where room is short: the greatest first, 0 never."""
    left: bool = False
    """Aligned to the left, as text is."""
    width: int = 0
    """At least so wide."""
    enough: int | None = None
    """It is left out only where it can't have so many cells; None: it needs all."""
    soft: int = 0
    """It is cut to so many cells before any other is cut to fewer than that."""
    floor: int | None = None
    """It may be cut to so many cells; None: not at all."""


def fit(columns: Sequence[Fit], texts: Sequence[Iterable[str]], width: int | None) -> dict[int, int]:
    """Which columns there is room for, by their places, and how wide each is to be. `texts` are the cells of
    each column; one that has none is left out, unless its rank is 0. Without a width all others stay."""
    whole = {
        place: max(column.width, *map(cell_width, (column.heading, *cells)))
        for place, (column, cells) in enumerate(zip(columns, map(list, texts), strict=True))
        if not column.rank or any(cells)
    }
    if width is None:
        return whole
    least = {place: _least(columns[place], size) for place, size in whole.items()}
    while _taken(least) > width and (last := max(columns[place].rank for place in least)):
        least = {place: size for place, size in least.items() if columns[place].rank < last}
    return _cut(columns, {place: whole[place] for place in least}, width)


def _least(column: Fit, size: int) -> int:
    return size if column.enough is None else min(size, max(column.enough, column.width))


def _taken(widths: dict[int, int]) -> int:
    return sum(widths.values()) + GAP * (len(widths) - 1)


def _cut(columns: Sequence[Fit], widths: dict[int, int], width: int) -> dict[int, int]:
    """The widths, of which the greatest are made less until all fit: first those above what is soft."""
    while _taken(widths) > width:
        floors = ((place, columns[place].floor) for place in widths)
        able = [place for place, floor in floors if floor is not None and widths[place] > floor]
        if not able:
            break
        widths[max(able, key=lambda place: (widths[place] > columns[place].soft, widths[place]))] -= 1
    return widths


def aligned(columns: Sequence[Fit], widths: dict[int, int], cells: Sequence[str]) -> list[str]:
    """The cells of the columns that there is room for, each as wide as its column."""
    return [fitted(cells[place], size, columns[place].left) for place, size in widths.items()]


def joined(cells: Iterable[str]) -> str:
    """Cells as a line."""
    return (" " * GAP).join(cells).rstrip()
