"""What an expression is made of: terms with a kind, constants, columns, and the errors that name a place.

Makers of terms register here by the type of Python node they take; `term_of` finds the one for a node.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from kwsniff.cli.problem import CommandError, suggestion
from kwsniff.events import ANOMALIES, ANOMALY, CALL, CONNECTION, SECURITY, STATUSES, UNANSWERED_REASONS
from kwsniff.table import EVENTS, TIMESTAMP

Values = Any
"""An Arrow array as long as the batch, or a scalar."""

NUMBER, TEXT, TRUTH, TIME, LIST, NOTHING = "a number", "text", "true or false", "a time", "a list", "None"
CLOSED_SETS: dict[str, list[str]] = {
    "event": [CALL, ANOMALY, CONNECTION],
    "status": list(STATUSES),
    "unanswered_because": list(UNANSWERED_REASONS),
    "security": list(SECURITY),
    "code": list(ANOMALIES),
}
"""Columns whose every value is known: comparing them with another is a slip of the pen."""

WORDS = {"true": True, "false": False, "null": None, "none": None}


@dataclass(frozen=True, slots=True)
class Term:
    """A part of the expression: what kind of value it gives, and how to get it from a batch."""

    kind: str
    evaluate: Callable[[pa.RecordBatch], Values]
    column: int
    """Position in the expression, from 1."""
    item: str = ""
    """Kind of a list's items."""
    name: str = ""
    """The event column, where the term is nothing else."""
    constant: bool = False
    value: Any = None
    """Of a constant."""


Maker = Callable[[Any], Term]
_MakerT = TypeVar("_MakerT", bound=Maker)
_MAKERS: dict[type[ast.expr], Maker] = {}


def makes(node_type: type[ast.expr]) -> Callable[[_MakerT], _MakerT]:
    """Register the decorated function as the maker of terms from nodes of `node_type`."""

    def register(maker: _MakerT) -> _MakerT:
        _MAKERS[node_type] = maker
        return maker

    return register


def wrong(column: int, message: str) -> CommandError:
    return CommandError(f"--where, position {column}: {message}")


def at(node: ast.expr) -> int:
    return node.col_offset + 1


def term_of(node: ast.expr) -> Term:
    make = _MAKERS.get(type(node))
    if make is None:
        raise wrong(at(node), f"{type(node).__name__} is not part of the language")
    return make(node)


@makes(ast.Constant)
def _constant(node: ast.Constant) -> Term:
    return constant_term(node.value, at(node))


def constant_term(value: Any, column: int) -> Term:
    if value is None:
        return Term(NOTHING, lambda batch: pa.scalar(None), column, constant=True)
    kind = {bool: TRUTH, int: NUMBER, float: NUMBER, str: TEXT}.get(type(value))
    if kind is None:
        raise wrong(column, f"{value!r} is neither number nor text")
    try:
        scalar = pa.scalar(value)
    except (OverflowError, pa.ArrowInvalid, UnicodeError):
        raise wrong(column, "a value no column can hold") from None
    return Term(kind, lambda batch: scalar, column, constant=True, value=value)


@makes(ast.Name)
def _name(node: ast.Name) -> Term:
    if node.id not in EVENTS.names:
        if node.id.lower() in WORDS:
            return constant_term(WORDS[node.id.lower()], at(node))
        raise wrong(at(node), f"unknown column {node.id!r}{suggestion(node.id, EVENTS.names)}")
    kind = EVENTS.field(node.id).type
    item = kind_of(kind.value_type) if pa.types.is_list(kind) else ""
    return Term(kind_of(kind), operator.itemgetter(node.id), at(node), item, node.id)


def kind_of(type_: pa.DataType) -> str:
    for is_kind, kind in (
        (pa.types.is_boolean, TRUTH),
        (pa.types.is_string, TEXT),
        (pa.types.is_timestamp, TIME),
        (pa.types.is_list, LIST),
        (pa.types.is_struct, "a record"),
    ):
        if is_kind(type_):
            return kind
    return NUMBER


@makes(ast.Attribute)
def _attribute(node: ast.Attribute) -> Term:
    """`partitions.error_code`: one field of each item of a list."""
    if not isinstance(node.value, ast.Name):
        raise wrong(at(node), "only a column can have a part after a dot")
    whole = _name(node.value)
    item = EVENTS.field(whole.name).type.value_type if whole.kind == LIST else None
    if item is None or not pa.types.is_struct(item):
        raise wrong(at(node), f"{node.value.id} has no parts")
    known = [field.name for field in item]
    if node.attr not in known:
        raise wrong(at(node), f"{node.value.id} has no {node.attr!r}{suggestion(node.attr, known)}")

    def evaluate(batch: pa.RecordBatch) -> pa.Array:
        lists = batch[whole.name]
        # The items of a null list may be left in the child array; their parents tell which ones count.
        return lists, pc.struct_field(pc.list_flatten(lists), node.attr)

    return Term(LIST, evaluate, at(node), kind_of(item.field(node.attr).type))


def number(node: ast.expr) -> Term:
    term = term_of(node)
    if term.kind == TIME:
        raise wrong(term.column, "no arithmetic with times; latency_us and duration_us hold the differences")
    if term.kind != NUMBER:
        raise wrong(term.column, f"{shown(term)} is {term.kind}, not a number")
    return term


def shown(term: Term) -> str:
    if term.name:
        return term.name
    return repr(term.value) if term.constant and term.kind != NOTHING else "this"


def as_times(left: Term, right: Term) -> tuple[Term, Term]:
    if left.kind == TIME and right.kind == TEXT and right.constant:
        return left, _time(right)
    if right.kind == TIME and left.kind == TEXT and left.constant:
        return _time(left), right
    return left, right


def _time(term: Term) -> Term:
    try:
        moment = datetime.fromisoformat(term.value)
    except ValueError:
        raise wrong(
            term.column, f"{term.value!r} is no ISO 8601 time such as 2026-01-31T12:00:00.5Z"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    scalar = pa.scalar(moment, TIMESTAMP)
    return Term(TIME, lambda batch: scalar, term.column, constant=True, value=term.value)


def check_value(column: Term, constant: Term) -> None:
    known = CLOSED_SETS.get(column.name)
    if known is None or not constant.constant or constant.value in known:
        return
    hint = suggestion(str(constant.value), known) or f" (it is one of {', '.join(known[:10])})"
    raise wrong(constant.column, f"{column.name} is never {constant.value!r}{hint}")
