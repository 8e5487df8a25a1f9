"""and, or, not, and arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from kwsniff.where.term import (
    NUMBER,
    TRUTH,
    Term,
    Values,
    constant_term,
    fitted,
    makes,
    negated,
    number,
    truth,
)
from kwsniff.where.tree import Binary, Node, Unary


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
