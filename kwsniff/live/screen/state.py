"""What the user has asked to see, and which rows that is."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, tzinfo
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kwsniff.live.screen.lastminute import Figures
from kwsniff.live.screen.screenrows import GROUPINGS, Key
from kwsniff.output.text import printable

# The keys, and what each does: for the program, its help and the documentation.


class KeyBinding(NamedTuple):
    """Keys that do one thing."""

    keys: str
    """As textual names them, joined by commas."""
    action: str
    """Method of the app, `action_` before it."""
    shown: str
    """As people call them."""
    meaning: str


KEYS = (
    KeyBinding("a", "group('api')", "a c t b g", "calls by API, client, topic, broker, consumer group"),
    KeyBinding("c", "group('client')", "", ""),
    KeyBinding("t", "group('topic')", "", ""),
    KeyBinding("b", "group('broker')", "", ""),
    KeyBinding("g", "group('group')", "", ""),
    KeyBinding("tab", "next_group(1)", "Tab", "the next of these (Shift-Tab: the one before)"),
    KeyBinding("shift+tab", "next_group(-1)", "", ""),
    KeyBinding(
        "1", "sort('rate')", "1 2 3 4 5 6", "sort by calls/s, p99, errors/s, unanswered, bytes/s, lag"
    ),
    KeyBinding("2", "sort('p99')", "", ""),
    KeyBinding("3", "sort('errors')", "", ""),
    KeyBinding("4", "sort('unanswered')", "", ""),
    KeyBinding("5", "sort('bytes')", "", ""),
    KeyBinding("6", "sort('lag')", "", ""),
    KeyBinding("s", "next_sort", "s", "sort by the next of these"),
    KeyBinding("up,k", "move(-1)", "Up Down", "select a row (also k j, Page Up, Page Down, Home, End)"),
    KeyBinding("down,j", "move(1)", "", ""),
    KeyBinding("pageup", "page(-1)", "", ""),
    KeyBinding("pagedown", "page(1)", "", ""),
    KeyBinding("home", "move(-1000000)", "", ""),
    KeyBinding("end", "move(1000000)", "", ""),
    KeyBinding("enter", "calls", "Enter", "the last calls of the selected row, newest first"),
    KeyBinding("slash", "filter", "/", "only rows whose name contains a text"),
    KeyBinding("escape", "out", "Esc", "back to the rows; there: no filter, first row selected"),
    KeyBinding(
        "p,space", "pause", "p Space", "hold what is shown; counting goes on, capture health stays current"
    ),
    KeyBinding("question_mark,h,f1", "help", "?", "this help"),
    KeyBinding("q", "leave", "q Ctrl-C", "quit"),
)

FOOTERS = {
    "rows": "q quit  ? help  a c t b g group by  s sort  / filter  p pause  Enter calls",
    "calls": "q quit  ? help  Esc back  Up Down scroll  p pause",
    "help": "q quit  Esc back  Up Down scroll",
}
"""The line of keys below each view."""


SORTS = {
    "rate": "calls/s",
    "p99": "p99",
    "errors": "errors",
    "unanswered": "unanswered",
    "bytes": "bytes",
    "lag": "lag",
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
    zone: tzinfo = UTC
    """The time zone of times."""
    paused: bool = False
    view: str = ROWS
    selected: Key | None = None
    """The row that was selected; None for whichever is first."""
    top: int = 0
    """First row in sight."""
    scroll: int = 0
    """First line in sight of the other views."""

    def show_group(self, grouping: str) -> None:
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
    if sort == "lag":
        return np.nan_to_num(figures.lag, nan=-1.0)
    values = figures.sums["calls" if sort == "rate" else sort] / figures.seconds
    return np.asarray(values, np.float64)


def _name(key: Key | None) -> str:
    return "" if key is None else f"{printable(key[0] or '(none)')} {key[1]}".casefold()
