"""What the user has asked to see, and which rows that is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kwsniff.live.screen.grouping import GROUPINGS, Key
from kwsniff.live.screen.statistics import Figures
from kwsniff.report.text import printable

SORTS = {
    "rate": "calls/s",
    "p99": "p99",
    "errors": "errors",
    "unanswered": "unanswered",
    "bytes": "bytes",
}
"""What rows can be sorted by, greatest first."""

ROWS, CALLS, HELP = "rows", "calls", "help"


@dataclass
class State:
    """Choices of the user."""

    grouping: str = GROUPINGS[0]
    sort: str = "rate"
    text: str = ""
    """Shown are rows whose name contains it, in any case."""
    paused: bool = False
    view: str = ROWS
    selected: Key | None = None
    """The row that was selected; None for whichever is first."""
    top: int = 0
    """First row in sight."""
    scroll: int = 0
    """First line in sight of the other views."""

    def show_group(self, grouping: str) -> None:
        """Group otherwise, which is about other rows."""
        self.grouping, self.view = grouping, ROWS
        self.selected, self.top = None, 0

    def place(self, figures: Figures, order: list[int]) -> int:
        """Where in `order` the selected row stands; the first one if it's gone."""
        if self.selected is not None:
            for place, row in enumerate(order):
                if figures.keys[row] == self.selected:
                    return place
        return 0

    def move(self, figures: Figures, by: int) -> None:
        """Select a row further down (or up, if negative)."""
        order = [row for row in ordered(figures, self.sort, self.text) if figures.keys[row] is not None]
        if order:
            place = min(max(self.place(figures, order) + by, 0), len(order) - 1)
            self.selected = figures.keys[order[place]]

    def see(self, place: int, count: int, height: int) -> None:
        """Scroll so that the row at `place` of `count` is among `height` lines."""
        self.top = min(max(self.top, place - height + 1), place, max(count - height, 0))


def ordered(figures: Figures, sort: str, text: str = "") -> list[int]:
    """Rows of `figures` that contain `text`, the greatest first; the others last, as long as they have calls
    and no text is asked for."""
    names = [_name(key) for key in figures.keys]
    wanted = text.casefold()
    values, calls = sort_values(figures, sort), figures.sums["calls"]
    rows = [row for row, key in enumerate(figures.keys) if key is not None and wanted in names[row]]
    rows.sort(key=lambda row: (-values[row], -calls[row], names[row]))
    others = [row for row, key in enumerate(figures.keys) if key is None and calls[row] and not text]
    return rows + others


def sort_values(figures: Figures, sort: str) -> npt.NDArray[np.float64]:
    """What rows are sorted by; what is unknown is less than all else."""
    if sort == "p99":
        return np.nan_to_num(figures.quantiles[:, -1], nan=-1.0)
    values = figures.sums["calls" if sort == "rate" else sort] / figures.seconds
    return np.asarray(values, np.float64)


def _name(key: Key | None) -> str:
    return "" if key is None else f"{printable(key[0] or '(none)')} {key[1]}".casefold()
