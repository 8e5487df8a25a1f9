"""The language of `--where`: an expression over the columns of an event, compiled to Arrow kernels.

Theory of operation: Python's own parser makes the tree, so spelling and precedence are Python's; a whitelist
of node types turns it into a tree of `Term`s, each with a kind known before any row is read. Nothing of the
expression is ever executed as Python. A mistake is found at compile time and named with its position.

Logic has two values. A column without a value equals nothing but None, so comparing it is false and
`!=` and `not in` are true; a missing list holds nothing.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from kwsniff.cli.problem import CommandError
from kwsniff.cli.where import comparison, function, operators  # each registers what it makes
from kwsniff.cli.where.term import TRUTH, term_of, wrong

__all__ = ["Predicate", "columns_in", "comparison", "compile_where", "function", "operators"]

Predicate = Callable[[pa.RecordBatch], pa.Array]
MAX_LENGTH = 10_000


def compile_where(text: str) -> Predicate:
    """A function from an EVENTS batch to a boolean array without nulls.

    Raises:
        CommandError: the expression is wrong; the message is one line with the position.
    """
    if len(text) > MAX_LENGTH:
        raise CommandError(f"--where: longer than {MAX_LENGTH} characters")
    try:
        term = term_of(_parse(text))
    except (RecursionError, MemoryError):
        raise CommandError("--where: nested too deeply") from None
    if term.kind != TRUTH:
        raise wrong(term.column, f"the expression gives {term.kind}, not true or false")

    def predicate(batch: pa.RecordBatch) -> pa.Array:
        values = term.evaluate(batch)
        if isinstance(values, pa.Scalar):
            return pa.repeat(values, batch.num_rows)
        return pc.fill_null(values, False)

    return predicate


def columns_in(text: str) -> frozenset[str]:
    """The names that an expression uses; `text` has been compiled before."""
    return frozenset(node.id for node in ast.walk(_parse(text)) if isinstance(node, ast.Name))


def _parse(text: str) -> ast.expr:
    try:
        with warnings.catch_warnings():
            # A regular expression may hold backslashes that Python would rather see doubled.
            warnings.simplefilter("ignore")
            return ast.parse(" ".join(text.splitlines()).strip(), mode="eval").body
    except SyntaxError as error:
        raise wrong(max(error.offset or 1, 1), _syntax_hint(text, error)) from None
    except ValueError as error:
        raise CommandError(f"--where: {error}") from None


def _syntax_hint(text: str, error: SyntaxError) -> str:
    if not text.strip():
        return "the expression is empty"
    for foreign, ours in (("&&", "and"), ("||", "or"), ("<>", "!="), ("===", "==")):
        if foreign in text:
            return f"{foreign} is written {ours}"
    if "=" in text and not any(sign in text for sign in ("==", "!=", "<=", ">=")):
        return "equality is written =="
    # Python says "invalid syntax. Perhaps you forgot a comma?" and the like; the first sentence holds.
    return (error.msg or "invalid syntax").split(". ")[0]
