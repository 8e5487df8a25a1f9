"""From the text of an expression to a function that says which rows of a batch it holds for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kwsniff.count.where import WhereError, wrong, zone
from kwsniff.count.where.comparison import in_list, text_test
from kwsniff.count.where.moment import bounded, clock_of
from kwsniff.count.where.name import columns_of, typed
from kwsniff.count.where.parser import Binary, Call, Node, Unary, parse
from kwsniff.count.where.term import (
    BODY,
    LIST,
    NUMBER,
    TEXT,
    TRUTH,
    ZONE,
    Term,
    Values,
    column_term,
    constant_term,
    fitted,
    makes,
    negated,
    number,
    shown,
    term_of,
    truth,
)
from kwsniff.output import suggestion
from kwsniff.rows.events import CONNECTION

# Functions: tests of text, case, length, absolute value.

TEXT_TESTS: dict[str, Callable[..., Values]] = {
    "contains": pc.match_substring,
    "startswith": pc.starts_with,
    "endswith": pc.ends_with,
    "matches": pc.match_substring_regex,
}
FUNCTIONS = (*TEXT_TESTS, "lower", "upper", "len", "abs")


@makes(Call)
def _call(node: Call) -> Term:
    """`startswith(client_id, "x")`, and the same as `client_id.startswith("x")`."""
    name = node.name
    if name not in FUNCTIONS:
        raise wrong(node.at, f"unknown function {name!r}{suggestion(name, FUNCTIONS)}")
    if len(node.arguments) != (2 if name in TEXT_TESTS else 1):
        raise wrong(node.at, f"{name} takes {'a column and a text' if name in TEXT_TESTS else 'one value'}")
    values = term_of(node.arguments[0])
    if name in TEXT_TESTS:
        return _matched(name, values, term_of(node.arguments[1]))
    if name == "len":
        return _length(values)
    wanted, kernel = {
        "lower": (TEXT, pc.utf8_lower),
        "upper": (TEXT, pc.utf8_upper),
        "abs": (NUMBER, pc.abs),
    }[name]
    if values.kind != wanted or values.many:
        raise wrong(values.at, f"{name} takes {wanted}, {shown(values)} is {values.kind}")
    return Term(wanted, lambda batch: kernel(values.evaluate(batch)), node.at, unit=values.unit)


def _matched(name: str, values: Term, wanted: Term) -> Term:
    if values.kind == LIST and name == "contains":
        return in_list(wanted, values)
    values = typed(values, TEXT)
    if values.kind != TEXT:
        raise wrong(values.at, f"{name} takes text, {shown(values)} is {values.kind}")
    return text_test(TEXT_TESTS[name], values, wanted)


def _length(values: Term) -> Term:
    if values.many or values.kind == BODY:
        raise wrong(values.at, f"len takes text or a list column, {shown(values)} is several values")
    if values.kind == TEXT:
        return Term(NUMBER, lambda batch: pc.utf8_length(values.evaluate(batch)), values.at)
    if values.kind == LIST and values.name:
        return Term(NUMBER, lambda batch: pc.list_value_length(values.evaluate(batch)), values.at)
    raise wrong(values.at, f"len takes text or a list, {shown(values)} is {values.kind}")


# and, or, not, and arithmetic.


@makes(Binary)
def _binary(node: Binary) -> Term:
    if node.operator in ("and", "or"):
        return _boolean(node)
    return _arithmetic(node)


def _boolean(node: Binary) -> Term:
    left, right = truth(node.left), truth(node.right)
    combine = pc.and_ if node.operator == "and" else pc.or_
    return Term(TRUTH, lambda batch: combine(left.evaluate(batch), right.evaluate(batch)), left.at)


@makes(Unary)
def _unary(node: Unary) -> Term:
    if node.operator == "not":
        return replace(negated(truth(node.operand)), at=node.at)
    term = number(node.operand)
    if node.operator == "+":
        return term
    if term.constant:
        return replace(constant_term(-term.value, node.at, NUMBER), unit=term.unit)
    return Term(NUMBER, lambda batch: pc.negate(term.evaluate(batch)), node.at, unit=term.unit)


# Integers are taken as 64-bit, so that the sum of two columns cannot wrap; a quotient is always a fraction.
ARITHMETIC: dict[str, Callable[[Values, Values], Values]] = {
    "+": pc.add,
    "-": pc.subtract,
    "*": pc.multiply,
    "/": lambda left, right: pc.divide(left.cast(pa.float64()), right.cast(pa.float64())),
}


def _arithmetic(node: Binary) -> Term:
    compute = ARITHMETIC[node.operator]
    left, right, unit = _operands(node.operator, node.left, node.right)

    def evaluate(batch: pa.RecordBatch) -> Values:
        return compute(_wide(left.evaluate(batch)), _wide(right.evaluate(batch)))

    return Term(NUMBER, evaluate, left.at, unit=unit)


def _operands(operator: str, first: Node, second: Node) -> tuple[Term, Term, str]:
    """The two sides in one unit, and the unit of the result: of a quotient of two times it is none."""
    left, right = number(first), number(second)
    if operator in "+-" or (left.unit and right.unit):
        left, right, unit = fitted(left, right)
        return left, right, unit if operator in "+-" else ""
    return left, right, left.unit or right.unit


def _wide(values: Values) -> Values:
    return values.cast(pa.int64()) if pa.types.is_integer(values.type) else values


Predicate = Callable[[pa.RecordBatch], pa.Array]


def compile_where(
    text: str | None, *, since: str | None = None, until: str | None = None, tz: str = "UTC"
) -> Predicate:
    """A function from an EVENTS batch to a boolean array without nulls.

    `since` and `until` bound `time`, the second exclusively. Times that name no zone are in `tz`.

    Raises:
        WhereError: the expression is wrong; the message is one line with the position.
    """
    zone(tz)
    before = ZONE.set(tz)
    try:
        terms = bounded(column_term("time", 1), since, until)
        if text is not None:
            terms.append(_whole(text))
    except (RecursionError, MemoryError):
        raise WhereError("--where: nested too deeply") from None
    finally:
        ZONE.reset(before)

    def predicate(batch: pa.RecordBatch) -> pa.Array:
        result: pa.Array = pa.repeat(True, batch.num_rows)
        for term in terms:
            result = pc.and_(result, pc.fill_null(term.evaluate(batch), False))
        return result

    return predicate


def _whole(text: str) -> Term:
    term = term_of(parse(text))
    if term.kind != TRUTH:
        raise wrong(term.at, f"the expression gives {term.kind}, not true or false")
    return term


def columns_in(text: str) -> frozenset[str]:
    """The columns of EVENTS that an expression uses; `text` has been compiled before."""
    return frozenset(columns_of(parse(text)))


MAX_OWNED = 1_000_000


class Owned:
    """Connections of the calls that were asked for: their rows belong to them."""

    def __init__(self) -> None:
        self._connections: set[str] = set()

    def __call__(self, batch: pa.RecordBatch, mask: pa.Array) -> pa.Array:
        if len(self._connections) < MAX_OWNED:
            self._connections.update(pc.unique(batch.filter(mask)["connection"]).drop_null().to_pylist())
        ends = pc.equal(batch["event"], CONNECTION)
        if not self._connections or not pc.any(ends).as_py():
            return mask
        own = pc.is_in(batch["connection"], pa.array(list(self._connections), pa.string()))
        return pc.or_(mask, pc.and_(ends, own))


# The time between `--since` and `--until`.


class Window:
    """The time between `--since` and `--until`, of which at least one was given and has been checked."""

    def __init__(self, since: str | None, until: str | None, tz: str) -> None:
        self._zone = zone(tz)
        self._predicate = compile_where(None, since=since, until=until, tz=tz)
        self._bounds = [None if text is None else self._bound(text.strip()) for text in (since, until)]

    def _bound(self, text: str) -> time | int:
        clock = clock_of(text)
        if clock is not None:
            return clock
        moment = datetime.fromisoformat(text)
        return _micros(moment if moment.tzinfo else moment.replace(tzinfo=self._zone))

    def parts(self, first: int, last: int) -> list[tuple[int, int]]:
        """The parts of a span of time within it: one, or one a day if it is between times of day.
        Microseconds since 1970."""
        since, until = self._bounds
        first = max(first, since) if isinstance(since, int) else first
        last = min(last, until) if isinstance(until, int) else last
        if last < first or not any(isinstance(bound, time) for bound in self._bounds):
            return [(first, last)] if first <= last else []
        day, end = (datetime.fromtimestamp(each // 1_000_000, self._zone).date() for each in (first, last))
        found = []
        while day <= end:
            after = day + timedelta(days=1)
            begin = self._at(day, since if isinstance(since, time) else time())
            over = self._at(day, until) if isinstance(until, time) else self._at(after, time())
            if max(begin, first) <= min(over, last):
                found.append((max(begin, first), min(over, last)))
            day = after
        return found

    def _at(self, day: date, clock: time) -> int:
        return _micros(datetime.combine(day, clock, self._zone))

    def seen(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The calls and anomalies in it, and the connections that were there in it, also if they began
        before or ended after it."""
        chosen = self._predicate(batch).to_numpy(zero_copy_only=False).copy()
        ends = np.flatnonzero(pc.equal(batch["event"], CONNECTION).to_numpy(zero_copy_only=False))
        first, last = (batch[name].cast(pa.int64()) for name in ("first_time", "last_time"))
        for row in ends.tolist():
            chosen[row] = first[row].is_valid and bool(self.parts(first[row].as_py(), last[row].as_py()))
        return batch.filter(pa.array(chosen))


def _micros(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
