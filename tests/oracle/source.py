"""Source of decoders of the `facts` projection: fields with roles, everything else is passed over.

Each role keeps its value in a variable of its name. A role found once and not inside an array or tagged
field is read straight into it; of the others the first value counts.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

from kwsniff.spec.codegen import LENGTH_CODES, CodeWriter, code_of, width_of
from kwsniff.spec.interpret import has_roles
from kwsniff.spec.model import WIDTHS, Item, Layout, forgets

EXTRA_ROLES = (
    "software_name",
    "software_version",
    "mechanism",
    "auth_bytes",
    "session_id",
    "session_epoch",
    "protocol_type",
    "coordinator_key",
    "coordinator_type",
)
BROKER_ROLES = ("node_id", "host", "port")
SCALARS = ("throttle", "acks", "max_wait", "min_bytes", "group", "member", "transactional_id", *EXTRA_ROLES)
ROWED = ("topic", "topic_id", "partition", "error", "base_offset", "records", *BROKER_ROLES)
"""Roles whose value belongs to the struct they stand in."""


@dataclass
class Scope:
    """The variables of one struct, by role, and those of topic and uuid around it."""

    topic: str = "None"
    topic_id: str = "None"
    own: dict[str, str] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    forgets: bool = False


class FactsWriter(CodeWriter):
    """Writes the body of a decoder that returns `Facts`."""

    def __init__(self, layout: Layout) -> None:
        super().__init__(layout)
        self.roles = Counter(_roles(layout.items))
        self.nullable_topics = any(item.nullable and _names_topics(item) for item in _arrays(layout.items))
        self.direct = {role for role in SCALARS if self.roles[role] == 1 and _is_plain(layout.items, role)}

    def body(self) -> None:
        self._start()
        self._struct(self.layout.items, self.layout.flexible, Scope())
        self.settle()
        self.line("if pos > end:", "    raise MalformedError")
        self._finish()

    def skip_length(self, item: Item, code: str, lead: int, width: int, nullable: bool) -> None:
        """Passes over a string, bytes or an array of elements of fixed width."""
        n = self.lead(item, code, lead)
        lag, self.lag = self.lag, 0
        times = f"{n} * {width}" if width != 1 else n
        if item.compact:
            helper = "skip_long_nullable" if nullable else "skip_long"
            self.line(f"if 0 < {n} < 128:", f"    pos += {times} + {lag - width}")
            self.line(f"elif {n}:", f"    pos = {helper}(buf, pos + {lag}, {n}, end, {width})")
            self.line("else:", f"    pos += {lag}" if nullable else "    raise MalformedError")
            return
        self.line(f"if {n} >= 0:", f"    pos += {times} + {lag}")
        if nullable:
            self.line(f"elif {n} == -1:", f"    pos += {lag}")
        self.line("else:", "    raise MalformedError")

    # Before and after

    def _start(self) -> None:
        for role in SCALARS:
            if self.roles[role] and role not in self.direct:
                self.line(f"{role} = None")
        if self.roles["error"]:
            self.line("error = errors = 0")
        for role, variable in (("topic", "topics"), ("topic_id", "ids"), ("partition", "rows")):
            if self.roles[role]:
                self.line(f"{variable} = []")
        if self.roles["node_id"]:
            self.line("brokers = None")
        if self.nullable_topics:
            self.line("no_topics = False")

    def _finish(self) -> None:
        topics, ids = self._topics()
        self._extra()
        scalar = [role if self.roles[role] else "None" for role in SCALARS[:7]]
        error = "error, errors" if self.roles["error"] else "None, 0"
        rows = "rows" if self.roles["partition"] else "None"
        extra = "extra" if self._has_extra() else "None"
        values = ", ".join([error, *scalar, topics, ids, rows, extra])
        self.line(f"return new(Facts, ({values})), pos")

    def _topics(self) -> tuple[str, str]:
        named, by_id = self.roles["topic"], self.roles["topic_id"]
        topics, ids = "topics" if named else "None", "ids" if by_id else "None"
        if named and by_id:
            self.line("if len(topics) > 1:", "    topics, ids = unique_pairs(topics, ids)")
        elif named:
            self.line("if len(topics) > 1:", "    topics = unique(topics)")
        elif by_id:
            self.line("if len(ids) > 1:", "    ids = unique(ids)")
            topics = "[None] * len(ids)"
        if self.nullable_topics:
            present = [name for name, used in (("topics", named), ("ids", by_id)) if used]
            self.line(f"if no_topics and not {present[0]}:")
            self.line(*(f"    {name} = None" for name in present))
            topics = topics if named else f"{topics} if ids is not None else None"
        return topics, ids

    def _has_extra(self) -> bool:
        return bool(self.roles["node_id"]) or any(self.roles[role] for role in EXTRA_ROLES)

    def _extra(self) -> None:
        """`extra` holds what is not None, and is None if that is nothing."""
        present = [role for role in EXTRA_ROLES if self.roles[role]]
        certain = [role for role in present if self._never_null(role)]
        maybe = [role for role in present if role not in certain]
        maybe += ["brokers"] if self.roles["node_id"] else []
        if not present and not maybe:
            return
        self.line("extra = {" + ", ".join(f"{role!r}: {role}" for role in certain) + "}")
        for name in maybe:
            self.line(f"if {name} is not None:", f"    extra[{name!r}] = {name}")
        if not certain:
            self.line("if not extra:", "    extra = None")

    def _never_null(self, role: str) -> bool:
        return role in self.direct and not any(
            role in item.roles and (item.nullable or item.array) for item in self.layout.items
        )

    # Structs

    def _struct(self, items: tuple[Item, ...], flexible: bool, scope: Scope) -> None:
        for item in items:
            if item.tag is None:
                self._item(item, scope)
        if flexible:
            self._tags([item for item in items if item.tag is not None and has_roles(item)], scope)
        scope.forgets = forgets(items)
        self._rows(scope)

    def _tags(self, known: list[Item], scope: Scope) -> None:
        if not known:
            self.skip_tagged()
            return
        with self.tag_loop(self.tag_count()) as (tag, stop):
            for index, item in enumerate(known):
                with self.tagged(item, tag, stop, index == 0):
                    self._item(item, _inside(scope))

    def _rows(self, scope: Scope) -> None:
        """What a struct adds to the lists once it is read."""
        own = scope.own
        if ("topic" in own or "topic_id" in own) and not scope.forgets:
            self.take()
            if self.roles["topic"]:
                self.line(f"topics.append({own.get('topic', 'None')})")
            if self.roles["topic_id"]:
                self.line(f"ids.append({own.get('topic_id', 'None')})")
        if "partition" in own:
            self.take()
            error = " or ".join(scope.errors) or "None"
            records = own.get("records", "-1, -1")
            self._row(scope, own["partition"], error, own.get("base_offset", "None"), records)
        if "node_id" in own:
            self.take()
            self.line("if brokers is None:", "    brokers = []")
            self.line(f"brokers.append(({', '.join(own.get(role, 'None') for role in BROKER_ROLES)}))")

    def _row(self, scope: Scope, partition: str, error: str, base: str, records: str) -> None:
        row = f"{scope.topic}, {scope.topic_id}, {partition}, {error}, {base}, {records}"
        self.line(f"rows.append(new(PartitionFacts, ({row})))")

    # Fields

    def _item(self, item: Item, scope: Scope) -> None:
        if not has_roles(item):
            self._skip(item)
        elif item.array:
            self._array(item, scope)
        elif item.type != "struct":
            self._value(item, scope)
        elif item.nullable:
            marker = self.marker()
            with self.block(f"if {marker} == 1:"):
                self._struct(item.items, item.flexible, _inside(scope))
            self.line(f"elif {marker} != -1:", "    raise MalformedError")
        else:
            self._struct(item.items, item.flexible, _inside(scope))

    def _value(self, item: Item, scope: Scope) -> None:
        roles = [role for role in item.roles if role != "secret"]
        variable = roles[0] if roles[0] in self.direct else self.name(roles[0])
        if item.type in WIDTHS:
            self.fixed(*code_of(item), variable, *self._uses(item, roles, variable))
        else:
            self._spanned(item, variable, item.nullable)
            self.line(*self._uses(item, roles, variable))
        for role in roles:
            self._remember(role, variable, scope)

    def _spanned(self, item: Item, variable: str, nullable: bool) -> None:
        """A string, bytes or records: the first two are copied, of the last only the span is kept."""
        start, present = self.span(item, nullable, check=item.type == "bytes")
        if item.type == "records":
            self.line(f"{variable} = {start}" + (f" if {present} else -1" if present else ""))
            self.line(f"{variable}_end = " + (f"pos if {present} else -1" if present else "pos"))
            return
        value = f"buf[{start}:pos]" + (".decode()" if item.type == "string" else "")
        self.line(f"{variable} = {value}" + (f" if {present} else None" if present else ""))

    def _uses(self, item: Item, roles: list[str], variable: str) -> list[str]:
        """Lines to run once the value is there."""
        lines = [f"{variable} = topic_id({variable})"] if "topic_id" in roles else []
        if "error" in roles:
            lines += [f"if {variable}:", "    errors += 1", f"    error = error or {variable}"]
        for role in roles:
            if role in self.direct and role != variable:
                lines.append(f"{role} = {variable}")
            elif role in SCALARS and role != variable:
                lines += [f"if {role} is None:", f"    {role} = {variable}"]
        return lines

    def _remember(self, role: str, variable: str, scope: Scope) -> None:
        if role == "error":
            scope.errors.append(variable)
        elif role == "records":
            scope.own[role] = f"{variable}, {variable}_end"
        elif role in ROWED:
            scope.own[role] = variable
        if role == "topic":
            scope.topic = variable
        elif role == "topic_id":
            scope.topic_id = variable

    # Arrays

    def _array(self, item: Item, scope: Scope) -> None:
        n = self.count(item)
        if item.nullable:
            if _names_topics(item):
                self.line(f"if {n} == -1:", "    no_topics = True")
            opening = f"if {n} != -1:" if not _names_topics(item) else "else:"
            with self.block(opening):
                self._elements(item, n, scope)
        else:
            self._elements(item, n, scope)

    def _elements(self, item: Item, n: str, scope: Scope) -> None:
        self.check_count(item, n)
        if item.type == "struct":
            with self.block(f"for _ in range({n}):"):
                self._struct(item.items, item.flexible, _inside(scope))
        elif "partition" in item.roles:
            self.names["unpack_partitions"] = self.names[self.unpackers("i")]
            small = f"unpack_partitions[{n}](buf, pos)"
            many = f"unpack_from(f'>{{{n}}}i', buf, pos)"
            with self.block(f"for partition in {small} if {n} < SMALL else {many}:"):
                self._row(scope, "partition", "None", "None", "-1, -1")
            self.line(f"pos += {n} * 4")
        else:
            with self.block(f"for _ in range({n}):"):
                inner = _inside(scope)
                self._value(replace(item, array=False, nullable=False), inner)
                self._rows(inner)

    # What is passed over

    def _skip(self, item: Item) -> None:
        width = width_of(item)
        if width is not None:
            self.fixed(f"{width}x", width, None)
        elif item.array and item.width is not None:
            self.skip_length(item, "i", 4, item.width, item.nullable)
        elif item.array:
            self._skip_array(item)
        elif item.type != "struct":
            self.skip_length(item, *LENGTH_CODES[item.type], 1, item.nullable)
        elif item.nullable:
            marker = self.marker()
            with self.block(f"if {marker} == 1:"):
                self._skip_struct(item)
            self.line(f"elif {marker} != -1:", "    raise MalformedError")
        else:
            self._skip_struct(item)

    def _skip_struct(self, item: Item) -> None:
        for inner in item.items:
            if inner.tag is None:
                self._skip(inner)
        if item.flexible:
            self.skip_tagged()

    def _skip_array(self, item: Item) -> None:
        n = self.count(item)
        if item.nullable:
            with self.block(f"if {n} != -1:"):
                self._skip_elements(item, n)
        else:
            self._skip_elements(item, n)

    def _skip_elements(self, item: Item, n: str) -> None:
        self.check_count(item, n)
        with self.block(f"for _ in range({n}):"):
            if item.type == "struct":
                self._skip_struct(item)
            else:
                self._skip(replace(item, array=False, nullable=False))


def _inside(scope: Scope) -> Scope:
    """The scope of a struct within another."""
    return replace(scope, own={}, errors=[])


def _roles(items: tuple[Item, ...]) -> list[str]:
    return [role for item in items for role in (*item.roles, *_roles(item.items))]


def _arrays(items: tuple[Item, ...]) -> list[Item]:
    inner = [array for item in items for array in _arrays(item.items)]
    return [item for item in items if item.array] + inner


def _names_topics(item: Item) -> bool:
    """Whether the elements of an array are topics."""
    return any(role in ("topic", "topic_id") for one in (item, *item.items) for role in one.roles)


def _is_plain(items: tuple[Item, ...], role: str) -> bool:
    """Whether the role stands at the top of the message, neither array nor tagged."""
    return any(role in item.roles and not item.array and item.tag is None for item in items)
