"""From the text of an expression to a function that says which rows of a batch it holds for."""

from __future__ import annotations

import contextvars
import functools
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, time
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kwsniff.count.where import WhereError, wrong, zone
from kwsniff.count.where.name import (
    BODY,
    CLOCK,
    LIST,
    NETWORK,
    NOTHING,
    NUMBER,
    TEXT,
    TIME,
    TRUTH,
    Evaluate,
    Items,
    Term,
    Values,
    check_value,
    column_term,
    columns_of,
    endpoint,
    items_of,
    named,
    typed,
)
from kwsniff.count.where.parser import CONSTANTS, DURATION, SIZE, Node, parse
from kwsniff.output import suggestion, units
from kwsniff.rows.events import CONNECTION

Predicate = Callable[[pa.RecordBatch], pa.Array]
Test = Callable[[Values], Values]
Kernel = Callable[[Values, Any], Values]

_ZONE: contextvars.ContextVar[str] = contextvars.ContextVar("zone", default="UTC")
"""The time zone of times that name none, while an expression is compiled."""


def compile_where(
    text: str | None, *, since: str | None = None, until: str | None = None, tz: str = "UTC"
) -> Predicate:
    """A function from an EVENTS batch to a boolean array without nulls.

    `since` and `until` bound `time`, the second exclusively. Times that name no zone are in `tz`.

    Raises:
        WhereError: the expression is wrong; the message is one line with the position.
    """
    zone(tz)
    before = _ZONE.set(tz)
    try:
        terms = _bounded(since, until)
        if text is not None:
            terms.append(_whole(text))
    except (RecursionError, MemoryError):
        raise WhereError("--where: nested too deeply") from None
    finally:
        _ZONE.reset(before)

    def predicate(batch: pa.RecordBatch) -> pa.Array:
        result: pa.Array = pa.repeat(True, batch.num_rows)
        for term in terms:
            result = pc.and_(result, pc.fill_null(term.evaluate(batch), False))
        return result

    return predicate


def _whole(text: str) -> Term:
    term = _term(parse(text))
    if term.kind != TRUTH:
        raise term.wrong(f"the expression gives {term.kind}, not true or false")
    return term


def columns_in(text: str) -> frozenset[str]:
    """The columns of EVENTS that an expression uses; `text` has been compiled before."""
    return frozenset(columns_of(parse(text)))


def _term(node: Node) -> Term:
    """What a node means. Raises WhereError."""
    if node.kind == "list":
        raise wrong(node.at, "a list can only stand after in")
    return _constant(node) if node.kind in _KINDS else _MAKERS[node.kind](node)


# Constants, and tests of the values of a term.

_KINDS = dict.fromkeys(CONSTANTS, TEXT) | {
    "number": NUMBER, "quantity": NUMBER, "clock": CLOCK, "word": TRUTH,
    "network": NETWORK, "endpoint": NETWORK,
}  # fmt: skip


def _constant(node: Node) -> Term:
    if node.value is None:
        return replace(_fixed(None, node.at, NOTHING), value=None)
    value, unit = node.value if node.kind == "quantity" else (node.value, "")
    return replace(_fixed(value, node.at, _KINDS[node.kind]), unit=unit)


def _fixed(value: Any, at: int, kind: str) -> Term:
    """A value that is the same in every row."""
    try:
        scalar = pa.scalar(value)
    except (OverflowError, pa.ArrowInvalid, UnicodeError):
        raise wrong(at, "a value no column can hold") from None
    return Term(kind, lambda batch: scalar, at, constant=True, value=value)


def _tested(term: Term, test: Test) -> Term:
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


def _combined(combine: Kernel, terms: Sequence[Term], at: int) -> Term:
    """Tests that have to hold together, or one of them."""
    if len(terms) == 1:
        return terms[0]
    return Term(TRUTH, lambda batch: functools.reduce(combine, (each.evaluate(batch) for each in terms)), at)


def _negated(term: Term) -> Term:
    """Where a test doesn't hold."""
    return replace(term, evaluate=lambda batch: pc.invert(term.evaluate(batch)))


