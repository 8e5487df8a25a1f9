"""and, or, not, and arithmetic."""

from __future__ import annotations

import ast
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from kwsniff.cli.where.term import (
    NUMBER,
    TRUTH,
    Term,
    Values,
    at,
    constant_term,
    makes,
    number,
    shown,
    term_of,
    wrong,
)


@makes(ast.BoolOp)
def _boolean(node: ast.BoolOp) -> Term:
    terms = [truth(value) for value in node.values]
    combine = pc.and_ if isinstance(node.op, ast.And) else pc.or_

    def evaluate(batch: pa.RecordBatch) -> Values:
        result = terms[0].evaluate(batch)
        for term in terms[1:]:
            result = combine(result, term.evaluate(batch))
        return result

    return Term(TRUTH, evaluate, at(node))


def truth(node: ast.expr) -> Term:
    term = term_of(node)
    if term.kind != TRUTH:
        raise wrong(term.column, f"{shown(term)} is {term.kind}, not true or false")
    return _whole(term)


def _whole(term: Term) -> Term:
    """The same without nulls: a boolean column that has no value counts as false."""
    return Term(TRUTH, lambda batch: pc.fill_null(term.evaluate(batch), False), term.column)


@makes(ast.UnaryOp)
def _unary(node: ast.UnaryOp) -> Term:
    if isinstance(node.op, ast.Not):
        term = truth(node.operand)
        return Term(TRUTH, lambda batch: pc.invert(term.evaluate(batch)), at(node))
    if isinstance(node.op, ast.Invert):
        raise wrong(at(node), "~ is not part of the language; write not")
    term = number(node.operand)
    if isinstance(node.op, ast.UAdd):
        return term
    if term.constant:
        return constant_term(-term.value, at(node))
    return Term(NUMBER, lambda batch: pc.negate(term.evaluate(batch)), at(node))


# Integers are taken as 64-bit, so that the sum of two columns cannot wrap; a quotient is always a fraction.
ARITHMETIC: dict[type, Callable[[Values, Values], Values]] = {
    ast.Add: pc.add,
    ast.Sub: pc.subtract,
    ast.Mult: pc.multiply,
    ast.Div: lambda left, right: pc.divide(left.cast(pa.float64()), right.cast(pa.float64())),
}


@makes(ast.BinOp)
def _arithmetic(node: ast.BinOp) -> Term:
    compute = ARITHMETIC.get(type(node.op))
    if compute is None:
        if isinstance(node.op, ast.BitAnd | ast.BitOr):
            word = "and" if isinstance(node.op, ast.BitAnd) else "or"
            raise wrong(at(node), f"& and | are not part of the language; write {word}")
        raise wrong(at(node), "arithmetic knows + - * / only")
    left, right = number(node.left), number(node.right)

    def evaluate(batch: pa.RecordBatch) -> Values:
        return compute(_wide(left.evaluate(batch)), _wide(right.evaluate(batch)))

    return Term(NUMBER, evaluate, at(node))


def _wide(values: Values) -> Values:
    return values.cast(pa.int64()) if pa.types.is_integer(values.type) else values
