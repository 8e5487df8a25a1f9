"""Fields of decoded bodies: `request.topics.name` is that field of every topic in the request.

The names are those of the dissectors. Bodies are JSON texts in EVENTS, there only with `--full`; a path goes
through lists by itself and gives every value it leads to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from kwsniff.similar import suggestion
from kwsniff.spec.load import catalog
from kwsniff.spec.model import Field
from kwsniff.where import wrong
from kwsniff.where.term import BODY, NUMBER, TEXT, TRUTH, Items, Term

BODIES = frozenset(("request", "response"))
OPAQUE = ("bytes", "records")
"""Types inside of which kwsniff may have read more than the message's own fields."""


def body_term(at: int, body: str, path: Sequence[str]) -> Term:
    """All values at `path` in a body. Raises WhereError if no message has such a field."""
    _check(at, body, path)
    name = ".".join((body, *path))
    return Term(BODY, lambda batch: batch[body], at, name=name, many=True, value=(body, tuple(path)))


def typed(term: Term, kind: str) -> Term:
    """The values of a body's field that are of `kind`."""
    if term.kind != BODY:
        return term
    body, path = term.value
    wanted, type_ = _PYTHON[kind]

    def evaluate(batch: pa.RecordBatch) -> Items:
        return _items(batch[body], path, wanted, type_)

    return Term(kind, evaluate, term.at, name=term.name, many=True)


_PYTHON: dict[str, tuple[Callable[[Any], bool], pa.DataType]] = {
    TEXT: (lambda value: isinstance(value, str), pa.string()),
    NUMBER: (lambda value: isinstance(value, int | float) and not isinstance(value, bool), pa.float64()),
    TRUTH: (lambda value: isinstance(value, bool), pa.bool_()),
}


def _items(
    texts: pa.Array, path: tuple[str, ...], wanted: Callable[[Any], bool], type_: pa.DataType
) -> Items:
    rows: list[int] = []
    values: list[Any] = []
    for row, text in enumerate(texts.to_pylist()):
        if text is not None:
            found = [value for value in _walked(orjson.loads(text), path) if wanted(value)]
            rows += [row] * len(found)
            values += found
    return Items(np.array(rows, np.int64), pa.array(values, type_), len(texts))


def _walked(value: Any, path: tuple[str, ...]) -> Iterator[Any]:
    if isinstance(value, list):
        for item in value:
            yield from _walked(item, path)
    elif not path:
        yield value
    elif isinstance(value, dict) and path[0] in value:
        yield from _walked(value[path[0]], path[1:])


def _check(at: int, body: str, path: Sequence[str]) -> None:
    fields = _fields(body)
    for depth, name in enumerate(path):
        found = [field for field in fields if field.name == name]
        if not found:
            where = ".".join((body, *path[:depth]))
            known = {field.name for field in fields}
            raise wrong(at, f"no message has {name!r} in {where}{suggestion(name, known)}")
        if any(field.type in OPAQUE for field in found):
            return
        fields = [inner for field in found for inner in field.fields]


@cache
def _fields(body: str) -> list[Field]:
    return [field for api in catalog().apis.values() for field in api.message(body).fields]
