"""Filters that Spark hands to a data source, as tests on Arrow batches: what fails never leaves the worker.

Theory of operation. A test is taken over only if Arrow decides it as Spark does: comparisons of texts, whole
numbers and times with a constant, and lists of such constants. Null fails every test, as in SQL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import datasource

Test = tuple[str, str, Any]
"""Operator, column and value, or values."""

_TESTS: dict[str, Callable[..., Any]] = {
    "EqualTo": pc.equal,
    "GreaterThan": pc.greater,
    "GreaterThanOrEqual": pc.greater_equal,
    "LessThan": pc.less,
    "LessThanOrEqual": pc.less_equal,
}


class Tests:
    """The tests that a reader took over."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._tests: list[Test] = []

    @property
    def columns(self) -> frozenset[str]:
        """Columns that the tests ask for."""
        return frozenset(column for _, column, _ in self._tests)

    def take(self, filters: Iterable[datasource.Filter]) -> Iterable[datasource.Filter]:
        """Take over what can be; yields the rest, which is Spark's."""
        for each in filters:
            test = self._test(each)
            if test is None:
                yield each
            else:
                self._tests.append(test)

    def passing(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that pass all tests."""
        for operator, name, value in self._tests:
            column = batch[name]
            if operator == "IsNotNull":
                mask = column.is_valid()
            elif operator == "In":
                mask = pc.is_in(column, value_set=pa.array(value, column.type))
                mask = pc.and_(mask, column.is_valid())
            else:
                mask = _TESTS[operator](column, pa.scalar(value, column.type))
            batch = batch.filter(mask)
        return batch

    def values(self, column: str) -> frozenset[Any] | None:
        """All that a column may be equal to, None if that is open."""
        found: frozenset[Any] | None = None
        for operator, name, value in self._tests:
            if name == column and operator in ("EqualTo", "In"):
                values = frozenset(value if operator == "In" else (value,))
                found = values if found is None else found & values
        return found

    def upper(self, column: str) -> Any:
        """What a column is at most, None if that is open."""
        bounds = [
            value
            for operator, name, value in self._tests
            if name == column and operator in ("EqualTo", "LessThan", "LessThanOrEqual")
        ]
        return min(bounds, default=None)

    def _test(self, given: datasource.Filter) -> Test | None:
        operator = type(given).__name__
        path: Sequence[str] = getattr(given, "attribute", ())
        value = getattr(given, "value", None)
        if len(path) != 1 or path[0] not in self._schema.names:
            return None
        if operator == "IsNotNull":
            return operator, path[0], None
        if operator not in _TESTS and operator != "In":
            return None
        kind = self._schema.field(path[0]).type
        values = list(value) if operator == "In" and isinstance(value, tuple | list) else [value]
        fits = all(_fits(each, kind) for each in values)
        return (operator, path[0], values if operator == "In" else value) if fits else None


def _fits(value: Any, kind: pa.DataType) -> bool:
    if isinstance(value, str):
        return bool(pa.types.is_string(kind))
    if isinstance(value, datetime):
        return bool(pa.types.is_timestamp(kind)) and value.tzinfo is not None
    return isinstance(value, int) and not isinstance(value, bool) and bool(pa.types.is_integer(kind))
