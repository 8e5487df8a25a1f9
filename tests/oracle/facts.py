"""What an event takes from one body: the fields with roles, read by the product's plain interpreter.

`kwsniff.spec.interpret` follows a layout field by field. Here each field is looked at as it is read, in the
order of the wire, and what its roles say is kept. Record data is given as a span of the buffer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from kwsniff.config import MAX_ELEMENTS
from kwsniff.spec import compile as product
from kwsniff.spec.interpret import BodyReader
from kwsniff.spec.model import WIDTHS, Item, Layout, forgets

ZERO = "00000000-0000-0000-0000-000000000000"
TOPICS = {"topic", "topic_id"}
SCALARS = ("throttle", "acks", "max_wait", "min_bytes", "group", "member", "transactional_id")
"""Roles of which the first value counts, in the order of `Facts`."""
EXTRA = (
    *("software_name", "software_version", "mechanism", "auth_bytes", "session_id", "session_epoch"),
    *("protocol_type", "coordinator_key", "coordinator_type"),
)


class PartitionFacts(NamedTuple):
    """One element of a message that names a partition (role `partition`)."""

    topic: str | None
    topic_id: str | None
    partition: int
    error_code: int | None
    base_offset: int | None
    records_start: int
    """First byte of the record data in the buffer; -1 if the field is null or the message has none."""
    records_end: int


class Facts(NamedTuple):
    """Everything an event takes from one body. None: the message has no such field, or it was null."""

    error_code: int | None
    """First non-zero error code, 0 if the message has error fields and all are zero."""
    error_count: int
    throttle_ms: int | None
    acks: int | None
    max_wait_ms: int | None
    min_bytes: int | None
    group_id: str | None
    member_id: str | None
    transactional_id: str | None
    topics: list[str | None] | None
    """Each topic once, in order; None inside where only its uuid is given."""
    topic_ids: list[str | None] | None
    """Parallel to `topics`; the whole list is None where the message gives no uuid."""
    partitions: list[PartitionFacts] | None
    extra: dict[str, object] | None
    """Rare roles by name: software_name, software_version, mechanism, auth_bytes, session_id, ..."""


NO_FACTS = Facts(None, 0, *[None] * 11)


@dataclass
class Scope:
    """What one struct said until now, by role; topic and uuid are also those of the structs around it."""

    topic: str | None = None
    topic_id: str | None = None
    own: dict[str, Any] = field(default_factory=dict)
    errors: list[int] = field(default_factory=list)


class FactsReader(BodyReader):
    """Reads one body and gathers its facts."""

    def __init__(self, buf: bytes, pos: int, end: int, max_elements: int) -> None:
        super().__init__(buf, pos, end, facts=True)
        self.left = max_elements
        self.scope = Scope()
        self.first: dict[str, Any] = {}
        self.errors: list[int] = []
        self.topics: list[tuple[str | None, str | None]] = []
        self.no_topics = False
        self.partitions: list[PartitionFacts] = []
        self.brokers: list[tuple[Any, ...]] = []

    def inside(self) -> Scope:
        """Enter a scope of its own; returns the one to come back to."""
        outer, self.scope = self.scope, Scope(self.scope.topic, self.scope.topic_id)
        return outer

    def struct(self, items: tuple[Item, ...], flexible: bool, path: str, end: int) -> dict[str, Any]:
        outer = self.inside()
        found = super().struct(items, flexible, path, end)
        self.close(forgets(items))
        self.scope = outer
        return found

    def field(self, item: Item, path: str, end: int) -> Any:
        outer = self.inside() if item.tag is not None else self.scope
        found = super().field(item, path, end)
        if item.array:
            names_topics = TOPICS & {role for one in (item, *item.items) for role in one.roles}
            self.no_topics |= found is None and bool(names_topics)
            self.count(item, len(found or ()), path)
        elif item.type != "struct":
            self.note(item, found)
        self.scope = outer
        return found

    def count(self, item: Item, elements: int, path: str) -> None:
        """Of plain numbers the interpreter counts one in eight, but here each becomes a row."""
        if item.type in WIDTHS and item.type != "uuid":
            self.left -= elements - (elements >> 3)
        if self.left < 0:
            raise self.fail("element_limit", path)

    def element(self, item: Item, path: str, end: int) -> Any:
        found = super().element(item, path, end)
        if item.type != "struct":
            outer = self.inside()
            self.note(item, found)
            self.close(False)
            self.scope = outer
        return found

    def value(self, item: Item, path: str, end: int, element: bool = False) -> Any:
        found = super().value(item, path, end, element)
        return found if item.type != "records" or found is None else (self.pos - len(found), self.pos)

    def note(self, item: Item, value: Any) -> None:
        """Keep the value of a field for each of its roles."""
        if "topic_id" in item.roles and value == ZERO:
            value = None
        for role in item.roles:
            self.scope.own[role] = value
            if value is not None:
                self.first.setdefault(role, value)
            if role == "error":
                self.scope.errors.append(value)
                self.errors += [value] if value else []
            elif role in TOPICS:
                setattr(self.scope, role, value)

    def close(self, forgotten: bool) -> None:
        """What a struct, or an element that stands for one, adds to the lists."""
        scope, own = self.scope, self.scope.own
        if TOPICS & own.keys() and not forgotten:
            self.topics.append((own.get("topic"), own.get("topic_id")))
        if "partition" in own:
            error = next(filter(None, scope.errors), 0) if scope.errors else None
            names, span = (scope.topic, scope.topic_id), own.get("records") or (-1, -1)
            self.partitions.append(
                PartitionFacts(*names, own["partition"], error, own.get("base_offset"), *span)
            )
        if "node_id" in own:
            self.brokers.append((own["node_id"], own.get("host"), own.get("port")))

    def gathered(self, layout: Layout) -> Facts:
        """All that was gathered, of the roles that the layout has."""
        roles = _roles(layout.items)
        pairs = list(dict.fromkeys(self.topics))
        named = bool(TOPICS & roles) and not (self.no_topics and not pairs)
        extra = {role: self.first[role] for role in EXTRA if role in self.first}
        extra |= {"brokers": self.brokers} if self.brokers else {}
        return Facts(
            (self.errors or [0])[0] if "error" in roles else None,
            len(self.errors),
            *(self.first.get(role) for role in SCALARS),
            [name for name, _ in pairs] if named else None,
            [uuid for _, uuid in pairs] if named and "topic_id" in roles else None,
            self.partitions if "partition" in roles else None,
            extra or None,
        )


def _roles(items: tuple[Item, ...]) -> set[str]:
    return {role for item in items for role in (*item.roles, *_roles(item.items))}


def read_facts(
    layout: Layout, buf: bytes, pos: int, end: int, max_elements: int = MAX_ELEMENTS
) -> tuple[Facts, int]:
    """The facts of the body in `buf[pos:end]`, and the position behind it; raises DecodeError."""
    reader = FactsReader(buf, pos, end, max_elements)
    reader.struct(layout.items, layout.flexible, "", end)
    return reader.gathered(layout), reader.pos


def decoder(api_key: int, version: int, direction: str, projection: str) -> Callable[..., tuple[Any, int]]:
    """Of either projection, `full` (the product's) or `facts`."""
    if projection == "full":
        return product.decoder(api_key, version, direction)
    return partial(read_facts, product.layout(api_key, version, direction))
