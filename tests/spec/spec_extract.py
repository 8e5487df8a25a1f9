"""What the facts projection should find in a decoded body: a plain walk over the dict, for comparison.

It knows roles from the dissectors, but nothing of how the decoders are made.
"""

from __future__ import annotations

from typing import Any

from kwsniff.spec.model import Field, Message
from tests.oracle.facts import Facts

FIRST = {
    "throttle": "throttle_ms",
    "acks": "acks",
    "max_wait": "max_wait_ms",
    "min_bytes": "min_bytes",
    "group": "group_id",
    "member": "member_id",
    "transactional_id": "transactional_id",
}
EXTRA = [
    "software_name",
    "software_version",
    "mechanism",
    "auth_bytes",
    "session_id",
    "session_epoch",
    "protocol_type",
    "coordinator_key",
    "coordinator_type",
]
ZERO = "00000000-0000-0000-0000-000000000000"


class Extract:
    def __init__(self, message: Message, version: int) -> None:
        self.version = version
        self.roles: set[str] = set()
        self.errors: list[int] = []
        self.first: dict[str, Any] = {}
        self.topics: list[tuple[str | None, str | None]] = []
        self.null_topics = False
        self.rows: list[tuple[Any, ...]] = []
        self.brokers: list[tuple[Any, ...]] = []
        self.collect_roles(message.fields)

    def here(self, fields: tuple[Field, ...]) -> list[Field]:
        """In wire order: tagged fields come last, by tag."""
        found = [field for field in fields if self.version in field.versions]
        return sorted(found, key=lambda field: -1 if field.tag is None else field.tag)

    def collect_roles(self, fields: tuple[Field, ...]) -> None:
        for field in self.here(fields):
            self.roles.update(field.roles)
            self.collect_roles(field.fields)

    def struct(self, fields: tuple[Field, ...], body: dict[str, Any], topic: Any, uuid: Any) -> None:
        own: dict[str, Any] = {}
        errors = []
        for field in self.here(fields):
            if field.name not in body:
                continue
            value = body[field.name]
            if field.array:
                self.array(field, value, own.get("topic", topic), own.get("topic_id", uuid))
                continue
            if field.type == "struct":
                if value is not None:
                    self.struct(field.fields, value, own.get("topic", topic), own.get("topic_id", uuid))
                continue
            if field.tag is not None and "error" not in field.roles:
                assert not set(field.roles) - {"secret"}
            for role in field.roles:
                own[role] = self.value(role, value)
            if "error" in field.roles and field.tag is None:
                errors.append(value)
        if any("forgotten" in field.roles for field in fields):  # what leaves a session is not asked for
            own.pop("topic", None)
            own.pop("topic_id", None)
        self.struct_end(own, errors, topic, uuid)

    def struct_end(self, own: dict[str, Any], errors: list[int], topic: Any, uuid: Any) -> None:
        if "topic" in own or "topic_id" in own:
            self.topics.append((own.get("topic"), own.get("topic_id")))
        if "partition" in own:
            error = next((e for e in errors if e), 0) if errors else None
            names = (own.get("topic", topic), own.get("topic_id", uuid))
            self.rows.append((*names, own["partition"], error, own.get("base_offset"), own.get("records")))
        if "node_id" in own:
            self.brokers.append((own["node_id"], own["host"], own["port"]))

    def value(self, role: str, value: Any) -> Any:
        if role == "topic_id" and value == ZERO:
            return None
        if role == "error" and value:
            self.errors.append(value)
        if value is not None:
            self.first.setdefault(role, value)
        return value

    def array(self, field: Field, elements: Any, topic: Any, uuid: Any) -> None:
        named = [field, *self.here(field.fields)]
        if elements is None:
            self.null_topics |= any("topic" in one.roles or "topic_id" in one.roles for one in named)
            return
        for element in elements:
            if field.type == "struct":
                self.struct(field.fields, element, topic, uuid)
                continue
            for role in field.roles:
                value = self.value(role, element)
                if role in ("topic", "topic_id"):
                    self.topics.append((value, None) if role == "topic" else (None, value))
                elif role == "partition":
                    self.rows.append((topic, uuid, element, None, None, None))

    def facts(self) -> dict[str, Any]:
        """As `comparable` makes them of `Facts`."""
        pairs = list(dict.fromkeys(self.topics))
        has_topics = bool({"topic", "topic_id"} & self.roles) and not (self.null_topics and not pairs)
        extra = {role: self.first[role] for role in EXTRA if role in self.first}
        if self.brokers:
            extra["brokers"] = self.brokers
        return {
            **{column: self.first.get(role) for role, column in FIRST.items()},
            "error_code": (self.errors or [0])[0] if "error" in self.roles else None,
            "error_count": len(self.errors),
            "topics": [name for name, _ in pairs] if has_topics else None,
            "topic_ids": [uuid for _, uuid in pairs] if has_topics and "topic_id" in self.roles else None,
            "partitions": self.rows if "partition" in self.roles else None,
            "extra": extra or None,
        }


def expected_facts(message: Message, version: int, body: dict[str, Any]) -> dict[str, Any]:
    extract = Extract(message, version)
    extract.struct(message.fields, body, None, None)
    return extract.facts()


def comparable(facts: Facts, buf: bytes) -> dict[str, Any]:
    """`Facts` with record spans replaced by the bytes they stand for, None for null or none."""
    rows = facts.partitions
    if rows is not None:
        rows = [
            (*row[:5], None if row.records_start < 0 else buf[row.records_start : row.records_end])
            for row in rows
        ]
    return facts._asdict() | {"partitions": rows}
