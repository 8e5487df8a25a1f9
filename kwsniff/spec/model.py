"""What a dissector says, in two steps: the definition of a message over all its versions (`Message`,
`Field`), and its layout at one version (`Layout`, `Item`), from which both decoders are made.

Layouts follow the rules of the Kafka protocol guide: in a flexible version (KIP-482) strings, bytes and
arrays carry compact lengths and every struct ends with tagged fields.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

WIDTHS = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "uint16": 2,
    "int32": 4,
    "uint32": 4,
    "int64": 8,
    "float64": 8,
    "uuid": 16,
}
"""Bytes of the types of fixed width."""

TYPES = frozenset(WIDTHS) | {"string", "bytes", "records", "struct"}

ROLES = {
    # Roles that have a column of `Facts` to themselves
    "error": ("int16", "an error code"),
    "throttle": ("int32", "how long the broker throttles the client, ms"),
    "acks": ("int16", "acknowledgements a producer waits for"),
    "max_wait": ("int32", "how long a broker may wait for data, ms"),
    "min_bytes": ("int32", "how many bytes of data it waits for"),
    "group": ("string", "id of a consumer, share or streams group"),
    "member": ("string", "id of the member that asks or is answered"),
    "transactional_id": ("string", "id of a transactional producer"),
    "topic": ("string", "name of a topic"),
    "topic_id": ("uuid", "uuid of a topic"),
    "partition": ("int32", "partition index: its struct is one row of `partitions`"),
    "base_offset": ("int64", "offset given to the first record of the partition"),
    "records": ("records", "record data of the partition"),
    # Further numbers of a partition
    "high_watermark": ("int64", "offset behind the last record that all in-sync replicas have"),
    "log_start_offset": ("int64", "offset of the first record that is kept"),
    "last_stable_offset": ("int64", "offset before which all transactions are decided"),
    "fetch_offset": ("int64", "offset from which records are asked for"),
    "committed_offset": ("int64", "offset committed for a group"),
    "leader_epoch": ("int32", "epoch of the partition's leader"),
    "forgotten": ("int32", "beside `partition`: it leaves the fetch session, and is asked for no more"),
    # Roles that go to `Facts.extra`, under their own name
    "software_name": ("string", "client library (KIP-511)"),
    "software_version": ("string", "its version"),
    "mechanism": ("string", "SASL mechanism the client asks for"),
    "auth_bytes": ("bytes", "SASL token"),
    "session_id": ("int32", "fetch session (KIP-227)"),
    "session_epoch": ("int32", "epoch within a fetch or share session"),
    "protocol_type": ("string", "what a group's members have in common: consumer, connect"),
    "coordinator_key": ("string", "group or transactional id whose coordinator is asked for"),
    "coordinator_type": ("int8", "kind of `coordinator_key`: 0 group, 1 transaction, 2 share"),
    "group_protocol": ("string", "how a group assigns partitions: range, cooperative-sticky, uniform"),
    "generation": ("int32", "generation of a group, or epoch of its member"),
    "reason": ("string", "why a member joins or leaves"),
    "rack": ("string", "rack of the client"),
    "validate_only": ("bool", "nothing is to be changed, only checked"),
    # Roles of one struct that become one resource of an admin call
    "resource": ("string", "name of what the call is about: topic, broker, group, user, feature"),
    "resource_type": ("int8", "its kind, where the message says it"),
    "detail": ("string", "what of it: the name of a setting"),
    # Three roles of one struct that become one entry of `Facts.extra["brokers"]`
    "node_id": ("int32", "broker id"),
    "host": ("string", "where clients reach that broker"),
    "port": ("int32", "where clients reach that broker"),
    # A role of its own: it hides a value instead of keeping it
    "secret": ("*", "a credential, never printed"),
}
"""The closed set of roles: what a field feeds, and the type it must have."""


@dataclass(frozen=True, slots=True)
class Versions:
    """A set of versions, as inclusive ranges in ascending order."""

    ranges: tuple[tuple[int, int], ...]

    def __contains__(self, version: int) -> bool:
        return any(low <= version <= high for low, high in self.ranges)

    def __iter__(self) -> Iterator[int]:
        for low, high in self.ranges:
            yield from range(low, high + 1)

    def __le__(self, other: Versions) -> bool:
        return self.ranges == other.ranges or all(version in other for version in self)

    def __bool__(self) -> bool:
        return bool(self.ranges)

    @property
    def first(self) -> int:
        return self.ranges[0][0]

    @property
    def last(self) -> int:
        return self.ranges[-1][1]

    def __str__(self) -> str:
        return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in self.ranges) or "none"


NO_VERSIONS = Versions(())


@dataclass(frozen=True, slots=True)
class Field:
    """One line of a dissector. `type` is one of `TYPES`; `fields` are those of a struct."""

    name: str
    type: str
    array: bool
    versions: Versions
    nullable: Versions
    tag: int | None
    compact: bool
    roles: tuple[str, ...]
    doc: str
    line: int
    fields: tuple[Field, ...] = ()
    aliases: tuple[str, ...] = ()
    """What some releases call it."""


@dataclass(frozen=True, slots=True)
class Message:
    """A request, a response or a data message over all its versions.

    `direction` is `request`, `response` or `data`; `used` says where a data message lives.
    """

    name: str
    direction: str
    api_key: int | None
    versions: Versions
    flexible: Versions
    fields: tuple[Field, ...]
    doc: str = ""
    used: str = ""
    record: int | None = None
    """Record type by which a log names this data message."""

    def at(self, version: int) -> Layout:
        """The layout of one version, which must be among `versions`."""
        flexible = version in self.flexible
        items = _items(self.fields, version, flexible)
        return Layout(self.name, self.direction, self.api_key, version, flexible, items)


@dataclass(frozen=True, slots=True)
class Item:
    """One field at one version.

    `width` is the fixed size of one element in bytes, or None; `least` the fewest bytes one can take.
    `items` are those of a struct. `flexible` structs end with tagged fields.
    """

    name: str
    type: str
    array: bool
    nullable: bool
    tag: int | None
    compact: bool
    flexible: bool
    roles: tuple[str, ...]
    doc: str
    items: tuple[Item, ...]
    width: int | None
    least: int

    @property
    def kind(self) -> str:
        """The type as published tables write it: `[]` before the type of an array's elements."""
        return f"[]{self.type}" if self.array else self.type