def _truth(node: Node) -> Term:
    """A node that must be true or false; without nulls: a flag that has no value counts as false."""
    term = _term(node)
    if term.kind != TRUTH:
        raise term.wrong(f"{term.shown} is {term.kind}, not true or false")
    return Term(TRUTH, lambda batch: pc.fill_null(term.evaluate(batch), False), term.at)


def _boolean(node: Node) -> Term:
    terms = [_truth(item) for item in node.items]
    if node.kind == "not":
        return replace(_negated(terms[0]), at=node.at)
    return _combined(pc.and_ if node.kind == "and" else pc.or_, terms, node.at)


# Numbers, in one unit where two meet. Integers are taken as 64-bit, so that the sum of two columns cannot
# wrap; a quotient is always a fraction.

TIMES = {"µs": 1.0, "ms": 1e3}
"""Units of time that columns have, in microseconds."""
ARITHMETIC: dict[str, Kernel] = {
    "+": pc.add,
    "-": pc.subtract,
    "*": pc.multiply,
    "/": lambda left, right: pc.divide(left.cast(pa.float64()), right.cast(pa.float64())),
}


def _number(node: Node) -> Term:
    term = _term(node)
    if term.kind == TIME:
        raise term.wrong("no arithmetic with times; latency_us and duration_us hold the differences")
    if term.kind != NUMBER or term.many:
        raise term.wrong(f"{term.shown} is {term.kind}, not a number")
    return term


def _sign(node: Node) -> Term:
    term = _number(node.items[0])
    if node.value == "+":
        return term
    if term.constant:
        return replace(_fixed(-term.value, node.at, NUMBER), unit=term.unit)
    return Term(NUMBER, lambda batch: pc.negate(term.evaluate(batch)), node.at, unit=term.unit)


def _arithmetic(node: Node) -> Term:
    left, right = map(_number, node.items)
    is_sum, compute = node.value in "+-", ARITHMETIC[node.value]
    unit = left.unit or right.unit
    if is_sum or (left.unit and right.unit):
        left, right, unit = _fitted(left, right)
        unit = unit if is_sum else ""  # of a quotient of two times it is none

    def evaluate(batch: pa.RecordBatch) -> Values:
        return compute(_wide(left.evaluate(batch)), _wide(right.evaluate(batch)))

    return Term(NUMBER, evaluate, left.at, unit=unit)


def _wide(values: Values) -> Values:
    return values.cast(pa.int64()) if pa.types.is_integer(values.type) else values


def _fitted(left: Term, right: Term) -> tuple[Term, Term, str]:
    """Two numbers in one unit, and that unit: a written unit becomes that of the column, milliseconds become
    microseconds where the two meet. Raises WhereError where a unit does not fit."""
    if left.unit == right.unit:
        return left, right, left.unit
    for one, other in ((left, right), (right, left)):
        if (
            one.constant
            and one.unit
            and not (other.unit in TIMES if one.unit == DURATION else other.unit == SIZE)
        ):
            what = "a time" if one.unit == DURATION else "a size"
            has = f"; its unit is {other.unit}" if other.unit in (*TIMES, SIZE) else ""
            raise one.wrong(f"{other.shown} is not {what}{has}")
    if left.unit in TIMES and right.unit in TIMES:
        columns = [term.unit for term in (left, right) if not term.constant]
        unit = columns[0] if len(columns) == 1 else min(left.unit, right.unit, key=TIMES.__getitem__)
        return _scaled(left, unit), _scaled(right, unit), unit
    return left, right, left.unit or right.unit


def _scaled(term: Term, unit: str) -> Term:
    if term.unit == unit:
        return term
    factor = TIMES[term.unit] / TIMES[unit]
    if term.constant:
        return replace(_fixed(term.value * factor, term.at, NUMBER), unit=unit)

    def evaluate(batch: pa.RecordBatch) -> Values:
        return pc.multiply(term.evaluate(batch).cast(pa.float64()), factor)

    return replace(term, evaluate=evaluate, unit=unit, name="")


# Functions, and tests of text.

