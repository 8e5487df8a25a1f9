"""The tables of the screen: figures of rows, and last calls, with their columns and cells."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import Any, NamedTuple

import numpy as np
from rich.cells import cell_len, set_cell_size
from rich.text import Text

from kwsniff.live.screen.lastminute import Figures
from kwsniff.live.screen.screenrows import Key
from kwsniff.output.text import GAP, Fit, fit, printable
from kwsniff.output.units import endpoint, narrow_size, number


@dataclass(frozen=True, slots=True)
class Cell:
    """A text and the style it is shown in."""

    text: str
    style: str = ""


class ScreenColumn(NamedTuple):
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

    @property
    def fit(self) -> Fit:
        if not self.left:
            return Fit(self.heading, self.rank, width=self.width)
        least = max(self.least, self.width)
        return Fit(self.heading, self.rank, True, self.width, least, least, 1)


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
    """The columns that fit into `width`, and how wide each is."""
    texts = [[cells[c.name].text if c.name in cells else "" for cells, _ in lines] for c in columns]
    widths = fit([column.fit for column in columns], texts, width)
    return [columns[place] for place in widths], list(widths.values())


def drawn(columns: list[ScreenColumn], widths: list[int], line: Line) -> Text:
    cells, style = line
    text = Text(no_wrap=True, end="")
    for place, (column, width) in enumerate(zip(columns, widths, strict=True)):
        cell = cells.get(column.name, Cell(""))
        text.append(" " * GAP if place else "")
        text.append(padded(cell.text, width, column.left), cell.style)
    text.stylize(style)
    return text


def headings(columns: list[ScreenColumn], widths: list[int], style: str) -> Text:
    return drawn(columns, widths, ({column.name: Cell(column.heading) for column in columns}, style))


ERROR = "red"
LABELS = {"api": "API", "client": "client", "topic": "topic", "broker": "broker", "group": "group"}
"""What the groupings are called."""
LEAST_US = 10.0
"""Latencies below are not told apart."""
OTHERS = "(others)"
NONE = "(none)"
WAITS = "waits"
"""In place of a latency, if all calls waited on purpose."""

FIGURES = (
    ScreenColumn("rate", "calls/s", width=8),
    ScreenColumn("p50", "p50 ms", 3, width=7),
    ScreenColumn("p95", "p95 ms", 5, width=7),
    ScreenColumn("p99", "p99 ms", width=7),
    ScreenColumn("waited", "waited/s", 7, width=8),
    ScreenColumn("errors", "errors/s", width=8),
    ScreenColumn("unanswered", "unanswered", 1),
    ScreenColumn("bytes", "bytes/s", 4, width=8),
    ScreenColumn("lag", "lag", 2, width=7),
    ScreenColumn("error", "last error", 8, left=True),
)
# An address says nothing when it is cut, so it has the room of the longest one (IPv6, brackets, port).
CALLS = [
    ScreenColumn("time", "time"),
    ScreenColumn("latency", "ms", width=7),
    ScreenColumn("api", "API", left=True, least=26),
    ScreenColumn("client", "client", left=True, least=11),
    ScreenColumn("address", "address", 4, left=True, least=47),
    ScreenColumn("broker", "broker", 5, left=True, least=47),
    ScreenColumn("topic", "topic", 1, left=True),
    ScreenColumn("group", "group", 3, left=True),
    ScreenColumn("sent", "sent", 2),
    ScreenColumn("received", "received", 2),
    ScreenColumn("result", "result", left=True, least=30),
]


def row_columns(grouping: str) -> list[ScreenColumn]:
    name = ScreenColumn("name", LABELS[grouping], left=True, width=16, least=30)
    address = ScreenColumn("address", "address", 6, left=True, least=39)
    return [name, address, *FIGURES]


def call_columns(grouping: str) -> list[ScreenColumn]:
    """Columns of the last calls of a row; what is the same in all of them is no column."""
    return [column for column in CALLS if column.name != grouping or grouping in ("api", "topic")]


def row_line(figures: Figures, row: int, grouping: str) -> Line:
    key = figures.keys[row]
    seconds = float(figures.seconds[row])
    sums = {name: int(values[row]) for name, values in figures.sums.items()}
    p50, p95, p99 = (milliseconds(value) for value in figures.quantiles[row].tolist())
    if sums["waited"] and not p99:
        p99 = WAITS
    cells = {
        "name": Cell(OTHERS if key is None else name_of(key, grouping)),
        "address": Cell(key[1] if key is not None and grouping == "client" else ""),
        "rate": Cell(rate(sums["calls"], seconds)),
        "p50": Cell(p50),
        "p95": Cell(p95),
        "p99": Cell(p99),
        "waited": Cell(rate(sums["waited"], seconds) if sums["waited"] else ""),
        "errors": Cell(rate(sums["errors"], seconds), ERROR if sums["errors"] else ""),
        "unanswered": Cell(f"{sums['unanswered']:,}", ERROR if sums["unanswered"] else ""),
        "bytes": Cell(narrow_size(sums["bytes"] / seconds)),
        "lag": Cell("" if np.isnan(figures.lag[row]) else f"{int(figures.lag[row]):,}"),
        "error": Cell(printable(figures.errors[row]) if sums["errors"] else "", ERROR),
    }
    return cells, ""


def call_line(call: dict[str, Any], zone: tzinfo) -> Line:
    result = _result(call)
    failed = call["error_code"] or str(call["status"]).startswith("unanswered")
    api = call["api"] if call["api"] is not None else f"API {call['api_key']}"
    topic = "" if call["topic"] is None else printable(call["topic"])
    cells = {
        "time": Cell(clock(call["time"], zone)),
        "latency": Cell("" if call["latency_us"] is None else milliseconds(call["latency_us"])),
        "api": Cell(printable(f"{api} v{call['api_version']}" if call["api_version"] is not None else api)),
        "client": Cell(NONE if call["client_id"] is None else printable(call["client_id"])),
        "address": Cell(endpoint(call["client_ip"], call["client_port"], NONE)),
        "broker": Cell(endpoint(call["broker_ip"], call["broker_port"], NONE)),
        "topic": Cell(f"{topic} +{call['topics'] - 1}" if call["topics"] > 1 else topic),
        "group": Cell("" if call["group_id"] is None else printable(call["group_id"])),
        "sent": Cell("" if call["request_bytes"] is None else narrow_size(call["request_bytes"])),
        "received": Cell("" if call["response_bytes"] is None else narrow_size(call["response_bytes"])),
        "result": Cell(result, ERROR if failed else ""),
    }
    return cells, ""


def name_of(key: Key, grouping: str) -> str:
    if key[0] is None:
        return NONE
    if grouping == "broker":
        return endpoint(key[0], key[1], NONE)
    return printable(key[0])


def milliseconds(microseconds: float) -> str:
    """A latency; nothing for NaN."""
    if np.isnan(microseconds):
        return ""
    return number(microseconds / 1000, 3) if microseconds >= LEAST_US else f"<{LEAST_US / 1000:g}"


def rate(count: int, seconds: float) -> str:
    return number(count / seconds, 2) if count else "0"


def clock(time: datetime | None, zone: tzinfo) -> str:
    """Time of day, to the millisecond."""
    if time is None:
        return ""
    return time.astimezone(zone).strftime("%H:%M:%S.%f")[:-3]


def _result(call: dict[str, Any]) -> str:
    parts: list[str] = []
    if call["error_code"]:
        parts.append(call["error"] or f"error {call['error_code']}")
    else:
        parts.append(call["status"] or "")
    if call["unanswered_because"]:
        parts.append(f"({call['unanswered_because']})")
    if call["waited"]:
        parts.append("(waited)")
    if call["throttle_ms"]:
        parts.append(f"throttled {call['throttle_ms']:,} ms")
    return printable(" ".join(parts))
