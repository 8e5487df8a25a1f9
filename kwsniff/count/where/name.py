"""Terms, what the parts of an expression mean, and those of names: columns, short names of what is asked
most, parts of list columns, fields of bodies.

`topic` is each of the call's topics; `client` and `broker` are an end of the connection, `client` also what
it calls itself; `latency` is `latency_us`, and so for every column that ends in a unit of time.

A term with `many` stands for several values of a row, such as the names of its topics: a test holds if it
holds for one of them. Its `evaluate` gives `Items` instead of an array.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from kwsniff.count.where import WhereError, wrong
from kwsniff.count.where.parser import Node
from kwsniff.output import suggestion
from kwsniff.rows.columns import Ints
from kwsniff.rows.events import (
    ANOMALIES,
    ANOMALY,
    CALL,
    CLOSED_BY,
    CONNECTION,
    EXCHANGE,
    SECURITY,
    STATUSES,
    UNANSWERED_REASONS,
)
from kwsniff.rows.schema import COLUMNS, ITEMS
from kwsniff.spec.load import catalog
from kwsniff.spec.model import Field

Values = Any
"""An Arrow array as long as the batch, a scalar, or Items."""
Evaluate = Callable[[pa.RecordBatch], Values]

NUMBER, TEXT, TRUTH, TIME, LIST, NOTHING = "a number", "text", "true or false", "a time", "a list", "None"
CLOCK, NETWORK, BODY = "a time of day", "an address", "a field of a body"


class Items(NamedTuple):
    """Several values a row: `rows[i]` is the row of `values[i]`, of `total` rows in all."""

    rows: Ints
    values: pa.Array
    total: int


@dataclass(frozen=True, slots=True)
class Term:
    """A part of the expression: what kind of value it gives, and how to get it from a batch."""

    kind: str
    evaluate: Evaluate
    at: int
    """Position in the expression, from 1."""
    item: str = ""
    """Kind of a list's items."""
    name: str = ""
    """The event column, or short name, where the term is nothing else."""
    unit: str = ""
    """As `kwsniff.rows.schema` has it; of a constant `µs` or `bytes` if one was written."""
    many: bool = False
    """Several values a row."""
    constant: bool = False
    value: Any = None
    """Of a constant; of a body's field which body, and the path in it."""

    @property
    def shown(self) -> str:
        """How an error message calls it."""
        return self.name or (repr(self.value) if self.constant and self.kind != NOTHING else "this")

    def wrong(self, message: str) -> WhereError:
        """The error for a mistake in it."""
        return wrong(self.at, message)


def kind_of(type_: pa.DataType) -> str:
    """The kind of an Arrow type."""
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


def items_of(lists: pa.Array, part: str = "") -> Items:
    """What the lists of a column hold, or that field of it."""
    # The items of a null list may be left in the child array; their parents tell which ones count.
    rows = pc.list_parent_indices(lists).to_numpy(zero_copy_only=False).astype(np.int64)
    values = pc.list_flatten(lists)
    return Items(rows, pc.struct_field(values, part) if part else values, len(lists))


def _topics(batch: pa.RecordBatch) -> Items:
    names, ids = items_of(batch["topics"]), items_of(batch["topic_ids"])
    values = pa.concat_arrays([names.values, ids.values])
    return Items(np.concatenate([names.rows, ids.rows]), values, len(batch))


def endpoint(side: str) -> Evaluate:
    """`ip:port` of one end of the connection, with brackets around an IPv6 address."""

    def evaluate(batch: pa.RecordBatch) -> Values:
        address, port = batch[f"{side}_ip"], batch[f"{side}_port"].cast(pa.string())
        colons = pc.match_substring(address, ":")
        address = pc.if_else(colons, pc.binary_join_element_wise("[", address, "]", ""), address)
        return pc.binary_join_element_wise(address, port, ":")

    return evaluate


class Short(NamedTuple):
    """A name that is no column."""

    meaning: str
    columns: tuple[str, ...]
    """Those of EVENTS that it looks at."""
    evaluate: Evaluate
    kind: str = TEXT
    many: bool = False


SHORT_NAMES = {
    "topic": Short(
        "each topic of the call, by name or uuid", ("topics", "topic_ids"), _topics, many=True
    ),
    "topic_id": Short(
        "each topic's uuid", ("topic_ids",), lambda batch: items_of(batch["topic_ids"]), many=True
    ),
    "partition": Short(
        "each partition's index", ("partitions",),
        lambda batch: items_of(batch["partitions"], "partition"), NUMBER, many=True,
    ),
    "client": Short(
        "client_id, or client_ip and client_port where it is compared with an address",
        ("client_id", "client_ip", "client_port"), operator.itemgetter("client_id"),
    ),
    "broker": Short(
        "broker_ip and broker_port as `ip:port`; an address without port is compared with broker_ip",
        ("broker_ip", "broker_port"), endpoint("broker"),
    ),
}  # fmt: skip
ALIASES = {"group": "group_id", "member": "member_id", "version": "api_version"}
"""Names of columns that are shorter."""
SHORT = {name: short.meaning for name, short in SHORT_NAMES.items()} | ALIASES
"""What each short name means."""
ALIASES |= {
    column.name[:-3]: column.name
    for column in COLUMNS
    if column.name[-3:] in ("_us", "_ms") and column.name[:-3] not in SHORT
}
_COLUMNS = {column.name: column for column in COLUMNS}
_PARTS = {name: {field.name: field for field in fields} for name, fields in ITEMS.items()}