TEXT_TESTS: dict[str, Kernel] = {
    "contains": pc.match_substring,
    "startswith": pc.starts_with,
    "endswith": pc.ends_with,
    "matches": pc.match_substring_regex,
    "~": pc.match_substring_regex,
    "like": pc.match_like,
}
"""Functions and operators; a regular expression is RE2, a pattern has % and _."""
CHANGES = {"lower": (TEXT, pc.utf8_lower), "upper": (TEXT, pc.utf8_upper), "abs": (NUMBER, pc.abs)}
FUNCTIONS = (*(name for name in TEXT_TESTS if name not in ("~", "like")), "lower", "upper", "len", "abs")


def _call(node: Node) -> Term:
    """`startswith(client_id, "x")`, and the same as `client_id.startswith("x")`."""
    name = node.value
    if name not in FUNCTIONS:
        raise wrong(node.at, f"unknown function {name!r}{suggestion(name, FUNCTIONS)}")
    if len(node.items) != (2 if name in TEXT_TESTS else 1):
        raise wrong(node.at, f"{name} takes {'a column and a text' if name in TEXT_TESTS else 'one value'}")
    values, *wanted = map(_term, node.items)
    if name == "contains" and values.kind == LIST:
        return _in_list(wanted[0], values)
    if wanted:
        return _matched(name, values, wanted[0])
    if name == "len":
        return _length(values)
    kind, kernel = CHANGES[name]
    if values.kind != kind or values.many:
        raise values.wrong(f"{name} takes {kind}, {values.shown} is {values.kind}")
    return Term(kind, lambda batch: kernel(values.evaluate(batch)), node.at, unit=values.unit)


def _length(values: Term) -> Term:
    if values.many or values.kind == BODY:
        raise values.wrong(f"len takes text or a list column, {values.shown} is several values")
    kernel = {TEXT: pc.utf8_length, LIST: pc.list_value_length}.get(values.kind)
    if kernel is None or (values.kind == LIST and not values.name):
        raise values.wrong(f"len takes text or a list, {values.shown} is {values.kind}")
    return Term(NUMBER, lambda batch: kernel(values.evaluate(batch)), values.at)


def _matched(name: str, values: Term, wanted: Term) -> Term:
    """A test of text with a constant one. Raises WhereError for a regular expression that is none."""
    values = typed(values, TEXT)
    if values.kind != TEXT:
        hint = "; write topic" if values.name == "topics" else ""
        raise values.wrong(f"{name} takes text, {values.shown} is {values.kind}{hint}")
    if not wanted.constant or wanted.kind != TEXT:
        raise wanted.wrong("this has to be quoted text")
    kernel, text = TEXT_TESTS[name], str(wanted.value)
    try:
        kernel(pa.array([""]), text)
    except pa.ArrowInvalid as error:
        reason = str(error).splitlines()[0].removeprefix("Invalid regular expression: ")
        raise wanted.wrong(f"wrong regular expression: {reason}") from None
    return _tested(values, lambda column: kernel(column, text))


# Comparisons: order and equality, presence (None), patterns, ranges, and what is in what.

