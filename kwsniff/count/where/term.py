"""What an expression means: terms with a kind, a unit, and how to get their values from a batch.

Makers of terms register here by the type of node they take; `term_of` finds the one for a node.

A term with `many` stands for several values of a row, such as the names of its topics: a test holds if it
holds for one of them. Its `evaluate` gives `Items` instead of an array.
"""

from __future__ import annotations

import contextvars
import operator
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kwsniff.count.where import wrong
from kwsniff.count.where.parser import DURATION, SIZE, Constant, Node
from kwsniff.rows.schema import COLUMNS

Values = Any
"""An Arrow array as long as the batch, or a scalar."""

NUMBER, TEXT, TRUTH, TIME, LIST, NOTHING = "a number", "text", "true or false", "a time", "a list", "None"
CLOCK, NETWORK, BODY = "a time of day", "an address", "a field of a body"

KINDS = {"number": NUMBER, "quantity": NUMBER, "text": TEXT, "moment": TEXT, "clock": CLOCK}
KINDS |= {"network": NETWORK, "endpoint": NETWORK, "word": TRUTH}
TIMES = {"µs": 1.0, "ms": 1e3}
"""Units of time that columns have, in microseconds."""

ZONE: contextvars.ContextVar[str] = contextvars.ContextVar("zone", default="UTC")
"""The time zone of times that name none, while an expression is compiled."""


class Items(NamedTuple):
    """Several values a row: `rows[i]` is the row of `values[i]`, of `total` rows in all."""

    rows: NDArray[np.int64]
    values: pa.Array
    total: int


@dataclass(frozen=True, slots=True)
class Term:
    """A part of the expression: what kind of value it gives, and how to get it from a batch."""

    kind: str
    evaluate: Callable[[pa.RecordBatch], Values]
    at: int
    """Position in the expression, from 1."""
    item: str = ""
    """Kind of a list's items."""
    name: str = ""
    """The event column, where the term is nothing else."""
    unit: str = ""
    """As `kwsniff.rows.schema` has it; of a constant `µs` or `bytes` if one was written."""
    many: bool = False
    """Several values a row."""
    constant: bool = False
    value: Any = None
    """Of a constant."""
    values: Callable[[], list[str]] | None = None
    """All values that the column can have, where they are known."""


Maker = Callable[[Any], Term]
_MakerT = TypeVar("_MakerT", bound=Maker)
_MAKERS: dict[type, Maker] = {}


def makes(node_type: type) -> Callable[[_MakerT], _MakerT]:
    """Register the decorated function as the maker of terms from nodes of `node_type`."""

    def register(maker: _MakerT) -> _MakerT:
        _MAKERS[node_type] = maker
        return maker

    return register


def term_of(node: Node) -> Term:
    """What a node means. Raises WhereError."""
    maker = _MAKERS.get(type(node))
    if maker is None:
        raise wrong(node.at, "a list can only stand after in")
    return maker(node)


@makes(Constant)
def _constant(node: Constant) -> Term:
    if node.kind == "quantity":
        amount, unit = node.value
        return replace(constant_term(amount, node.at, NUMBER), unit=unit)
    if node.value is None:
        return Term(NOTHING, lambda batch: pa.scalar(None), node.at, constant=True)
    return constant_term(node.value, node.at, KINDS[node.kind])


def constant_term(value: Any, at: int, kind: str) -> Term:
    """A value that is the same in every row."""
    try:
        scalar = pa.scalar(value)
    except (OverflowError, pa.ArrowInvalid, UnicodeError):
        raise wrong(at, "a value no column can hold") from None
    return Term(kind, lambda batch: scalar, at, constant=True, value=value)


def kind_of(type_: pa.DataType) -> str:
    """The kind of an Arrow type."""
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


_COLUMNS = {column.name: column for column in COLUMNS}


def column_term(name: str, at: int) -> Term:
    """A column of EVENTS."""
    column = _COLUMNS[name]
    item = kind_of(column.type.value_type) if pa.types.is_list(column.type) else ""
    return Term(
        kind_of(column.type), operator.itemgetter(name), at, item=item, name=name, unit=column.unit
    )  # fmt: skip


