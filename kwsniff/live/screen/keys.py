"""The keys, and what each does: for the program, its help and the documentation."""

from __future__ import annotations

from typing import NamedTuple


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
    KeyBinding("1", "sort('rate')", "1 2 3 4 5", "sort by calls/s, p99, errors/s, unanswered, bytes/s"),
    KeyBinding("2", "sort('p99')", "", ""),
    KeyBinding("3", "sort('errors')", "", ""),
    KeyBinding("4", "sort('unanswered')", "", ""),
    KeyBinding("5", "sort('bytes')", "", ""),
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
