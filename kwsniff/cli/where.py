"""The language of `--where`: an expression over the columns of an event, compiled to Arrow kernels.

Theory of operation: Python's own parser makes the tree, so spelling and precedence are Python's; a whitelist
of node types turns it into a tree of `Term`s, each with a kind known before any row is read. Nothing of the
expression is ever executed as Python. A mistake is found at compile time and named with its position.

Logic has two values. A column without a value equals nothing but None, so comparing it is false and
`!=` and `not in` are true; a missing list holds nothing.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kwsniff import events as vocabulary
from kwsniff.cli.problem import CommandError, suggestion
from kwsniff.table import EVENTS, TIMESTAMP

Predicate = Callable[[pa.RecordBatch], pa.Array]
Values = Any
"""An Arrow array as long as the batch, or a scalar."""

NUMBER, TEXT, TRUTH, TIME, LIST, NOTHING = "a number", "text", "true or false", "a time", "a list", "None"

CLOSED_SETS: dict[str, list[str]] = {
    "event": [vocabulary.CALL, vocabulary.ANOMALY, vocabulary.CONNECTION],
    "status": list(vocabulary.STATUSES),
    "unanswered_because": list(vocabulary.UNANSWERED_REASONS),
    "security": list(vocabulary.SECURITY),
    "code": list(vocabulary.ANOMALIES),
}
"""Columns whose every value is known: comparing them with another is a slip of the pen."""

MAX_LENGTH = 10_000
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


def compile_where(text: str) -> Predicate:
    """A function from an EVENTS batch to a boolean array without nulls.

    Raises:
        CommandError: the expression is wrong; the message is one line with the position.
    """
    if len(text) > MAX_LENGTH:
        raise CommandError(f"--where: longer than {MAX_LENGTH} characters")
    try:
        term = _term(_parse(text))
    except (RecursionError, MemoryError):
        raise CommandError("--where: nested too deeply") from None
    if term.kind != TRUTH:
        raise _wrong(term.column, f"the expression gives {term.kind}, not true or false")

    def predicate(batch: pa.RecordBatch) -> pa.Array:
        values = term.evaluate(batch)
        if isinstance(values, pa.Scalar):
            return pa.repeat(values, batch.num_rows)
        return pc.fill_null(values, False)

    return predicate


def _wrong(column: int, message: str) -> CommandError:
    return CommandError(f"--where, position {column}: {message}")


def _parse(text: str) -> ast.expr:
    try:
        # Line ends are no part of the language, and parentheses would hide a missing one from the parser.
        return ast.parse(text.replace("\n", " ").strip(), mode="eval").body
    except SyntaxError as error:
        raise _wrong(max(error.offset or 1, 1), _syntax_hint(text, error)) from None
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


def _at(node: ast.expr) -> int:
    return node.col_offset + 1


def _term(node: ast.expr) -> Term:
    make = _MAKERS.get(type(node))
    if make is None:
        raise _wrong(_at(node), f"{type(node).__name__} is not part of the language")
    return make(node)


def _constant(node: ast.Constant) -> Term:
    return _constant_term(node.value, _at(node))


def _constant_term(value: Any, column: int) -> Term:
    if value is None:
        return Term(NOTHING, lambda batch: pa.scalar(None), column, constant=True)
    for type_, kind, arrow in (
        (bool, TRUTH, pa.bool_()),
        (int, NUMBER, pa.int64()),
        (float, NUMBER, pa.float64()),
        (str, TEXT, pa.string()),
    ):
        if isinstance(value, type_):
            try:
                scalar = pa.scalar(value, arrow)
            except (OverflowError, pa.ArrowInvalid, UnicodeError):
                raise _wrong(column, "a value no column can hold") from None
            return Term(kind, lambda batch: scalar, column, constant=True, value=value)
    raise _wrong(column, f"{value!r} is neither number nor text")


def _name(node: ast.Name) -> Term:
    if node.id not in EVENTS.names:
        if node.id.lower() in WORDS:
            return _constant_term(WORDS[node.id.lower()], _at(node))
        raise _wrong(_at(node), f"unknown column {node.id!r}{suggestion(node.id, EVENTS.names)}")
    kind = EVENTS.field(node.id).type
    item = _kind(kind.value_type) if pa.types.is_list(kind) else ""
    return Term(_kind(kind), operator.itemgetter(node.id), _at(node), item, node.id)


def _kind(type_: pa.DataType) -> str:
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


def _attribute(node: ast.Attribute) -> Term:
    """`partitions.error_code`: one field of each item of a list."""
    if not isinstance(node.value, ast.Name):
        raise _wrong(_at(node), "only a column can have a part after a dot")
    whole = _name(node.value)
    item = EVENTS.field(whole.name).type.value_type if whole.kind == LIST else None
    if item is None or not pa.types.is_struct(item):
        raise _wrong(_at(node), f"{node.value.id} has no parts")
    known = [field.name for field in item]
    if node.attr not in known:
        raise _wrong(_at(node), f"{node.value.id} has no {node.attr!r}{suggestion(node.attr, known)}")

    def evaluate(batch: pa.RecordBatch) -> pa.Array:
        lists = batch[whole.name]
        # The items of a null list may be left in the child array; their parents tell which ones count.
        return lists, pc.struct_field(pc.list_flatten(lists), node.attr)

    return Term(LIST, evaluate, _at(node), _kind(item.field(node.attr).type))


def _boolean(node: ast.BoolOp) -> Term:
    terms = [_truth(value) for value in node.values]
    combine = pc.and_ if isinstance(node.op, ast.And) else pc.or_

    def evaluate(batch: pa.RecordBatch) -> Values:
        result = terms[0].evaluate(batch)
        for term in terms[1:]:
            result = combine(result, term.evaluate(batch))
        return result

    return Term(TRUTH, evaluate, _at(node))


def _truth(node: ast.expr) -> Term:
    term = _term(node)
    if term.kind != TRUTH:
        raise _wrong(term.column, f"{_shown(term)} is {term.kind}, not true or false")
    return _whole(term)


def _whole(term: Term) -> Term:
    """The same without nulls: a boolean column that has no value counts as false."""
    return Term(TRUTH, lambda batch: pc.fill_null(term.evaluate(batch), False), term.column)


def _unary(node: ast.UnaryOp) -> Term:
    if isinstance(node.op, ast.Not):
        term = _truth(node.operand)
        return Term(TRUTH, lambda batch: pc.invert(term.evaluate(batch)), _at(node))
    term = _number(node.operand)
    if isinstance(node.op, ast.Invert):
        raise _wrong(_at(node), "~ is not part of the language; write not")
    if isinstance(node.op, ast.UAdd):
        return term
    if term.constant:
        return _constant_term(-term.value, _at(node))
    return Term(NUMBER, lambda batch: pc.negate(term.evaluate(batch)), _at(node))


def _number(node: ast.expr) -> Term:
    term = _term(node)
    if term.kind == TIME:
        raise _wrong(term.column, "no arithmetic with times; latency_us and duration_us hold the differences")
    if term.kind != NUMBER:
        raise _wrong(term.column, f"{_shown(term)} is {term.kind}, not a number")
    return term


def _shown(term: Term) -> str:
    if term.name:
        return term.name
    return repr(term.value) if term.constant and term.kind != NOTHING else "this"


# Integers are taken as 64-bit, so that the sum of two columns cannot wrap; a quotient is always a fraction.
ARITHMETIC: dict[type, Callable[[Values, Values], Values]] = {
    ast.Add: pc.add,
    ast.Sub: pc.subtract,
    ast.Mult: pc.multiply,
    ast.Div: lambda left, right: pc.divide(left.cast(pa.float64()), right.cast(pa.float64())),
}


def _arithmetic(node: ast.BinOp) -> Term:
    compute = ARITHMETIC.get(type(node.op))
    if compute is None:
        if isinstance(node.op, ast.BitAnd | ast.BitOr):
            word = "and" if isinstance(node.op, ast.BitAnd) else "or"
            raise _wrong(_at(node), f"& and | are not part of the language; write {word}")
        raise _wrong(_at(node), "arithmetic knows + - * / only")
    left, right = _number(node.left), _number(node.right)

    def evaluate(batch: pa.RecordBatch) -> Values:
        return compute(_wide(left.evaluate(batch)), _wide(right.evaluate(batch)))

    return Term(NUMBER, evaluate, _at(node))


def _wide(values: Values) -> Values:
    return values.cast(pa.int64()) if pa.types.is_integer(values.type) else values


def _comparison(node: ast.Compare) -> Term:
    terms: list[Term] = []
    left = node.left
    for op, right in zip(node.ops, node.comparators, strict=True):
        terms.append(_membership(op, left, right) if isinstance(op, ast.In | ast.NotIn) else _ordered(op, left, right))
        left = right

    def evaluate(batch: pa.RecordBatch) -> Values:
        result = terms[0].evaluate(batch)
        for term in terms[1:]:
            result = pc.and_(result, term.evaluate(batch))
        return result

    return Term(TRUTH, evaluate, _at(node))


COMPARISONS: dict[type, Callable[[Values, Values], Values]] = {
    ast.Eq: pc.equal,
    ast.NotEq: pc.not_equal,
    ast.Is: pc.equal,
    ast.IsNot: pc.not_equal,
    ast.Lt: pc.less,
    ast.LtE: pc.less_equal,
    ast.Gt: pc.greater,
    ast.GtE: pc.greater_equal,
}


def _ordered(op: ast.cmpop, left_node: ast.expr, right_node: ast.expr) -> Term:
    left, right = _term(left_node), _term(right_node)
    differs = isinstance(op, ast.NotEq | ast.IsNot)
    if NOTHING in (left.kind, right.kind):
        return _presence(left if right.kind == NOTHING else right, op, differs)
    if isinstance(op, ast.Is | ast.IsNot):
        raise _wrong(right.column, "`is` compares with None only; write ==")
    left, right = _as_times(left, right)
    if left.kind != right.kind or left.kind == LIST:
        raise _wrong(right.column, _mismatch(left, right))
    _check_value(left, right)
    _check_value(right, left)
    compute = COMPARISONS[type(op)]

    def evaluate(batch: pa.RecordBatch) -> Values:
        return pc.fill_null(compute(left.evaluate(batch), right.evaluate(batch)), differs)

    return Term(TRUTH, evaluate, left.column)


def _mismatch(left: Term, right: Term) -> str:
    if left.kind == LIST or right.kind == LIST:
        lists = left if left.kind == LIST else right
        return f'{_shown(lists)} is a list; write "value" in {lists.name or "it"}, or len({lists.name or "it"})'
    return f"{_shown(left)} is {left.kind}, {_shown(right)} is {right.kind}"


def _presence(term: Term, op: ast.cmpop, differs: bool) -> Term:
    if not isinstance(op, ast.Eq | ast.NotEq | ast.Is | ast.IsNot):
        raise _wrong(term.column, "None can only be compared with == and !=")
    if not term.name:
        raise _wrong(term.column, "only a column can be compared with None")
    test = pc.is_valid if differs else pc.is_null
    return Term(TRUTH, lambda batch: test(term.evaluate(batch)), term.column)


def _as_times(left: Term, right: Term) -> tuple[Term, Term]:
    if left.kind == TIME and right.kind == TEXT and right.constant:
        return left, _time(right)
    if right.kind == TIME and left.kind == TEXT and left.constant:
        return _time(left), right
    return left, right


def _time(term: Term) -> Term:
    try:
        moment = datetime.fromisoformat(term.value)
    except ValueError:
        raise _wrong(
            term.column, f"{term.value!r} is no ISO 8601 time such as 2026-01-31T12:00:00.5Z"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    scalar = pa.scalar(moment, TIMESTAMP)
    return Term(TIME, lambda batch: scalar, term.column, constant=True, value=term.value)


def _check_value(column: Term, constant: Term) -> None:
    known = CLOSED_SETS.get(column.name)
    if known is None or not constant.constant or constant.value in known:
        return
    hint = suggestion(str(constant.value), known) or f" (it is one of {', '.join(known[:10])})"
    raise _wrong(constant.column, f"{column.name} is never {constant.value!r}{hint}")


def _membership(op: ast.cmpop, left_node: ast.expr, right_node: ast.expr) -> Term:
    test = _found(_term(left_node), right_node)
    if isinstance(op, ast.In):
        return test
    return Term(TRUTH, lambda batch: pc.invert(test.evaluate(batch)), test.column)


def _found(left: Term, right_node: ast.expr) -> Term:
    if isinstance(right_node, ast.List | ast.Tuple | ast.Set):
        return _one_of(left, right_node.elts)
    right = _term(right_node)
    if right.kind == LIST:
        return _in_list(left, right)
    if right.kind == TEXT and left.kind == TEXT:
        needle = _text_constant(left)
        return _text_test(pc.match_substring, right, needle)
    raise _wrong(right.column, f"cannot look for {_shown(left)} in {_shown(right)}, which is {right.kind}")


def _one_of(left: Term, nodes: list[ast.expr]) -> Term:
    choices = [_term(node) for node in nodes]
    for index, choice in enumerate(choices):
        if not choice.constant or choice.kind == NOTHING:
            raise _wrong(choice.column, "the list after `in` takes numbers and quoted texts only")
        _, choices[index] = _as_times(left, choice)
        if choices[index].kind != left.kind:
            raise _wrong(choice.column, _mismatch(left, choices[index]))
        _check_value(left, choice)
    scalars = [choice.evaluate(None) for choice in choices]

    def evaluate(batch: pa.RecordBatch) -> Values:
        values = left.evaluate(batch)
        result: Values = pa.scalar(False)
        for scalar in scalars:
            result = pc.or_(result, pc.fill_null(pc.equal(values, scalar), False))
        return result

    return Term(TRUTH, evaluate, left.column)


def _in_list(left: Term, right: Term) -> Term:
    if not left.constant or left.kind != right.item:
        raise _wrong(left.column, f"{_shown(right)} holds items that are {right.item}, {_shown(left)} is not")
    needle = left.evaluate(None)

    def evaluate(batch: pa.RecordBatch) -> pa.Array:
        found = right.evaluate(batch)
        lists, items = found if isinstance(found, tuple) else (found, pc.list_flatten(found))
        parents = pc.list_parent_indices(lists)
        hits = parents.filter(pc.fill_null(pc.equal(items, needle), False))
        mask = np.zeros(len(lists), dtype=bool)
        mask[hits.to_numpy(zero_copy_only=False)] = True
        return pa.array(mask)

    return Term(TRUTH, evaluate, left.column)


def _text_constant(term: Term) -> str:
    if not term.constant or term.kind != TEXT:
        raise _wrong(term.column, "this has to be quoted text")
    return str(term.value)


def _text_test(kernel: Callable[..., Values], values: Term, pattern: str) -> Term:
    def evaluate(batch: pa.RecordBatch) -> Values:
        return pc.fill_null(kernel(values.evaluate(batch), pattern), False)

    return Term(TRUTH, evaluate, values.column)


TEXT_TESTS: dict[str, Callable[..., Values]] = {
    "contains": pc.match_substring,
    "startswith": pc.starts_with,
    "endswith": pc.ends_with,
    "matches": pc.match_substring_regex,
}
FUNCTIONS = (*TEXT_TESTS, "lower", "upper", "len", "abs")


def _call(node: ast.Call) -> Term:
    """`startswith(client_id, "x")`, and the same as `client_id.startswith("x")`."""
    name, arguments = _called(node)
    if node.keywords or len(arguments) != (2 if name in TEXT_TESTS else 1):
        raise _wrong(_at(node), f"{name} takes {'a column and a text' if name in TEXT_TESTS else 'one value'}")
    values = _term(arguments[0])
    if name in TEXT_TESTS:
        return _matched(name, values, _term(arguments[1]))
    if name == "len":
        return _length(values)
    wanted, kernel = {
        "lower": (TEXT, pc.utf8_lower),
        "upper": (TEXT, pc.utf8_upper),
        "abs": (NUMBER, pc.abs),
    }[name]
    if values.kind != wanted:
        raise _wrong(values.column, f"{name} takes {wanted}, {_shown(values)} is {values.kind}")
    return Term(wanted, lambda batch: kernel(values.evaluate(batch)), _at(node))


def _called(node: ast.Call) -> tuple[str, list[ast.expr]]:
    if isinstance(node.func, ast.Attribute):
        name, arguments = node.func.attr, [node.func.value, *node.args]
    elif isinstance(node.func, ast.Name):
        name, arguments = node.func.id, node.args
    else:
        raise _wrong(_at(node), "this is no function")
    if name not in FUNCTIONS:
        raise _wrong(_at(node), f"unknown function {name!r}{suggestion(name, FUNCTIONS)}")
    return name, arguments


def _matched(name: str, values: Term, pattern: Term) -> Term:
    if values.kind == LIST and name == "contains":
        return _in_list(pattern, values)
    if values.kind != TEXT:
        raise _wrong(values.column, f"{name} takes text, {_shown(values)} is {values.kind}")
    text = _text_constant(pattern)
    try:
        TEXT_TESTS[name](pa.array([""]), text)
    except pa.ArrowInvalid as error:
        reason = str(error).splitlines()[0].removeprefix("Invalid regular expression: ")
        raise _wrong(pattern.column, f"wrong regular expression: {reason}") from None
    return _text_test(TEXT_TESTS[name], values, text)


def _length(values: Term) -> Term:
    if values.kind == TEXT:
        return Term(NUMBER, lambda batch: pc.utf8_length(values.evaluate(batch)), values.column)
    if values.kind == LIST and values.name:
        return Term(NUMBER, lambda batch: pc.list_value_length(values.evaluate(batch)), values.column)
    raise _wrong(values.column, f"len takes text or a list, {_shown(values)} is {values.kind}")


_MAKERS: dict[type, Callable[[Any], Term]] = {
    ast.Constant: _constant,
    ast.Name: _name,
    ast.Attribute: _attribute,
    ast.BoolOp: _boolean,
    ast.UnaryOp: _unary,
    ast.BinOp: _arithmetic,
    ast.Compare: _comparison,
    ast.Call: _call,
}