CLOSED_SETS: dict[str, Callable[[], list[str]]] = {
    "event": lambda: [CALL, EXCHANGE, ANOMALY, CONNECTION],
    "status": lambda: list(STATUSES),
    "unanswered_because": lambda: list(UNANSWERED_REASONS),
    "security": lambda: list(SECURITY),
    "closed_by": lambda: list(CLOSED_BY),
    "code": lambda: list(ANOMALIES),
    "api": lambda: [api.name for api in catalog().apis.values()],
    "error": lambda: [error.name for error in catalog().errors.values()],
}
"""Columns whose every value is known: comparing them with another is a slip of the pen."""


def check_value(column: Term, constant: Term) -> None:
    """Raise WhereError if the column can never have that value."""
    if column.name not in CLOSED_SETS or not constant.constant or constant.kind != TEXT:
        return
    known = CLOSED_SETS[column.name]()
    if constant.value not in known:
        hint = suggestion(str(constant.value), known) or f" (it is one of {', '.join(known[:10])})"
        raise constant.wrong(f"{column.name} is never {constant.value!r}{hint}")


def named(node: Node) -> Term:
    """What a name stands for. Raises WhereError."""
    first, *rest = node.value
    if rest and first in BODIES:
        return _field(node.at, first, rest)
    name = ALIASES.get(first, first)
    if name not in _COLUMNS and name not in SHORT:
        raise wrong(node.at, f"unknown column {name!r}{_meant(name)}")
    if rest:
        return _part(node.at, first, rest)
    if name in SHORT_NAMES:
        short = SHORT_NAMES[name]
        return Term(short.kind, short.evaluate, node.at, name=name, many=short.many)
    return column_term(name, node.at)


def column_term(name: str, at: int) -> Term:
    """A column of EVENTS."""
    column = _COLUMNS[name]
    item = kind_of(column.type.value_type) if pa.types.is_list(column.type) else ""
    evaluate = operator.itemgetter(name)
    return Term(kind_of(column.type), evaluate, at, item=item, name=name, unit=column.unit)


def _meant(name: str) -> str:
    for column, values in CLOSED_SETS.items():
        if name in values():
            return f'; a value of {column} is written "{name}"'
    return suggestion(name, [*_COLUMNS, *SHORT, *ALIASES])


def _part(at: int, name: str, rest: list[str]) -> Term:
    """`partitions.error_code`: one field of each item of a list."""
    fields = _PARTS.get(name)
    if fields is None or len(rest) > 1:
        raise wrong(at, f"{name} has no parts")
    field = fields.get(rest[0])
    if field is None:
        raise wrong(at, f"{name} has no {rest[0]!r}{suggestion(rest[0], fields)}")
    part = field.name
    return Term(
        LIST, lambda batch: items_of(batch[name], part), at, item=kind_of(field.type), unit=field.unit
    )


def columns_of(node: Node) -> Iterator[str]:
    """The columns of EVENTS that an expression looks at, some of them more than once."""
    if node.kind == "name":
        name = ALIASES.get(node.value[0], node.value[0])
        yield from SHORT_NAMES[name].columns if name in SHORT_NAMES else (name,)
    for item in node.items:
        yield from columns_of(item)


# Fields of decoded bodies: `request.topics.name` is that field of every topic in the request.
#
# The names are those of the dissectors. Bodies are JSON texts in EVENTS, there only with `--full`; a path
# goes through lists by itself and gives every value it leads to.

BODIES = frozenset(("request", "response"))
OPAQUE = ("bytes", "records")
"""Types inside of which kwsniff may have read more than the message's own fields."""
_PYTHON: dict[str, tuple[Callable[[Any], bool], pa.DataType]] = {
    TEXT: (lambda value: isinstance(value, str), pa.string()),
    NUMBER: (lambda value: isinstance(value, int | float) and not isinstance(value, bool), pa.float64()),
    TRUTH: (lambda value: isinstance(value, bool), pa.bool_()),
}


def _field(at: int, body: str, path: Sequence[str]) -> Term:
    """All values at `path` in a body, whose kind is that of what they are compared with: see `typed`."""
    fields = _fields(body)
    for depth, name in enumerate(path):
        found = [field for field in fields if field.name == name]
        if not found:
            where = ".".join((body, *path[:depth]))
            known = {field.name for field in fields}
            raise wrong(at, f"no message has {name!r} in {where}{suggestion(name, known)}")
        if any(field.type in OPAQUE for field in found):
            break
        fields = [inner for field in found for inner in field.fields]
    name = ".".join((body, *path))
    return Term(BODY, operator.itemgetter(body), at, name=name, many=True, value=(body, tuple(path)))


@cache
def _fields(body: str) -> list[Field]:
    return [field for api in catalog().apis.values() for field in api.message(body).fields]


def typed(term: Term, kind: str) -> Term:
    """The values of a body's field that are of `kind`; any other term as it is."""
    if term.kind != BODY or kind not in _PYTHON:
        return term
    body, path = term.value
    wanted, type_ = _PYTHON[kind]

    def evaluate(batch: pa.RecordBatch) -> Items:
        rows: list[int] = []
        values: list[Any] = []
        for row, text in enumerate(batch[body].to_pylist()):
            if text is not None:
                found = [value for value in _walked(orjson.loads(text), path) if wanted(value)]
                rows += [row] * len(found)
                values += found
        return Items(np.array(rows, np.int64), pa.array(values, type_), len(batch))

    return Term(kind, evaluate, term.at, name=term.name, many=True)


def _walked(value: Any, path: tuple[str, ...]) -> Iterator[Any]:
    if isinstance(value, list):
        for item in value:
            yield from _walked(item, path)
    elif not path:
        yield value
    elif isinstance(value, dict) and path[0] in value:
        yield from _walked(value[path[0]], path[1:])
