"""Runs a command that answers a question: events in, from captures or stored, tables out, as text for people,
CSV and JSON for programs.

Text fits a width: columns are left out, those of the greatest rank first, then long cells are cut. Cells
line up by the width characters have on a terminal, which for East Asian ones is two.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from typing import IO, TYPE_CHECKING, Any, cast
from zoneinfo import ZoneInfo

import pyarrow as pa

from kwsniff.analysis import Answer
from kwsniff.analysis import tabular as kinds
from kwsniff.analysis.compare import Profile, compared
from kwsniff.analysis.questions import Question
from kwsniff.analysis.stored import NAMED, NAMING, is_stored, stored_events
from kwsniff.analysis.tabular import AnswerField, AnswerTable, Row
from kwsniff.capture.error import CaptureError
from kwsniff.cli import problem
from kwsniff.cli.problem import CommandError, suggestion
from kwsniff.cli.request import Request
from kwsniff.cli.telling import Damage, Reading
from kwsniff.count.naming import named
from kwsniff.count.where import WhereError, zone
from kwsniff.count.where.name import BODIES
from kwsniff.count.where.predicate import Owned, Predicate, compile_where
from kwsniff.output.text import Fit, aligned, fit, joined, json_printable, printable
from kwsniff.output.units import bytes_text, digits, ratio, short_duration

if TYPE_CHECKING:
    from kwsniff.analysis.upgrade import UpgradeCheck


FORMATS = ("text", "csv", "json")
DAMAGE_COLUMNS = frozenset(("event", "time", "code", "detail", "packet", "capture", "status"))
PAGE = 100
"""Columns of text that goes to no terminal."""


def ask(request: Request, question: Question, **own: Any) -> int:
    """Answer a question with its own settings; return the exit code. Raises CommandError."""
    if any(each.name == "full" for each in question.settings):
        own["full"] = request.config.full
    try:
        asked = question.asked(**own)
    except ValueError as error:
        raise CommandError(f"--{question.settings[0].name}: {error}") from None
    code = answer(request, asked)
    judged = question.judges and code == problem.DONE and cast("UpgradeCheck", asked).breaks()
    return problem.FINDINGS if judged else code


def follow(request: Request, what: str, kind: str | None) -> int:
    """Show a conversation; return the exit code. Raises CommandError."""
    from kwsniff.analysis.chronology import KINDS, Follow

    if kind is not None and kind not in KINDS:
        raise CommandError(f"--as: {kind!r} is none of {', '.join(KINDS)}{suggestion(kind, KINDS)}")
    return answer(request, Follow(what, kind))


def answer(request: Request, question: Answer) -> int:
    """Answer the question from the inputs, print the tables; return the exit code. Raises CommandError."""
    check(request)
    with Reading(request) as reading:
        for batch in taken(reading, question.needs):
            question.take(batch)
    show(request, question.tables(), question.notes())
    if reading.trust.capture.files:  # stored events have no packets to speak of
        reading.trust.show()
    return reading.code()


def check(request: Request) -> None:
    """Raise CommandError or WhereError for what can be seen to be wrong before anything is read."""
    if request.form not in (None, *FORMATS):
        near = suggestion(str(request.form), FORMATS)
        raise CommandError(f"-f: {request.form!r} is none of {', '.join(FORMATS)}{near}")
    request.checked()


def taken(reading: Reading, needs: frozenset[str]) -> Iterator[pa.RecordBatch]:
    """The events that were asked for, with the columns `needs` and topic names filled in. Raises
    CommandError."""
    request = reading.request
    predicate = compile_where(request.where, since=request.since, until=request.until, tz=request.tz)
    columns = needs | {"event", "time"} | request.chosen_by
    columns |= NAMING if columns & NAMED else frozenset()
    owned = Owned() if request.where is not None and "connection" in needs else None
    try:
        with closing(_source(reading, columns)) as source:
            for batch in named(reading.damage.watch(source), learner=request.learner()):
                mask = predicate(batch)
                yield batch.filter(mask if owned is None else owned(batch, mask))
    except CaptureError as error:
        raise CommandError(str(error)) from None


def _source(reading: Reading, columns: frozenset[str]) -> Generator[pa.RecordBatch]:
    request = reading.request
    stored = [path for path in request.paths if is_stored(path)]
    for path in stored:
        yield from stored_events(path, columns | DAMAGE_COLUMNS)
    captures = [path for path in request.paths if path not in stored]
    if captures:
        full = request.config.full or bool(columns & BODIES)
        yield from reading.events(replace(request.config, columns=columns, full=full), captures)


def show(request: Request, tables: list[AnswerTable], notes: Sequence[str] = ()) -> None:
    """Print tables as they were asked for. Raises CommandError."""
    tables = [table for table in tables if request.table in (None, table.name)] or _no_table(request, tables)
    _sort(request, tables)
    if request.form == "csv":
        write_csv(sys.stdout.buffer, tables[0], request.top)
        sys.stdout.flush()
        return
    if request.form == "json":
        write_json(sys.stdout, tables, notes, request.top)
        return
    write_text(sys.stdout, tables, look(request))
    if not any(table.rows for table in tables):
        print("Nothing was found.", file=sys.stderr)
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    sys.stdout.flush()


def _no_table(request: Request, tables: list[AnswerTable]) -> list[AnswerTable]:
    known = [table.name for table in tables]
    raise CommandError(f"--table: there is no {request.table!r}{suggestion(str(request.table), known)}; "
                       f"there are {', '.join(known)}")  # fmt: skip


def _sort(request: Request, tables: list[AnswerTable]) -> None:
    if request.sort is None:
        return
    turned, name = request.sort.startswith("-"), request.sort.lstrip("-")
    having = [table for table in tables if any(f.name == name for f in table.fields)]
    if not having:
        known = [f.name for table in tables for f in table.fields]
        raise CommandError(f"--sort: there is no column {name!r}{suggestion(name, known)}")
    for table in having:
        table.sorted_by(name, turned=turned)


def look(request: Request) -> Look:
    """How text is to look, for the terminal that there is."""
    terminal = sys.stdout.isatty()
    width = None if request.wide else shutil.get_terminal_size().columns if terminal else PAGE
    colour = request.colour(terminal)
    return Look(width, colour, zone(request.tz), request.top)


# The job of `kwsniff compare`: a profile of each input, or of each window of one, and what differs.


@dataclass(frozen=True)
class _Side:
    """What is compared."""

    name: str
    path: str
    window: str | None
    chosen: Predicate
    profile: Profile

    def __str__(self) -> str:
        window = f", {self.window}" if self.window else ""
        return f"{self.name}: {self.path}{window}, {self.profile.calls:,} calls"


def compare(request: Request, other: str | None, a: str | None, b: str | None) -> int:
    """Print what differs between two inputs, or two windows; return the exit code. Raises CommandError."""
    check(request)
    windows = (a, b)
    if other is None and None in windows:
        raise CommandError("name a second input, or two windows of this one: --a FROM/UNTIL --b FROM/UNTIL")
    if windows != (None, None) and (request.since or request.until):
        raise CommandError("--a and --b stand in place of --since and --until")
    paths = (request.paths[0], request.paths[0] if other is None else other)
    chosen = [_chosen(option, text, request.tz) for option, text in zip(("--a", "--b"), windows, strict=True)]
    sides = [_Side(*each, Profile()) for each in zip("AB", paths, windows, chosen, strict=True)]
    damage, seen = Damage(), 0
    for path in dict.fromkeys(paths):  # an input is read once, also standard input
        mine, reading = [side for side in sides if side.path == path], Reading(replace(request, paths=[path]))
        reading.damage = damage
        for batch in taken(reading, mine[0].profile.needs):
            for side in mine:
                side.profile.take(batch.filter(side.chosen(batch)))
    for side in sides:
        if not request.quiet:
            print(side, file=sys.stderr)
        seen += side.profile.calls
    show(request, compared(*(side.profile for side in sides)))
    for side in sides:
        if seen and not side.profile.calls:
            window = f" in {side.window} ({request.tz})" if side.window else ""
            problem.said(f"{side.name} has no calls{window}")
    return reading.code()


def _chosen(option: str, window: str | None, tz: str) -> Predicate:
    """Which events are in a window, `FROM/UNTIL` with one of them left out at most."""
    since, slash, until = (part.strip() or None for part in (window or "").partition("/"))
    if window is not None and (not slash or not (since or until)):
        raise CommandError(f"{option}: {window!r} is no window: FROM/UNTIL, such as 12:03:05/12:04 or 12:04/")
    try:
        return compile_where(None, since=since, until=until, tz=tz)
    except WhereError as error:
        raise CommandError(f"{option}: {str(error).partition(': ')[2]}") from None


# Tables as text

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
    told = [painted(table.title + _day(days, look), BOLD, look), painted(headings, DIM, look)]
    for line in lines:
        cells = aligned(columns, widths, line)
        told.append(joined(painted(cell, COLOURS.get(cell.strip(), ""), look) for cell in cells))
    if len(rows) < len(table.rows):
        told.append(painted(f"+{len(table.rows) - len(rows):,} more: --top 0", DIM, look))
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


def painted(text: str, colour: str, look: Look) -> str:
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
    out.write(json_text(found) + "\n")


def json_text(value: Any) -> str:
    """JSON in lines, in which every character that is not printable is escaped."""
    lines = json.dumps(value, ensure_ascii=False, indent=2).split("\n")
    return "\n".join(map(json_printable, lines))


def _plain(table: AnswerTable, row: Row) -> dict[str, Any]:
    found = {}
    for column in table.fields:
        value = row.get(column.name)
        if value is not None:
            found[column.name] = _iso(value) if isinstance(value, datetime) else value
    return found


def _iso(value: datetime) -> str:
    return f"{value.astimezone(ZoneInfo('UTC')):%Y-%m-%dT%H:%M:%S.%fZ}"
