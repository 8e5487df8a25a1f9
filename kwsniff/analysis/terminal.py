"""The report for people: tables on a terminal, the same as aligned plain text where the output is piped.

Columns are left out, the least important ones first, until the rest fits into the terminal or, where there is
none, into `PIPED_WIDTH`. Times are milliseconds here, sizes powers of 1000.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import tzinfo
from typing import Any

import pandas as pd
from rich.console import Console
from rich.text import Text

from kwsniff.analysis.statistics import FIGURES, TABLES
from kwsniff.analysis.tabular import AnswerField
from kwsniff.output.text import Fit, aligned, fit, joined, printable
from kwsniff.output.units import bytes_text, digits, milliseconds, ratio

Row = Mapping[str, Any]


def _clock(value: pd.Timestamp) -> str:
    return value.strftime("%Y-%m-%d %H:%M:%S.%f %Z")


SHOW: Mapping[str, Callable[[Any], str]] = {
    "text": lambda value: printable(str(value)),
    "count": lambda value: f"{int(value):,}",
    "number": digits,
    "duration": milliseconds,
    "bytes": bytes_text,
    "ratio": ratio,
    "flag": lambda value: "yes" if value else "no",
    "time": _clock,
}
"""How columns of a kind are shown."""
LEFT = ("text", "time")
"""Kinds of columns that are aligned to the left."""


def _view(name: str) -> list[AnswerField]:
    """The columns of a table as people see them."""
    known = {column.name: column for column in TABLES[name] if column.heading}
    waited = [each for each in known if each.startswith("waited_")]
    latencies = [each for each in known if each.startswith("latency_")]
    if name == "error":
        names = [
            *("error", "error_code", "retriable", "api", "calls", "calls_per_s", "api_call_ratio"),
            *(
                "clients_affected",
                "topics_affected",
                *latencies,
                "first_time",
                "last_time",
                "topics",
                "clients",
            ),
        ]
        return [known[each]._replace(rank=9) if each in latencies else known[each] for each in names]
    of_topics = ["records", "record_bytes"]
    own = [column.name for column in TABLES[name] if column.heading and column not in FIGURES]
    rest = [each for each in known if each not in (*own, *waited, *of_topics, *LAST)]
    return [known[each] for each in (*own, *(of_topics if name == "topic" else ()), *rest, "errors_by_name")]


LAST = ("first_time", "last_time", "errors_by_name")
"""Of single errors only, and behind everything else."""
TITLES = {
    "api": "Calls by API",
    "client": "Calls by client",
    "topic": "Calls by topic",
    "broker": "Calls by broker",
    "error": "Errors",
}

WAITED = "  waited"
"""Name of the row below an API that holds its calls that waited on purpose."""

PIPED_WIDTH = 100
"""Of text that goes to no terminal: what a terminal of a usual width shows."""
FEW_CALLS, FEWER_CALLS = 100, 1_000
"""Below so many calls there is no percentile 99, and no percentile 99.9, to speak of."""


def print_tables(
    console: Console, tables: Mapping[str, pd.DataFrame], by: Iterable[str], *, wide: bool, zone: tzinfo
) -> None:
    """Print the tables named in `by`, in that order, with times in `zone`. Raises KeyError for an unknown
    name."""
    width = None if wide else console.width if console.is_terminal else PIPED_WIDTH
    for place, name in enumerate(by):
        frame = tables[name]
        title = TITLES[name] if place == 0 else f"\n{TITLES[name]}"
        _print(console, title, _view(name), _rows(name, frame, zone), width)


def _rows(name: str, frame: pd.DataFrame, zone: tzinfo) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for record in frame.to_dict(orient="records"):
        row: dict[str, Any] = {str(k): None if pd.isna(value) else value for k, value in record.items()}
        for key in ("first_time", "last_time"):
            if row[key] is not None:
                row[key] = row[key].astimezone(zone)
        rows.append(row | _without_rare(row))
        if name == "api" and row["waited_calls"]:
            rows.append(_waited(row))
    return rows


def _without_rare(row: Row) -> dict[str, None]:
    """High percentiles of few calls, which say no more than the greatest values do, as nothing."""
    calls = row["calls"] - row["waited_calls"]
    names = (["p99"] if calls < FEW_CALLS else []) + (["p999"] if calls < FEWER_CALLS else [])
    return {f"{prefix}_{name}_us": None for prefix in ("latency", "duration") for name in names}


def _waited(row: Row) -> dict[str, Any]:
    """The row of the calls that waited: their number and latencies, nothing else."""
    figures = {f"latency_{key[7:]}": value for key, value in row.items() if key.startswith("waited_p")}
    shown = {"api": WAITED, "calls": row["waited_calls"], "latency_max_us": row["waited_max_us"]}
    return {**dict.fromkeys(row), **figures, **shown}


def _text(column: AnswerField, row: Row) -> str:
    value = row[column.name]
    if value is None:
        return "(none)" if column.kind in LEFT and not column.rank else ""
    return SHOW[column.kind](value)


def _print(
    console: Console, title: str, view: Sequence[AnswerField], rows: Sequence[Row], width: int | None
) -> None:
    columns = [Fit(column.heading, column.rank, column.kind in LEFT) for column in view]
    lines = [[_text(column, row) for column in view] for row in rows]
    widths = fit(columns, [[line[at] for line in lines] for at in range(len(view))], width)
    text = Text(title, "bold")
    for place, line in enumerate([[column.heading for column in view], *lines]):
        style = "" if place and line[0] != WAITED else "dim"
        text.append("\n" + joined(aligned(columns, widths, line)), style)
    console.print(text, soft_wrap=True, highlight=False)


# Tables as a notebook shows them: the first rows of the columns that matter most.

COLUMNS = (
    *("api", "client_id", "client_ip", "error", "calls", "errors", "duration_sum_us", "queued_sum_us"),
    *("throttled_sum_us", "broker_sum_us", "latency_p50_us", "latency_p99_us", "latency_max_us", "clients"),
)
ROWS = 10


def shown(name: str, frame: pd.DataFrame) -> str:
    """One table as HTML, nothing if it has no rows. Names from the wire are escaped."""
    if not len(frame):
        return ""
    columns = [each for each in COLUMNS if each in frame.columns]
    rows = [[_cell(value) for value in row] for row in frame[columns].head(ROWS).to_numpy().tolist()]
    table = pd.DataFrame(rows, columns=columns).to_html(index=False, escape=True)
    more = f"<p>and {len(frame) - ROWS:,} more</p>" if len(frame) > ROWS else ""
    return f"<h4>{name}</h4>{table}{more}"


def _cell(value: Any) -> str:
    if pd.isna(value):
        return ""
    if isinstance(value, float):
        return digits(value)
    return f"{value:,}" if isinstance(value, int) else printable(str(value))
