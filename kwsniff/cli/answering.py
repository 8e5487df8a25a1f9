"""Runs a command that answers a question: events in, from captures or stored, tables out."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from kwsniff.analysis import Answer
from kwsniff.analysis.callrows import NAMED, NAMING
from kwsniff.analysis.compare import Profile, compared
from kwsniff.analysis.questions import Question
from kwsniff.analysis.stored import is_stored, stored_events
from kwsniff.analysis.tabular import AnswerTable
from kwsniff.capture.error import CaptureError
from kwsniff.cli import problem
from kwsniff.cli.printing import Look, write_csv, write_json, write_text
from kwsniff.cli.problem import CommandError, suggestion
from kwsniff.cli.request import Request
from kwsniff.cli.telling import Damage, Reading
from kwsniff.count.naming import named
from kwsniff.count.where import WhereError, zone
from kwsniff.count.where.name import BODIES
from kwsniff.count.where.predicate import Owned, Predicate, compile_where

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
        """As it is told to people."""
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
