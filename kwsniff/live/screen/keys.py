"""The keys, and what each does: for the program, its help and the documentation."""

from __future__ import annotations

from typing import NamedTuple


class Key(NamedTuple):
    """Keys that do one thing."""

    keys: str
    """As textual names them, joined by commas."""
    action: str
    """Method of the app, `action_` before it."""
    shown: str
    """As people call them."""
    meaning: str


KEYS = (
    Key("a", "group('api')", "a c t b g", "calls by API, client, topic, broker, consumer group"),
    Key("c", "group('client')", "", ""),
    Key("t", "group('topic')", "", ""),
    Key("b", "group('broker')", "", ""),
    Key("g", "group('group')", "", ""),
    Key("tab", "next_group(1)", "Tab", "the next of these (Shift-Tab: the one before)"),
    Key("shift+tab", "next_group(-1)", "", ""),
    Key("1", "sort('rate')", "1 2 3 4 5", "sort by calls/s, p99, errors/s, unanswered, bytes/s"),
    Key("2", "sort('p99')", "", ""),
    Key("3", "sort('errors')", "", ""),
    Key("4", "sort('unanswered')", "", ""),
    Key("5", "sort('bytes')", "", ""),
    Key("s", "next_sort", "s", "sort by the next of these"),
    Key("up,k", "move(-1)", "Up Down", "select a row (also k j, Page Up, Page Down, Home, End)"),
    Key("down,j", "move(1)", "", ""),
    Key("pageup", "page(-1)", "", ""),
    Key("pagedown", "page(1)", "", ""),
    Key("home", "move(-1000000)", "", ""),
    Key("end", "move(1000000)", "", ""),
    Key("enter", "calls", "Enter", "the last calls of the selected row, newest first"),
    Key("slash", "filter", "/", "only rows whose name contains a text"),
    Key("escape", "out", "Esc", "back to the rows; there: no filter, first row selected"),
    Key("p,space", "pause", "p Space", "hold what is shown; counting goes on, capture health stays current"),
    Key("question_mark,h,f1", "help", "?", "this help"),
    Key("q", "leave", "q Ctrl-C", "quit"),
)

FOOTERS = {
    "rows": "q quit  ? help  a c t b g group by  s sort  / filter  p pause  Enter calls",
    "calls": "q quit  ? help  Esc back  Up Down scroll  p pause",
    "help": "q quit  Esc back  Up Down scroll",
}
"""The line of keys below each view."""
