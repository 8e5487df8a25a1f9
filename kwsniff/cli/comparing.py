"""The job of `kwsniff compare`: a profile of each input, or of each window of one, and what differs."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace

from kwsniff.analysis.compare import Profile, compared
from kwsniff.cli import problem
from kwsniff.cli.answering import check, show, taken
from kwsniff.cli.problem import CommandError
from kwsniff.cli.request import Request
from kwsniff.cli.telling import Damage, Trust
from kwsniff.count.where import WhereError
from kwsniff.count.where.predicate import Predicate, compile_where


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
        mine, trust = [side for side in sides if side.path == path], Trust(wanted=not request.quiet)
        for batch in taken(replace(request, paths=[path]), mine[0].profile.needs, damage, trust):
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
    if damage:
        problem.said(damage.line())
    return problem.DAMAGED if damage else problem.DONE


def _chosen(option: str, window: str | None, tz: str) -> Predicate:
    """Which events are in a window, `FROM/UNTIL` with one of them left out at most."""
    since, slash, until = (part.strip() or None for part in (window or "").partition("/"))
    if window is not None and (not slash or not (since or until)):
        raise CommandError(f"{option}: {window!r} is no window: FROM/UNTIL, such as 12:03:05/12:04 or 12:04/")
    try:
        return compile_where(None, since=since, until=until, tz=tz)
    except WhereError as error:
        raise CommandError(f"{option}: {str(error).partition(': ')[2]}") from None
