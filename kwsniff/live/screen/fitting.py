"""Tables of text that fit a width: columns are left out, then long texts are cut.

Widths are terminal cells, of which some characters take two and some none.
"""

from __future__ import annotations

from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
from rich.text import Text

GAP = 2


@dataclass(frozen=True, slots=True)
class Cell:
    """A text and the style it is shown in."""

    text: str
    style: str = ""


@dataclass(frozen=True, slots=True)
class ScreenColumn:
    """A column as people see it."""

    name: str
    heading: str
    rank: int = 0
    """How soon it is left out, 0 never."""
    left: bool = False
    """A text, which may be cut; else a number."""
    width: int = 0
    """At least so wide, so that numbers don't make the columns dance."""
    least: int = 12
    """A text may be cut to so many cells before a column is left out for it."""


Line = tuple[dict[str, Cell], str]
"""Cells by name of the column, and a style for the whole line."""


def cut(text: str, width: int) -> str:
    """`text` in at most `width` cells. It is cut before its end, for names often differ only there."""
    if cell_len(text) <= width:
        return text
    tail = _last(text, (width - 1) // 3)
    return set_cell_size(text, max(width - 1 - cell_len(tail), 0)) + "…" + tail if width > 0 else ""


def _last(text: str, width: int) -> str:
    """As much of the end of `text` as fits into `width` cells."""
    start, taken = len(text), 0
    while start and taken + cell_len(text[start - 1]) <= width:
        start -= 1
        taken += cell_len(text[start])
    return text[start:]


def padded(text: str, width: int, left: bool = True) -> str:
    """`text` in exactly `width` cells."""
    text = cut(text, width)
    space = " " * (width - cell_len(text))
    return text + space if left else space + text


def table(columns: list[ScreenColumn], lines: list[Line], width: int) -> tuple[list[ScreenColumn], list[int]]:
    """The columns that fit into `width`, and how wide each is. One that is empty in all lines is left out,
    but those of rank 0."""
    shown = [column for column in columns if not column.rank or _filled(column, lines)]
    widths = {column.name: _width(column, lines) for column in shown}
    while _least(shown, widths) > width and any(column.rank for column in shown):
        last = max(column.rank for column in shown)
        shown = [column for column in shown if column.rank < last]
    return shown, _shrunk(shown, [widths[column.name] for column in shown], width)


def drawn(columns: list[ScreenColumn], widths: list[int], line: Line) -> Text:
    """One line of a table."""
    cells, style = line
    text = Text(no_wrap=True, end="")
    for place, (column, width) in enumerate(zip(columns, widths, strict=True)):
        cell = cells.get(column.name, Cell(""))
        text.append(" " * GAP if place else "")
        text.append(padded(cell.text, width, column.left), cell.style)
    text.stylize(style)
    return text


def headings(columns: list[ScreenColumn], widths: list[int], style: str) -> Text:
    """The line above a table."""
    return drawn(columns, widths, ({column.name: Cell(column.heading) for column in columns}, style))


def _filled(column: ScreenColumn, lines: list[Line]) -> bool:
    return any(column.name in cells and cells[column.name].text for cells, _ in lines)


def _width(column: ScreenColumn, lines: list[Line]) -> int:
    texts = (cells[column.name].text for cells, _ in lines if column.name in cells)
    return max(column.width, cell_len(column.heading), *map(cell_len, texts), 0)


def _least(columns: list[ScreenColumn], widths: dict[str, int]) -> int:
    """Cells that the columns take if long texts are cut."""
    least = (min(widths[c.name], max(c.least, c.width)) if c.left else widths[c.name] for c in columns)
    return sum(least) + GAP * (len(columns) - 1)


def _shrunk(columns: list[ScreenColumn], widths: list[int], width: int) -> list[int]:
    """`widths`, of which those of texts are made less until all fit: the widest first of those that are wider
    than they have to be, and then of all."""
    over = sum(widths) + GAP * (len(widths) - 1) - width
    texts = [place for place, column in enumerate(columns) if column.left]
    while over > 0 and texts:
        wide = [place for place in texts if widths[place] > max(columns[place].least, columns[place].width)]
        widest = max(wide or texts, key=lambda place: widths[place])
        if widths[widest] <= 1:
            break
        widths[widest] -= 1
        over -= 1
    return widths