KERNELS: dict[str, Kernel] = {
    "==": pc.equal, "<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal,
}  # fmt: skip
TURNED = {"==": "==", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
OPPOSITE = {"!=": "==", "is not": "is", "!~": "~"}
OPPOSITE |= {f"not {word}": word for word in ("in", "like", "between")}
NO_ERROR = "NONE"
"""Name of error code 0."""


def _comparison(node: Node) -> Term:
    triples = zip(node.value, node.items, node.items[1:], strict=False)
    return _combined(pc.and_, [_compared(*each) for each in triples], node.at)


def _compared(operator: str, first: Node, second: Node) -> Term:
    if operator in OPPOSITE:
        return _negated(_compared(OPPOSITE[operator], first, second))
    left = _term(first)
    if operator == "between":
        low, high = map(_term, second.items)
        return _combined(pc.and_, [_ordered(">=", left, low), _ordered("<=", left, high)], left.at)
    if operator == "in" and second.kind == "list":
        return _one_of(left, [_term(item) for item in second.items])
    right = _term(second)
    if operator == "in":
        return _found(left, right)
    if operator in TEXT_TESTS:
        return _matched(operator, left, right)
    if NOTHING in (left.kind, right.kind):
        return _missing(left if right.kind == NOTHING else right, operator)
    if operator == "is":
        raise right.wrong("`is` compares with None only; write ==")
    return _ordered(operator, left, right)


def _missing(term: Term, operator: str) -> Term:
    """Whether a column has no value. `error` has none where the code is 0."""
    if operator not in ("==", "is"):
        raise term.wrong("None can only be compared with == and !=")
    if not term.name:
        raise term.wrong("only a column can be compared with None")
    is_error = term.name == "error"
    test = functools.partial(pc.not_equal, NO_ERROR) if is_error else pc.is_valid
    return _negated(_tested(typed(term, TEXT), test))


def _ordered(operator: str, left: Term, right: Term) -> Term:
    if left.constant and not right.constant:
        left, right, operator = right, left, TURNED[operator]
    left, right = typed(left, right.kind), typed(right, left.kind)
    if right.kind == NETWORK or (left.name in ENDS and _address(right) is not None):
        if operator != "==":
            raise right.wrong("an address can only be compared with == and !=, or with in")
        return _at_address(left, right)
    left, right = _as_times(left, right)
    if left.kind != right.kind or LIST in (left.kind, right.kind):
        raise right.wrong(_mismatch(left, right))
    if left.kind == NUMBER:
        left, right, _ = _fitted(left, right)
    if right.many or (left.many and not right.constant):
        raise right.wrong(f"{left.shown} and {right.shown} can only be compared with a value each")
    check_value(left, right)
    check_value(right, left)
    kernel = KERNELS[operator]
    if right.constant and not left.constant:
        scalar = right.evaluate(pa.record_batch([]))
        return _tested(left, lambda values: kernel(values, scalar))

    def evaluate(batch: pa.RecordBatch) -> Values:
        return pc.fill_null(kernel(left.evaluate(batch), right.evaluate(batch)), False)

    return Term(TRUTH, evaluate, left.at)


def _mismatch(left: Term, right: Term) -> str:
    """Why two terms cannot be compared."""
    if LIST not in (left.kind, right.kind):
        return f"{left.shown} is {left.kind}, {right.shown} is {right.kind}"
    lists = left if left.kind == LIST else right
    name = lists.name or "it"
    each = ', or topic == "value"' if name == "topics" else ""
    return f'{lists.shown} is a list; write "value" in {name}{each}, or len({name})'


def _found(left: Term, right: Term) -> Term:
    if right.kind == LIST:
        return _in_list(left, right)
    if right.constant and not left.constant:
        return _one_of(left, [right])
    if right.many:
        return _ordered("==", right, left)
    if right.kind == TEXT and left.kind == TEXT:
        return _matched("contains", right, left)
    raise right.wrong(f"cannot look for {left.shown} in {right.shown}, which is {right.kind}")


def _one_of(left: Term, choices: list[Term]) -> Term:
    for choice in choices:
        if not choice.constant or choice.kind == NOTHING:
            raise choice.wrong("the list after `in` takes numbers and quoted texts only")
    none = _fixed(False, left.at, TRUTH)
    return _combined(pc.or_, [none, *(_ordered("==", left, choice) for choice in choices)], left.at)


def _in_list(left: Term, right: Term) -> Term:
    """Whether a list column holds a value."""
    if not left.constant or left.kind != right.item:
        raise left.wrong(f"{right.shown} holds items that are {right.item}, {left.shown} is not")

    def evaluate(batch: pa.RecordBatch) -> Values:
        found = right.evaluate(batch)
        return found if isinstance(found, Items) else items_of(found)

    return _ordered("==", Term(right.item, evaluate, right.at, unit=right.unit, many=True), left)


# Addresses: `client_ip in 10.0.0.0/8`, `broker == 10.0.0.9:9092`.

ENDS = {"client_ip": "client", "broker_ip": "broker", "client": "client", "broker": "broker"}
"""Names that can be compared with an address, and the end they are about."""
Network = IPv4Network | IPv6Network


def _address(term: Term) -> Network | str | None:
    """The network that a constant names, one address or a CIDR range, or else its `ip:port`."""
    if not term.constant or term.kind not in (TEXT, NETWORK):
        return None
    text = str(term.value)
    with suppress(ValueError):
        return ip_network(text, strict=False)
    host, _, port = text.rpartition(":")
    bare = host[1:-1] if host[:1] == "[" and host[-1:] == "]" else host
    with suppress(ValueError):
        return units.endpoint(str(ip_address(bare)), port) if port.isdecimal() else None
    return None


def _at_address(column: Term, constant: Term) -> Term:
    """Whether an end of the connection is, or is in, what `constant` names. Raises WhereError."""
    side, wanted = ENDS.get(column.name), _address(constant)
    if side is None:
        raise constant.wrong(f"{column.shown} is no address; client_ip and broker_ip are")
    if wanted is None:
        raise constant.wrong(f"{constant.value!r} is no address")
    if isinstance(wanted, str):
        return _tested(Term(TEXT, endpoint(side), column.at), lambda values: pc.equal(values, wanted))

    def inside(addresses: Values) -> Values:
        # Each address once: there are far fewer than rows.
        encoded = addresses.dictionary_encode()
        hits = [ip_address(text) in wanted for text in encoded.dictionary.to_pylist()]
        return pa.array(hits, pa.bool_()).take(encoded.indices)

    return _tested(Term(TEXT, lambda batch: batch[f"{side}_ip"], column.at), inside)


_MAKERS: dict[str, Callable[[Node], Term]] = {
    "name": named, "call": _call, "comparison": _comparison, "arithmetic": _arithmetic, "sign": _sign,
    **dict.fromkeys(("and", "or", "not"), _boolean),
}  # fmt: skip


# Times: ISO 8601, or a time of day.

CLOCK_TYPE = pa.time64("us")
NO_TIME = "no ISO 8601 time such as 2026-01-31T12:00:00.5Z, and no time of day such as 12:03:05"


def clock_of(text: str) -> time | None:
    """The time of day that a text is."""
    hours, colon, rest = text.partition(":")
    with suppress(ValueError):
        return time.fromisoformat(f"{int(hours):02}:{rest}") if colon and len(hours) < 3 else None
    return None


def moment_of(text: str, tz: str) -> datetime:
    """The moment that a text is; in a zone if it names none. Raises ValueError."""
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=zone(tz))


