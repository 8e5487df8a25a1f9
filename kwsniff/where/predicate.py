"""From the text of an expression to a function that says which rows of a batch it holds for."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from kwsniff.where import (  # each registers its makers
    WhereError,
    comparison,
    function,
    name,
    operators,
    wrong,
)
from kwsniff.where.moment import bounded
from kwsniff.where.name import columns_of
from kwsniff.where.parser import parse
from kwsniff.where.term import TRUTH, ZONE, Term, column_term, term_of
from kwsniff.where.zones import zone

__all__ = ["Predicate", "columns_in", "comparison", "compile_where", "function", "name", "operators"]

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