def shown(term: Term) -> str:
    """How an error message calls a term."""
    if term.name:
        return term.name
    return repr(term.value) if term.constant and term.kind != NOTHING else "this"


def tested(term: Term, test: Callable[[Values], Values]) -> Term:
    """Whether `test` holds for the value of `term`, or for one of its values; never null."""

    def evaluate(batch: pa.RecordBatch) -> Values:
        values = term.evaluate(batch)
        if not isinstance(values, Items):
            return pc.fill_null(test(values), False)
        hits = pc.fill_null(test(values.values), False)
        mask = np.zeros(values.total, np.bool_)
        mask[values.rows[np.asarray(hits.to_numpy(zero_copy_only=False), np.bool_)]] = True
        return pa.array(mask)

    return Term(TRUTH, evaluate, term.at)


def negated(term: Term) -> Term:
    """Where a test doesn't hold."""
    return Term(TRUTH, lambda batch: pc.invert(term.evaluate(batch)), term.at)


def items_of(lists: pa.Array, values: pa.Array | None = None) -> Items:
    """What the lists of a column hold; `values`, if not they, stand at the same places."""
    rows = pc.list_parent_indices(lists).to_numpy(zero_copy_only=False).astype(np.int64)
    return Items(rows, pc.list_flatten(lists) if values is None else values, len(lists))


def truth(node: Node) -> Term:
    """A node that must be true or false; without nulls: a flag that has no value counts as false."""
    term = term_of(node)
    if term.kind != TRUTH:
        raise wrong(term.at, f"{shown(term)} is {term.kind}, not true or false")
    return Term(TRUTH, lambda batch: pc.fill_null(term.evaluate(batch), False), term.at)


def number(node: Node) -> Term:
    """A node that must be a number."""
    term = term_of(node)
    if term.kind == TIME:
        raise wrong(term.at, "no arithmetic with times; latency_us and duration_us hold the differences")
    if term.kind != NUMBER or term.many:
        raise wrong(term.at, f"{shown(term)} is {term.kind}, not a number")
    return term


def fitted(left: Term, right: Term) -> tuple[Term, Term, str]:
    """Two numbers in one unit, and that unit: a written unit becomes that of the column, milliseconds become
    microseconds where the two meet. Raises WhereError where a unit does not fit."""
    if left.unit == right.unit:
        return left, right, left.unit
    for one, other in ((left, right), (right, left)):
        if one.constant and one.unit and not _fits(one.unit, other):
            what = "a time" if one.unit == DURATION else "a size"
            raise wrong(one.at, f"{shown(other)} is not {what}{_has(other)}")
    if left.unit in TIMES and right.unit in TIMES:
        least = min(left.unit, right.unit, key=TIMES.__getitem__)
        columns = [term.unit for term in (left, right) if not term.constant]
        unit = columns[0] if len(columns) == 1 else least
        return _scaled(left, unit), _scaled(right, unit), unit
    return left, right, left.unit or right.unit


def _has(term: Term) -> str:
    return f"; its unit is {term.unit}" if term.unit in (*TIMES, SIZE) else ""


def _fits(unit: str, other: Term) -> bool:
    if other.kind == BODY:
        return False
    return other.unit in TIMES if unit == DURATION else other.unit == SIZE


def _scaled(term: Term, unit: str) -> Term:
    if term.unit == unit:
        return term
    factor = TIMES[term.unit] / TIMES[unit]
    if term.constant:
        return replace(constant_term(term.value * factor, term.at, NUMBER), unit=unit)

    def evaluate(batch: pa.RecordBatch) -> Values:
        return pc.multiply(term.evaluate(batch).cast(pa.float64()), factor)

    return replace(term, evaluate=evaluate, unit=unit, name="")


def text_constant(term: Term) -> str:
    """The text that a term is. Raises WhereError if it is anything else."""
    if not term.constant or term.kind != TEXT:
        raise wrong(term.at, "this has to be quoted text")
    return str(term.value)
