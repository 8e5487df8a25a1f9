"""The language of `--where`: an expression over the columns of an event, compiled to Arrow kernels.

Theory of operation: `lexer` makes tokens, `parser` a tree of nodes (`tree`), and the makers in `comparison`,
`operators`, `function` and `name` make a tree of `Term`s, each with a kind known before any row is read.
Nothing of the expression is ever executed as Python. A mistake is found before any input is read and named
with its position. `predicate` is the way in; this module imports nothing, so that start-up stays short.

Logic has two values. A column without a value equals nothing but None, so comparing it is false and
`!=` and `not in` are true; a missing list holds nothing.
"""

from __future__ import annotations


class WhereError(ValueError):
    """An expression that cannot be understood; the text is one line with the position."""


def wrong(at: int, message: str) -> WhereError:
    """The error for a mistake at position `at`, counted from 1."""
    return WhereError(f"--where, position {at}: {message}")