def forgets(items: tuple[Item, ...]) -> bool:
    """Whether a struct names what leaves a fetch session: its partitions are rows, but its topic is none that
    the message is about."""
    return any("forgotten" in item.roles for item in items)


@dataclass(frozen=True, slots=True)
class Layout:
    """One message at one version: what is on the wire, in order."""

    name: str
    direction: str
    api_key: int | None
    version: int
    flexible: bool
    items: tuple[Item, ...]

    @property
    def title(self) -> str:
        """For instance `Fetch request 12`."""
        return f"{self.name} {self.direction} {self.version}"


def _items(fields: tuple[Field, ...], version: int, flexible: bool) -> tuple[Item, ...]:
    return tuple(_item(field, version, flexible) for field in fields if version in field.versions)


def _item(field: Field, version: int, flexible: bool) -> Item:
    items = _items(field.fields, version, flexible)
    compact = flexible and field.compact
    nullable = version in field.nullable
    width, least = WIDTHS.get(field.type), WIDTHS.get(field.type, 0)
    if field.type == "struct":
        width, least = _struct_size(items, flexible, nullable and not field.array)
    elif width is None:
        least = 1 if compact else 2 if field.type == "string" else 4
    tag = field.tag if flexible else None
    return Item(
        name=field.name,
        type=field.type,
        array=field.array,
        nullable=nullable,
        tag=tag,
        compact=compact,
        flexible=flexible,
        roles=field.roles,
        doc=field.doc,
        items=items,
        width=width,
        least=least,
    )


def _struct_size(items: tuple[Item, ...], flexible: bool, nullable: bool) -> tuple[int | None, int]:
    """Fixed width or None, and the fewest bytes: an absent nullable struct is its marker byte alone."""
    width: int | None = None if flexible or nullable else 0
    least = 1 if flexible else 0
    for item in items:
        if item.tag is not None:
            continue
        if item.array:
            least, width = least + (1 if item.compact else 4), None
            continue
        least += item.least
        width = None if width is None or item.width is None else width + item.width
    return width, 1 if nullable else least
