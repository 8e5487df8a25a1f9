"""Functions: tests of text, case, length, absolute value."""

from __future__ import annotations

import ast
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from kwsniff.cli.problem import suggestion
from kwsniff.cli.where.comparison import in_list, text_constant, text_test
from kwsniff.cli.where.term import LIST, NUMBER, TEXT, Term, Values, at, makes, shown, term_of, wrong

TEXT_TESTS: dict[str, Callable[..., Values]] = {
    "contains": pc.match_substring,
    "startswith": pc.starts_with,
    "endswith": pc.ends_with,
    "matches": pc.match_substring_regex,
}
FUNCTIONS = (*TEXT_TESTS, "lower", "upper", "len", "abs")


@makes(ast.Call)
def _call(node: ast.Call) -> Term:
    """`startswith(client_id, "x")`, and the same as `client_id.startswith("x")`."""
    name, arguments = _called(node)
    if node.keywords or len(arguments) != (2 if name in TEXT_TESTS else 1):
        raise wrong(at(node), f"{name} takes {'a column and a text' if name in TEXT_TESTS else 'one value'}")
    values = term_of(arguments[0])
    if name in TEXT_TESTS:
        return _matched(name, values, term_of(arguments[1]))
    if name == "len":
        return _length(values)
    wanted, kernel = {
        "lower": (TEXT, pc.utf8_lower),
        "upper": (TEXT, pc.utf8_upper),
        "abs": (NUMBER, pc.abs),
    }[name]
    if values.kind != wanted:
        raise wrong(values.column, f"{name} takes {wanted}, {shown(values)} is {values.kind}")
    return Term(wanted, lambda batch: kernel(values.evaluate(batch)), at(node))


def _called(node: ast.Call) -> tuple[str, list[ast.expr]]:
    if isinstance(node.func, ast.Attribute):
        name, arguments = node.func.attr, [node.func.value, *node.args]
    elif isinstance(node.func, ast.Name):
        name, arguments = node.func.id, node.args
    else:
        raise wrong(at(node), "this is no function")
    if name not in FUNCTIONS:
        raise wrong(at(node), f"unknown function {name!r}{suggestion(name, FUNCTIONS)}")
    return name, arguments


def _matched(name: str, values: Term, pattern: Term) -> Term:
    if values.kind == LIST and name == "contains":
        return in_list(pattern, values)
    if values.kind != TEXT:
        raise wrong(values.column, f"{name} takes text, {shown(values)} is {values.kind}")
    text = text_constant(pattern)
    try:
        TEXT_TESTS[name](pa.array([""]), text)
    except pa.ArrowInvalid as error:
        reason = str(error).splitlines()[0].removeprefix("Invalid regular expression: ")
        raise wrong(pattern.column, f"wrong regular expression: {reason}") from None
    return text_test(TEXT_TESTS[name], values, text)


def _length(values: Term) -> Term:
    if values.kind == TEXT:
        return Term(NUMBER, lambda batch: pc.utf8_length(values.evaluate(batch)), values.column)
    if values.kind == LIST and values.name:
        return Term(NUMBER, lambda batch: pc.list_value_length(values.evaluate(batch)), values.column)
    raise wrong(values.column, f"len takes text or a list, {shown(values)} is {values.kind}")
