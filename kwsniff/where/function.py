"""Functions: tests of text, case, length, absolute value."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow.compute as pc

from kwsniff.similar import suggestion
from kwsniff.where import wrong
from kwsniff.where.body import typed
from kwsniff.where.comparison import in_list, text_test
from kwsniff.where.term import BODY, LIST, NUMBER, TEXT, Term, Values, makes, shown, term_of
from kwsniff.where.tree import Call

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
