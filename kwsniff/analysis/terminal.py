"""The report for people: tables on a terminal, the same as aligned plain text where the output is piped.

Columns are left out, the least important ones first, until the rest fits into the terminal or, where there is
none, into `PIPED_WIDTH`. Times are milliseconds here, sizes powers of 1000.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any

import pandas as pd
from rich.console import Console
from rich.text import Text

from kwsniff.output.text import Fit, aligned, fit, joined, printable
from kwsniff.output.units import bytes_text, digits, milliseconds, ratio

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Shown:
    """A column as people see it; `rank` says how soon it is left out, 0 never."""

    heading: str
    source: str
    show: Callable[[Any], str]
    rank: int = 0
    left: bool = False


def _words(value: Any) -> str:
    return printable(str(value))


def _count(value: Any) -> str:
    return f"{int(value):,}"


def _yes(value: Any) -> str:
    return "yes" if value else "no"


def _clock(value: pd.Timestamp) -> str:
    return value.strftime("%Y-%m-%d %H:%M:%S.%f %Z")


def _name(heading: str, source: str) -> Shown:
    return Shown(heading, source, _words, left=True)


CALLS = Shown("calls", "calls", _count)
RATE = Shown("calls/s", "calls_per_s", digits, 4)
LATENCIES = (
    Shown("p50 ms", "latency_p50_us", milliseconds),
    Shown("p90 ms", "latency_p90_us", milliseconds, 8),
    Shown("p95 ms", "latency_p95_us", milliseconds, 5),
    Shown("p99 ms", "latency_p99_us", milliseconds),
    Shown("p99.9 ms", "latency_p999_us", milliseconds, 7),
    Shown("max ms", "latency_max_us", milliseconds, 1),
)
FIGURES = (
    CALLS,
    RATE,
    Shown("sent", "request_bytes", bytes_text, 6),
    Shown("received", "response_bytes", bytes_text, 6),
    *LATENCIES,
    Shown("dur p50 ms", "duration_p50_us", milliseconds, 10),
    Shown("dur p90 ms", "duration_p90_us", milliseconds, 11),
    Shown("dur p95 ms", "duration_p95_us", milliseconds, 11),
    Shown("dur p99 ms", "duration_p99_us", milliseconds, 10),
    Shown("dur p99.9 ms", "duration_p999_us", milliseconds, 11),
    Shown("dur max ms", "duration_max_us", milliseconds, 10),
    Shown("errors", "errors", _count),
    Shown("throttled", "throttled_calls", _count, 3),
    Shown("throttle ms", "throttle_ms", _count, 8),
    Shown("unanswered", "unanswered", _count, 2),
    Shown("orphan", "orphan", _count, 9),
    Shown("undecoded", "undecoded", _count, 9),
    Shown("truncated", "truncated", _count, 9),
    Shown("in flight", "in_flight_max", _count, 8),
)
BY_NAME = Shown("errors by name", "errors_by_name", _words, 7, left=True)

VIEWS: dict[str, tuple[Shown, ...]] = {
    "api": (_name("API", "api"), *FIGURES, BY_NAME),
    "client": (
        _name("client", "client_id"),
        _name("address", "client_ip"),
        Shown("software", "software", _words, 9, left=True),
        *FIGURES,
        BY_NAME,
    ),
    "topic": (
        _name("topic", "topic"),
        Shown("partitions", "partitions_seen", _count, 8),
        Shown("records", "records", _count, 2),
        Shown("record data", "record_bytes", bytes_text, 2),
        *FIGURES,
        BY_NAME,
    ),
    "broker": (_name("broker", "broker"), *FIGURES, BY_NAME),
    "error": (
        _name("error", "error"),
        Shown("code", "error_code", _count, 3),
        Shown("retriable", "retriable", _yes, 4),
        _name("API", "api"),
        CALLS,
        RATE,
        Shown("of API", "api_call_ratio", ratio, 1),
        Shown("clients", "clients_affected", _count, 2),
        Shown("topics", "topics_affected", _count, 2),
        *(Shown(column.heading, column.source, column.show, 9) for column in LATENCIES),
        Shown("first", "first_time", _clock, 6, left=True),
        Shown("last", "last_time", _clock, 7, left=True),
        Shown("topic names", "topics", _words, 8, left=True),
        Shown("client names", "clients", _words, 8, left=True),
    ),
}

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
        _print(console, title, VIEWS[name], _rows(name, frame, zone), width)


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


def _text(column: Shown, row: Row) -> str:
    value = row[column.source]
    if value is None:
        return "(none)" if column.left and not column.rank else ""
    return column.show(value)


def _print(
    console: Console, title: str, view: tuple[Shown, ...], rows: Sequence[Row], width: int | None
) -> None:
    columns = [Fit(column.heading, column.rank, column.left) for column in view]
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
    import pandas as pd

    columns = [each for each in COLUMNS if each in frame.columns]
    rows = [[_cell(value) for value in row] for row in frame[columns].head(ROWS).to_numpy().tolist()]
    table = pd.DataFrame(rows, columns=columns).to_html(index=False, escape=True)
    more = f"<p>and {len(frame) - ROWS:,} more</p>" if len(frame) > ROWS else ""
    return f"<h4>{name}</h4>{table}{more}"


def _cell(value: Any) -> str:
    import pandas as pd

    if pd.isna(value):
        return ""
    if isinstance(value, float):
        return digits(value)
    return f"{value:,}" if isinstance(value, int) else printable(str(value))
