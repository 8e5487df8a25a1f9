"""The language of `--where`: an expression over the columns of an event, compiled to Arrow kernels.

Theory of operation: `parser` makes tokens and a tree of nodes, and `predicate` makes a tree of `Term`s of it
(`name`), each with a kind known before any row is read. Nothing of the expression is ever executed as Python.
A mistake is found before any input is read and named with its position. `predicate` is the way in; this
module imports nothing at first, so that start-up stays short.

Logic has two values. A column without a value equals nothing but None, so comparing it is false and
`!=` and `not in` are true; a missing list holds nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo


class WhereError(ValueError):
    """An expression that cannot be understood; the text is one line with the position."""


def wrong(at: int, message: str) -> WhereError:
    """The error for a mistake at position `at`, counted from 1."""
    return WhereError(f"--where, position {at}: {message}")


def zone(name: str) -> ZoneInfo:
    """A time zone by its name. Raises WhereError if there is none of that name."""
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise WhereError(f"--tz: there is no time zone {name!r}; UTC or Europe/Berlin are some") from None
