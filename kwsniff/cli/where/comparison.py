"""Comparisons: order and equality, presence (None), and what is in what."""

from __future__ import annotations

import ast
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kwsniff.cli.where.term import (
    LIST,
    NOTHING,
    TEXT,
    TRUTH,
    Term,
    Values,
    as_times,
    at,
    check_value,
    makes,
    shown,
    term_of,
    wrong,
)


@makes(ast.Compare)
def _comparison(node: ast.Compare) -> Term:
    terms: list[Term] = []
    left = node.left
    for op, right in zip(node.ops, node.comparators, strict=True):
        terms.append(
            _membership(op, left, right) if isinstance(op, ast.In | ast.NotIn) else _ordered(op, left, right)
        )
        left = right

    def evaluate(batch: pa.RecordBatch) -> Values:
        result = terms[0].evaluate(batch)
        for term in terms[1:]:
            result = pc.and_(result, term.evaluate(batch))
        return result

    return Term(TRUTH, evaluate, at(node))


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
    left, right = term_of(left_node), term_of(right_node)
    differs = isinstance(op, ast.NotEq | ast.IsNot)
    if NOTHING in (left.kind, right.kind):
        return _presence(left if right.kind == NOTHING else right, op, differs)
    if isinstance(op, ast.Is | ast.IsNot):
        raise wrong(right.column, "`is` compares with None only; write ==")
    left, right = as_times(left, right)
    if left.kind != right.kind or left.kind == LIST:
        raise wrong(right.column, mismatch(left, right))
    check_value(left, right)
    check_value(right, left)
    compute = COMPARISONS[type(op)]

    def evaluate(batch: pa.RecordBatch) -> Values:
        return pc.fill_null(compute(left.evaluate(batch), right.evaluate(batch)), differs)

    return Term(TRUTH, evaluate, left.column)


def mismatch(left: Term, right: Term) -> str:
    if left.kind == LIST or right.kind == LIST:
        lists = left if left.kind == LIST else right
        return (
            f'{shown(lists)} is a list; write "value" in {lists.name or "it"}, or len({lists.name or "it"})'
        )
    return f"{shown(left)} is {left.kind}, {shown(right)} is {right.kind}"


def _presence(term: Term, op: ast.cmpop, differs: bool) -> Term:
    if not isinstance(op, ast.Eq | ast.NotEq | ast.Is | ast.IsNot):
        raise wrong(term.column, "None can only be compared with == and !=")
    if not term.name:
        raise wrong(term.column, "only a column can be compared with None")
    test = pc.is_valid if differs else pc.is_null
    return Term(TRUTH, lambda batch: test(term.evaluate(batch)), term.column)


def _membership(op: ast.cmpop, left_node: ast.expr, right_node: ast.expr) -> Term:
    test = _found(term_of(left_node), right_node)
    if isinstance(op, ast.In):
        return test
    return Term(TRUTH, lambda batch: pc.invert(test.evaluate(batch)), test.column)


def _found(left: Term, right_node: ast.expr) -> Term:
    if isinstance(right_node, ast.List | ast.Tuple | ast.Set):
        return _one_of(left, right_node.elts)
    right = term_of(right_node)
    if right.kind == LIST:
        return in_list(left, right)
    if right.kind == TEXT and left.kind == TEXT:
        needle = text_constant(left)
        return text_test(pc.match_substring, right, needle)
    raise wrong(right.column, f"cannot look for {shown(left)} in {shown(right)}, which is {right.kind}")


def _one_of(left: Term, nodes: list[ast.expr]) -> Term:
    choices = [term_of(node) for node in nodes]
    for index, choice in enumerate(choices):
        if not choice.constant or choice.kind == NOTHING:
            raise wrong(choice.column, "the list after `in` takes numbers and quoted texts only")
        _, choices[index] = as_times(left, choice)
        if choices[index].kind != left.kind:
            raise wrong(choice.column, mismatch(left, choices[index]))
        check_value(left, choice)
    scalars = [choice.evaluate(None) for choice in choices]

    def evaluate(batch: pa.RecordBatch) -> Values:
        values = left.evaluate(batch)
        result: Values = pa.scalar(False)
        for scalar in scalars:
            result = pc.or_(result, pc.fill_null(pc.equal(values, scalar), False))
        return result

    return Term(TRUTH, evaluate, left.column)


def in_list(left: Term, right: Term) -> Term:
    if not left.constant or left.kind != right.item:
        raise wrong(left.column, f"{shown(right)} holds items that are {right.item}, {shown(left)} is not")
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


def text_constant(term: Term) -> str:
    if not term.constant or term.kind != TEXT:
        raise wrong(term.column, "this has to be quoted text")
    return str(term.value)


def text_test(kernel: Callable[..., Values], values: Term, pattern: str) -> Term:
    def evaluate(batch: pa.RecordBatch) -> Values:
        return pc.fill_null(kernel(values.evaluate(batch), pattern), False)

    return Term(TRUTH, evaluate, values.column)
