"""The busiest and the slowest clients and topics, whatever else is shown: two lines, or lists where there is
room."""

from __future__ import annotations

import numpy as np
from rich.cells import cell_len
from rich.text import Text

from kwsniff.live.screen import columns as c
from kwsniff.live.screen.layout import GAP, cut, padded
from kwsniff.live.screen.state import ordered
from kwsniff.live.screen.statistics import Figures

LEAST_HEIGHT = 18
"""Lines of a screen that has room for two lines, and one above them."""
LIST_HEIGHT = 34
"""Lines of a screen that has room for lists."""
COUNTS = ((46, 8), (LIST_HEIGHT, 5))
"""Lines of a screen, and names in a list on it."""
LEAST_WIDTH = 34
"""Cells of a list."""

VALUE = 14
"""Cells of a rate or latency."""

KINDS = (("busiest", "rate"), ("slowest", "p99"))
OF = (("client", "clients"), ("topic", "topics"))


def leaders(groups: dict[str, Figures], width: int, height: int) -> list[Text]:
    """The lines for a screen of this size."""
    if height < LEAST_HEIGHT:
        return []
    if height < LIST_HEIGHT:
        return [Text(), *_lines(groups, width)]
    count = next(names for lines, names in COUNTS if height >= lines)
    lists = [_list(f"{kind} {many}", one, sort, groups, count) for one, many in OF for kind, sort in KINDS]
    across = 4 if width >= 4 * LEAST_WIDTH + 3 * GAP else 2
    texts: list[Text] = []
    for first in range(0, len(lists), across):
        texts += [Text(), *_beside(lists[first : first + across], width)]
    return texts


def _lines(groups: dict[str, Figures], width: int) -> list[Text]:
    """`busiest   client NAME 12.0/s   topic NAME 3.00/s`, and the slowest below them."""
    best = {(kind, one): _best(groups[one], one, sort, 1) for kind, sort in KINDS for one, _ in OF}
    shown = {place: found[0] if found else ("-", "") for place, found in best.items()}
    room = (width - 8 - sum(len(f"  {one} ") + VALUE for one, _ in OF)) // len(OF)
    lines = []
    for kind, _ in KINDS:
        text = Text(f"{kind:<8}", no_wrap=True, end="")
        for one, _ in OF:
            name, value = shown[kind, one]
            longest = max(cell_len(shown[other, one][0]) for other, _ in KINDS)
            text.append(f"  {one} ")
            text.append(padded(name, min(room, longest)), "bold")
            text.append(f" {value:<{VALUE - 1}}")
        text.truncate(width)
        lines.append(text)
    return lines


def _list(title: str, one: str, sort: str, groups: dict[str, Figures], count: int) -> list[tuple[str, str]]:
    found = _best(groups[one], one, sort, count)
    return [(title, ""), *found]


def _beside(lists: list[list[tuple[str, str]]], width: int) -> list[Text]:
    room = (width - GAP * (len(lists) - 1)) // len(lists)
    lines = []
    for place in range(max(map(len, lists))):
        line = Text(no_wrap=True, end="")
        for number, entries in enumerate(lists):
            name, value = entries[place] if place < len(entries) else ("", "")
            text = padded(cut(name, room - len(value) - 1), room - len(value)) + value
            line.append((" " * GAP if number else "") + text, "bold" if place == 0 else "")
        lines.append(line)
    return lines


def _best(figures: Figures, one: str, sort: str, count: int) -> list[tuple[str, str]]:
    """Names and values of the first rows."""
    found: list[tuple[str, str]] = []
    for row in ordered(figures, sort):
        key = figures.keys[row]
        if key is None or (sort == "p99" and np.isnan(figures.quantiles[row, -1])):
            continue
        cells, _ = c.row_line(figures, row, one)
        value = f"{cells['rate'].text}/s" if sort == "rate" else f"p99 {cells['p99'].text} ms"
        found.append((cells["name"].text, value))
        if len(found) == count:
            break
    return found
