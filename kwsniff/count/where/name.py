"""Names: columns, short names of what is asked most, parts of list columns, fields of bodies.

`topic` is each of the call's topics; `client` and `broker` are an end of the connection, `client` also what
it calls itself; `latency` is `latency_us`, and so for every column that ends in a unit of time.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from kwsniff.count.where import wrong
from kwsniff.count.where.parser import Binary, Call, Comparison, Listing, NameNode, Node, Unary
from kwsniff.count.where.term import (
    BODY,
    LIST,
    NUMBER,
    TEXT,
    TRUTH,
    Items,
    Term,
    Values,
    column_term,
    items_of,
    kind_of,
    makes,
)
from kwsniff.output import suggestion
from kwsniff.rows.events import (
    ANOMALIES,
    ANOMALY,
    CALL,
    CLOSED_BY,
    CONNECTION,
    SECURITY,
    STATUSES,
    UNANSWERED_REASONS,
)
from kwsniff.rows.schema import COLUMNS, ITEMS
from kwsniff.spec.load import catalog
from kwsniff.spec.model import Field

# Fields of decoded bodies: `request.topics.name` is that field of every topic in the request.
#
# The names are those of the dissectors. Bodies are JSON texts in EVENTS, there only with `--full`; a path
# goes through lists by itself and gives every value it leads to.

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


CLOSED_SETS: dict[str, Callable[[], list[str]]] = {
    "event": lambda: [CALL, ANOMALY, CONNECTION],
    "status": lambda: list(STATUSES),
    "unanswered_because": lambda: list(UNANSWERED_REASONS),
    "security": lambda: list(SECURITY),
    "closed_by": lambda: list(CLOSED_BY),
    "code": lambda: list(ANOMALIES),
    "api": lambda: [api.name for api in catalog().apis.values()],
    "error": lambda: [error.name for error in catalog().errors.values()],
}
"""Columns whose every value is known: comparing them with another is a slip of the pen."""

SHORT = {
    "topic": "each topic of the call, by name or uuid",
    "topic_id": "each topic's uuid",
    "partition": "each partition's index",
    "client": "client_id, or client_ip and client_port where it is compared with an address",
    "broker": "broker_ip and broker_port as `ip:port`; an address without port is compared with broker_ip",
    "group": "group_id",
    "member": "member_id",
    "version": "api_version",
}
"""Names that are no columns."""
ALIASES = {"group": "group_id", "member": "member_id", "version": "api_version"}
ALIASES |= {
    column.name[:-3]: column.name
    for column in COLUMNS
    if column.name[-3:] in ("_us", "_ms") and column.name[:-3] not in SHORT
}
_NAMES = frozenset(column.name for column in COLUMNS)
_PART_TYPES = {name: {field.name: field for field in fields} for name, fields in ITEMS.items()}
_NEEDED = {
    "topic": ("topics", "topic_ids"),
    "topic_id": ("topic_ids",),
    "partition": ("partitions",),
    "client": ("client_id", "client_ip", "client_port"),
    "broker": ("broker_ip", "broker_port"),
}


@makes(NameNode)
def _named(node: NameNode) -> Term:
    first, *rest = node.parts
    if first in BODIES and rest:
        return body_term(node.at, first, rest)
    if not rest:
        return _column(first, node.at)
    return _part(node.at, first, rest)


def _column(name: str, at: int) -> Term:
    if name in _MANY:
        return Term(_KINDS[name], _MANY[name], at, many=True, name=name)
    if name in _ENDS:
        return Term(TEXT, _ENDS[name], at, name=name)
    name = ALIASES.get(name, name)
    if name not in _NAMES:
        raise wrong(at, f"unknown column {name!r}{_meant(name)}")
    return replace(column_term(name, at), values=CLOSED_SETS.get(name))


def _meant(name: str) -> str:
    for column, values in CLOSED_SETS.items():
        if name in values():
            return f'; a value of {column} is written "{name}"'
    return suggestion(name, [*_NAMES, *SHORT, *ALIASES])


def _part(at: int, name: str, rest: list[str]) -> Term:
    """`partitions.error_code`: one field of each item of a list."""
    fields = _PART_TYPES.get(name)
    if fields is None or len(rest) > 1:
        if name not in _NAMES and name not in SHORT:
            raise wrong(at, f"unknown column {name!r}{_meant(name)}")
        raise wrong(at, f"{name} has no parts")
    if rest[0] not in fields:
        raise wrong(at, f"{name} has no {rest[0]!r}{suggestion(rest[0], fields)}")
    field = fields[rest[0]]
    return Term(LIST, _field(name, rest[0]), at, item=kind_of(field.type), unit=field.unit)


def _field(name: str, part: str) -> Callable[[pa.RecordBatch], Items]:
    def evaluate(batch: pa.RecordBatch) -> Items:
        lists = batch[name]
        # The items of a null list may be left in the child array; their parents tell which ones count.
        return items_of(lists, pc.struct_field(pc.list_flatten(lists), part))

    return evaluate


def _topics(batch: pa.RecordBatch) -> Items:
    names, ids = items_of(batch["topics"]), items_of(batch["topic_ids"])
    rows = [names.rows, ids.rows]
    return Items(np.concatenate(rows), pa.concat_arrays([names.values, ids.values]), len(batch))


def endpoint(side: str) -> Callable[[pa.RecordBatch], Values]:
    """`ip:port` of one end of the connection, with brackets around an IPv6 address."""

    def evaluate(batch: pa.RecordBatch) -> Values:
        address, port = batch[f"{side}_ip"], batch[f"{side}_port"].cast(pa.string())
        colons = pc.match_substring(address, ":")
        address = pc.if_else(colons, pc.binary_join_element_wise("[", address, "]", ""), address)
        return pc.binary_join_element_wise(address, port, ":")

    return evaluate


_MANY: dict[str, Callable[[pa.RecordBatch], Items]] = {
    "topic": _topics,
    "topic_id": lambda batch: items_of(batch["topic_ids"]),
    "partition": _field("partitions", "partition"),
}
_KINDS = {"topic": TEXT, "topic_id": TEXT, "partition": "a number"}
_ENDS: dict[str, Callable[[pa.RecordBatch], Values]] = {
    "client": operator.itemgetter("client_id"),
    "broker": endpoint("broker"),
}


def columns_of(node: Node) -> Iterator[str]:
    """The columns of EVENTS that an expression looks at, some of them more than once."""
    if isinstance(node, NameNode):
        name = ALIASES.get(node.parts[0], node.parts[0])
        yield from _NEEDED.get(name, (name,))
    for child in _children(node):
        yield from columns_of(child)


def _children(node: Node) -> tuple[Node, ...]:
    if isinstance(node, Call):
        return node.arguments
    if isinstance(node, Listing):
        return node.items
    if isinstance(node, Comparison):
        return node.operands
    if isinstance(node, Binary):
        return node.left, node.right
    return (node.operand,) if isinstance(node, Unary) else ()