def _as_times(left: Term, right: Term) -> tuple[Term, Term]:
    """Two terms as what can be compared: beside a time, text becomes a moment or a time of day."""
    if right.kind == TIME and left.kind != TIME:
        return _as_times(right, left)[::-1]
    if left.kind != TIME or right.kind not in (TEXT, CLOCK) or not right.constant:
        return left, right
    text = str(right.value)
    clock = clock_of(text)
    if clock is not None:
        left = replace(left, kind=CLOCK, evaluate=_time_of_day(left.evaluate))
        return left, _fixed(clock, right.at, CLOCK)
    try:
        return left, _fixed(moment_of(text, _ZONE.get()), right.at, TIME)
    except ValueError:
        raise right.wrong(f"{text!r} is {NO_TIME}") from None


def _time_of_day(evaluate: Evaluate) -> Evaluate:
    zoned = pa.timestamp("us", tz=_ZONE.get())
    return lambda batch: pc.local_timestamp(evaluate(batch).cast(zoned)).cast(CLOCK_TYPE)


def _bounded(since: str | None, until: str | None) -> list[Term]:
    """The tests that `--since` and `--until` ask for. Raises WhereError."""
    tests = []
    for text, option, operator in ((since, "--since", ">="), (until, "--until", "<")):
        if text is not None:
            try:
                tests.append(_ordered(operator, column_term("time", 1), _fixed(text.strip(), 1, TEXT)))
            except WhereError as error:
                raise WhereError(f"{option}: {str(error).partition(': ')[2]}") from None
    return tests


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
