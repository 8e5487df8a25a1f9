"""Tables of answers as text for people, CSV and JSON for programs.

Text fits a width: columns are left out, those of the greatest rank first, then long cells are cut. Cells
line up by the width characters have on a terminal, which for East Asian ones is two.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import IO, Any
from zoneinfo import ZoneInfo

from kwsniff.analysis import tabular as kinds
from kwsniff.analysis.tabular import AnswerField, AnswerTable, Row
from kwsniff.output.text import Fit, aligned, fit, joined, printable
from kwsniff.output.units import bytes_text, digits, ratio, short_duration

LEAST, SHORT = 8, 20
"""Columns a cell is cut to at the least, and those that less important cells are cut to first."""
ITEMS_SHOWN = 3
BOLD, DIM, RED, GREEN, YELLOW, PLAIN = "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[0m"
COLOURS = {"breaks": RED, "error": RED, "unanswered": RED, "unknown": YELLOW, "ok": GREEN}
"""Words that are coloured where they are a whole cell."""
NUMBERS = (kinds.COUNT, kinds.DURATION, kinds.BYTES, kinds.RATIO, kinds.FACTOR, kinds.NUMBER)


@dataclass(frozen=True, slots=True)
class Look:
    """How text is to look."""

    width: int | None = 100
    colour: bool = False
    zone: ZoneInfo = field(default_factory=lambda: ZoneInfo("UTC"))
    top: int | None = None
    """Rows of each table at the most; 0 is all, None what the table says itself."""


def write_text(out: IO[str], tables: Sequence[AnswerTable], look: Look) -> None:
    """Print the tables that have rows, with their titles."""
    printed = False
    for table in tables:
        if table.rows:
            out.write(("\n" if printed else "") + _text(table, look))
            printed = True


def _text(table: AnswerTable, look: Look) -> str:
    top = table.top if look.top is None else look.top
    rows = table.rows[:top] if top else table.rows
    days = {_local(value, look).date() for value in _times(table, rows)}
    lines = [[_cell(f, row, look, len(days) > 1) for f in table.fields] for row in rows]
    columns = [_column(f, look.width or 0) for f in table.fields]
    widths = fit(columns, [[line[at] for line in lines] for at in range(len(columns))], look.width)
    headings = joined(aligned(columns, widths, [column.heading for column in columns]))
    told = [_painted(table.title + _day(days, look), BOLD, look), _painted(headings, DIM, look)]
    for line in lines:
        cells = aligned(columns, widths, line)
        told.append(joined(_painted(cell, COLOURS.get(cell.strip(), ""), look) for cell in cells))
    if len(rows) < len(table.rows):
        told.append(_painted(f"+{len(table.rows) - len(rows):,} more: --top 0", DIM, look))
    return "\n".join(told) + "\n"


def _column(field: AnswerField, width: int) -> Fit:
    """Text may be cut: to a fifth of the room, that of important fields to three tenths, before another
    column is left out for it; what could be left out is cut first."""
    if field.kind not in (kinds.TEXT, kinds.LIST):
        return Fit(field.heading, field.rank, field.kind not in NUMBERS)
    enough = width * (2 if field.rank else 3) // 10
    return Fit(field.heading, field.rank, True, 0, enough, SHORT if field.rank else width, LEAST)


def _day(days: set[date], look: Look) -> str:
    if not days:
        return ""
    return f" ({next(iter(days))}, {look.zone.key})" if len(days) == 1 else f" ({look.zone.key})"


def _times(table: AnswerTable, rows: Sequence[Row]) -> list[datetime]:
    names = [f.name for f in table.fields if f.kind == kinds.TIME]
    return [row[name] for row in rows for name in names if row.get(name) is not None]


def _painted(text: str, colour: str, look: Look) -> str:
    return f"{colour}{text}{PLAIN}" if look.colour and colour else text


def _cell(field: AnswerField, row: Row, look: Look, dated: bool) -> str:
    value = row.get(field.name)
    if value is None or value == []:
        return ""
    if field.kind == kinds.TIME:
        text = f"{_local(value, look):%H:%M:%S.%f}"[:12]
        return f"{_local(value, look):%m-%d} {text}" if dated else text
    return _SHOWN[field.kind](value)


def _local(value: datetime, look: Look) -> datetime:
    return value.astimezone(look.zone)


def _list(values: Sequence[str]) -> str:
    shown = ", ".join(printable(str(value)) for value in values[:ITEMS_SHOWN])
    return shown if len(values) <= ITEMS_SHOWN else f"{shown} +{len(values) - ITEMS_SHOWN}"


_SHOWN: dict[str, Callable[[Any], str]] = {
    kinds.TEXT: lambda value: printable(str(value)),
    kinds.LIST: _list,
    kinds.COUNT: lambda value: f"{int(value):,}",
    kinds.DURATION: short_duration,
    kinds.BYTES: lambda value: bytes_text(int(value)),
    kinds.RATIO: ratio,
    kinds.FACTOR: lambda value: f"×{digits(value)}",
    kinds.NUMBER: lambda value: f"{value:.2f}",
    kinds.FLAG: lambda value: "yes" if value else "no",
}


# For programs


def write_csv(out: IO[bytes], table: AnswerTable, top: int | None) -> None:
    """One table as CSV: times in UTC, durations in microseconds, lists joined by `;`."""
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import csv

    from kwsniff.output.writers import shown, shown_schema

    whole = (table.arrow().slice(0, top) if top else table.arrow()).combine_chunks()
    for at, column in enumerate(table.fields):
        if column.kind == kinds.LIST:
            whole = whole.set_column(at, column.name, pc.binary_join(whole.column(at), ";"))
    schema = shown_schema(whole.schema)
    with csv.CSVWriter(pa.PythonFile(out, "w"), schema) as writer:
        for batch in whole.to_batches():
            writer.write_batch(shown(batch, schema))


def write_json(out: IO[str], tables: Sequence[AnswerTable], notes: Sequence[str], top: int | None) -> None:
    """All tables as one object: an array of rows for each, nulls left out, and the notes."""
    found: dict[str, Any] = {}
    for table in tables:
        found[table.name] = [_plain(table, row) for row in table.rows[: top or None]]
    if notes:
        found["notes"] = list(notes)
    text = json.dumps(found, ensure_ascii=False, indent=2)
    out.write(json_safe(text) + "\n")


def json_safe(text: str) -> str:
    """The same JSON with every character that is not printable escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)


def _plain(table: AnswerTable, row: Row) -> dict[str, Any]:
    found = {}
    for column in table.fields:
        value = row.get(column.name)
        if value is not None:
            found[column.name] = _iso(value) if isinstance(value, datetime) else value
    return found


def _iso(value: datetime) -> str:
    return f"{value.astimezone(ZoneInfo('UTC')):%Y-%m-%dT%H:%M:%S.%fZ}"
