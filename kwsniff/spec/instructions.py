"""What an event takes from a message, as instructions for the kernel that reads bodies.

Theory of operation. Where `kwsniff.spec.codegen` writes Python for one layout, this writes instructions
of an operation and four operands, which `kwsniff.engine.bodies` carries out over a buffer. Values live in
registers. The first ones are fixed: those of roles that count once in a message, of which the first value
that is not null stays. The others are given out as the layout needs them: to each topic and uuid, so that a
struct inside another may name a topic of its own; to each row of `partitions`, a block; to loops and tagged
fields.

Invariant: for any bytes the kernel refuses what the generated decoder refuses, and else has its facts.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from kwsniff.rows.schema import COLUMNS, PARTITION_FIELDS
from kwsniff.rows.schema import TEXT as TEXT_COLUMN
from kwsniff.spec.codegen import width_of
from kwsniff.spec.interpret import has_roles
from kwsniff.spec.model import WIDTHS, Item, Layout, forgets

(
    END, SKIP, SKIP_TEXT, SKIP_BYTES, SKIP_ARRAY, LOOP, NEXT, TAGS, TAGS_OPEN, TAG, TAG_CASE, TAG_CLOSE,
    TAG_NEXT, MARKER, ERROR, NUMBER, TEXT, UUID, SPAN, COPY, NAME, ROW, PARTITIONS, BROKER, RESOURCE,
) = range(25)  # fmt: skip
"""Operations, with their operands:

SKIP bytes | SKIP_TEXT, SKIP_BYTES stored | SKIP_ARRAY stored, width, least | LOOP register, stored, least,
behind | NEXT register, first | TAGS | TAGS_OPEN register, behind | TAG register | TAG_CASE register, tag,
other | TAG_CLOSE register, behind | TAG_NEXT register, first | MARKER behind | ERROR block, first of its row,
register | NUMBER register, width, mode | TEXT register, stored, mode | UUID register | SPAN register, stored,
mode | COPY register, from, mode, is a span | NAME topic, uuid | ROW topic, uuid, block, has records |
PARTITIONS stored, topic, uuid | BROKER node, host, port | RESOURCE type, name, error, detail.

`stored` is of NULLABLE and COMPACT, `least` the fewest bytes of an element; `behind`, `other` and `first` say
where to go on. Register 0 as a block or as the register of an error means none.
"""

JUMPS = {LOOP: 4, NEXT: 2, TAGS_OPEN: 2, TAG_CASE: 3, TAG_CLOSE: 2, TAG_NEXT: 2, MARKER: 1}
"""Which operand says where to go on: a place in the program."""

NULLABLE, COMPACT = 1, 2
"""How a length is stored."""
SET, FIRST, LIST = range(3)
"""What becomes of a value: it replaces the one before; it stays if it is the first that is not null; or it
replaces, but nobody wants it where lists are not wanted."""

HAS_ERROR, HAS_TOPIC, HAS_TOPIC_ID, HAS_PARTITION, HAS_RECORDS, HAS_BROKERS, HAS_RESOURCES = (
    1 << bit for bit in range(7)
)
"""What a message has at all, whether or not a body has any."""

_COLUMNS = [column for column in COLUMNS if column.role]
TEXTS = (
    *(column.role for column in _COLUMNS if column.type == TEXT_COLUMN),
    "software_name", "software_version", "mechanism", "protocol_type", "coordinator_key",
)  # fmt: skip
NUMBERS = (
    *(column.role for column in _COLUMNS if column.type != TEXT_COLUMN),
    "coordinator_type", "validate_only", "auth_bytes",
)  # fmt: skip
"""Roles of which the first value counts, in the order of their registers: those that fill a column of calls,
and what is made more of. Of `auth_bytes` it is the span."""
ROW_NUMBERS = tuple(column.role for column in PARTITION_FIELDS if column.role)
"""Numbers of a partition, in the order of the registers of a block."""

NO_TEXT = 0
FIRST_TEXT = 1
NO_NUMBER = FIRST_TEXT + len(TEXTS)
FIRST_NUMBER = NO_NUMBER + 1
TOKEN = FIRST_NUMBER + len(NUMBERS) - 1
"""Where a SASL token starts; the next register says where it ends."""
FIRST_FREE = TOKEN + 2
REGISTER = {
    **{role: FIRST_TEXT + at for at, role in enumerate(TEXTS)},
    **{role: FIRST_NUMBER + at for at, role in enumerate(NUMBERS)},
}
"""Fixed registers by role. NO_TEXT and NO_NUMBER stay null."""

PARTITION_AT, ERROR_AT, RECORDS_AT, NUMBERS_AT = 0, 1, 2, 4
BLOCK = NUMBERS_AT + len(ROW_NUMBERS)
"""Registers of one row: partition, error code, start and end of its records, numbers."""

Instruction = tuple[int, int, int, int, int]


@dataclass(frozen=True, slots=True)
class Program:
    """Instructions, how many registers they use, and what the message has at all (flags HAS_…)."""

    code: tuple[Instruction, ...]
    registers: int
    flags: int
    columns: int
    """Which of ERROR_AT … of a row any row can have, a bit each."""


def program(layout: Layout) -> Program:
    """The program of one message at one version; every layout has one."""
    writer = _Writer()
    writer.struct(layout.items, layout.flexible, _Scope())
    writer.emit(END)
    return Program(tuple(map(_instruction, writer.code)), writer.registers, writer.flags, writer.columns)


def _instruction(words: list[int]) -> Instruction:
    op, a, b, c, d = words
    return op, a, b, c, d


@dataclass
class _Scope:
    """The registers of one struct, and those of the topic, uuid and resource around it."""

    topic: int = NO_TEXT
    topic_id: int = NO_TEXT
    resource: int = NO_TEXT
    resource_type: int = NO_NUMBER
    own: dict[str, int] = field(default_factory=dict)
    block: int = 0
    """Of the row or resource that the struct is; 0 if it is none."""
    is_row: bool = False
    forgets: bool = False
    """The struct names what leaves a fetch session: its partitions are rows, its topic is none."""
    errors: int = 0

    def inside(self) -> _Scope:
        """The scope of a struct within."""
        return _Scope(self.topic, self.topic_id, self.resource, self.resource_type)


class _Writer:
    def __init__(self) -> None:
        self.code: list[list[int]] = []
        self.registers = FIRST_FREE
        self.flags = self.columns = 0
        self.fence = 0
        """Where a jump leads to: what stands before cannot become one with what follows."""

    def emit(self, *words: int) -> int:
        """Add one instruction; returns where it stands."""
        self.code.append([*words, 0, 0, 0, 0][:5])
        return len(self.code) - 1

    def take(self, count: int = 1) -> int:
        """Registers that nothing else uses."""
        self.registers += count
        return self.registers - count

    def land(self, at: int, operand: int) -> None:
        """Let the jump of an instruction lead to what comes next."""
        self.code[at][operand] = self.fence = len(self.code)

    # Structs

    def struct(self, items: tuple[Item, ...], flexible: bool, scope: _Scope) -> None:
        own = {role for item in items if not item.array and item.tag is None for role in item.roles}
        scope.is_row = "partition" in own
        scope.forgets = forgets(items)
        if scope.is_row or "resource" in own:
            scope.block = self.take(BLOCK)
        for item in items:
            if item.tag is None:
                self.item(item, scope)
        if flexible:
            self.tags([item for item in items if item.tag is not None and has_roles(item)], scope)
        self.rows(scope)

    def tags(self, known: list[Item], scope: _Scope) -> None:
        if not known:
            self.emit(TAGS)
            return
        register = self.take(4)  # how many, tag, where it stops, and where what is around it ends
        opening = self.emit(TAGS_OPEN, register)
        self.fence = first = self.emit(TAG, register)
        closings = []
        for item in known:
            case = self.emit(TAG_CASE, register, item.tag or 0)
            self.fence = len(self.code)
            self.item(item, scope.inside())
            closings.append(self.emit(TAG_CLOSE, register))
            self.land(case, 3)
        for closing in closings:
            self.land(closing, 2)
        self.emit(TAG_NEXT, register, first)
        self.land(opening, 2)

    def rows(self, scope: _Scope) -> None:
        """What a struct adds to the tables once it is read."""
        own = scope.own
        if ("topic" in own or "topic_id" in own) and not scope.forgets:
            self.emit(NAME, own.get("topic", NO_TEXT), own.get("topic_id", NO_TEXT))
        if "partition" in own:
            self.emit(ROW, scope.topic, scope.topic_id, scope.block, int("records" in own))
        if "resource" in own or "detail" in own:
            self.flags |= HAS_RESOURCES
            error = scope.block + ERROR_AT if scope.errors and scope.block else NO_NUMBER
            self.emit(RESOURCE, scope.resource_type, scope.resource, error, own.get("detail", NO_TEXT))
        if "node_id" in own:
            self.flags |= HAS_BROKERS
            host, port = own.get("host", NO_TEXT), own.get("port", NO_NUMBER)
            self.emit(BROKER, own["node_id"], host, port)

    # Fields

    def item(self, item: Item, scope: _Scope) -> None:
        if not has_roles(item):
            self.pass_over(item)
        elif item.array:
            self.array(item, scope)
        elif item.type != "struct":
            self.value(item, scope)
        else:
            marker = self.emit(MARKER) if item.nullable else -1
            self.struct(item.items, item.flexible, scope.inside())
            if marker >= 0:
                self.land(marker, 1)

    def value(self, item: Item, scope: _Scope) -> None:
        roles = [role for role in item.roles if role != "secret"]
        if len(roles) == 1:
            self.read(item, scope, roles[0])
            return
        kept = self.take(2)
        mode = LIST if set(roles) <= _LISTED else SET
        self.read_into(item, kept, mode, scope if "error" in roles else None)
        for role in roles:
            if role in REGISTER:
                self.emit(COPY, REGISTER[role], kept, FIRST, int(item.type == "bytes"))
            elif role != "error":
                self.name(role, kept, scope)

    def read(self, item: Item, scope: _Scope, role: str) -> None:
        """A field of one role."""
        if role == "error":
            self.read_into(item, 0, SET, scope)
        elif role in REGISTER:
            self.read_into(item, REGISTER[role], FIRST, None)
        else:
            kept = self.place(role, scope)
            self.read_into(item, kept, LIST if role in _LISTED else SET, None)
            self.name(role, kept, scope)

    def place(self, role: str, scope: _Scope) -> int:
        """The register of a value that belongs to its struct."""
        if not scope.is_row or role not in _BLOCK_AT:
            return self.take(2)
        return scope.block + _BLOCK_AT[role]

    def name(self, role: str, register: int, scope: _Scope) -> None:
        """Note in which register a struct has the value of a role."""
        scope.own[role] = register
        self.flags |= _FLAGS.get(role, 0)
        if role == "topic":
            scope.topic = register
        elif role == "topic_id":
            scope.topic_id = register
        elif role == "resource":
            scope.resource = register
        elif role == "resource_type":
            scope.resource_type = register
        elif role in _BLOCK_AT and scope.is_row:
            self.columns |= 1 << _BLOCK_AT[role]
            if register != scope.block + _BLOCK_AT[role]:
                self.emit(COPY, scope.block + _BLOCK_AT[role], register, SET, int(role == "records"))

    def read_into(self, item: Item, register: int, mode: int, error: _Scope | None) -> None:
        stored = NULLABLE * item.nullable | COMPACT * item.compact
        if error is not None:
            self.flags |= HAS_ERROR
            self.columns |= (1 << ERROR_AT) * error.is_row
            self.emit(ERROR, error.block, int(not error.errors), register)
            error.errors += 1
        elif item.type == "uuid":
            self.emit(UUID, register)
        elif item.type in WIDTHS:
            self.emit(NUMBER, register, WIDTHS[item.type], mode)
        elif item.type == "string":
            self.emit(TEXT, register, stored, mode)
        else:
            self.emit(SPAN, register, stored, mode)

    # Arrays

    def array(self, item: Item, scope: _Scope) -> None:
        if "partition" in item.roles and item.type != "struct":
            stored = NULLABLE * item.nullable | COMPACT * item.compact
            self.flags |= HAS_PARTITION
            self.columns |= 1 << PARTITION_AT
            self.emit(PARTITIONS, stored, scope.topic, scope.topic_id)
            return
        inner = scope.inside()
        start = self.loop(item)
        if item.type == "struct":
            self.struct(item.items, item.flexible, inner)
        else:
            self.value(replace(item, array=False, nullable=False), inner)
            self.rows(inner)
        self.close(start)

    def loop(self, item: Item) -> int:
        stored = NULLABLE * item.nullable | COMPACT * item.compact
        at = self.emit(LOOP, self.take(), stored, max(item.least, 1))
        self.fence = len(self.code)
        return at

    def close(self, start: int) -> None:
        self.emit(NEXT, self.code[start][1], start + 1)
        self.land(start, 4)

    # What is passed over

    def skip(self, width: int) -> None:
        """Pass over bytes; neighbours become one instruction."""
        last = len(self.code) - 1
        if last >= self.fence and self.code[last][0] == SKIP:
            self.code[last][1] += width
        else:
            self.emit(SKIP, width)

    def pass_over(self, item: Item) -> None:
        width = width_of(item)
        stored = NULLABLE * item.nullable | COMPACT * item.compact
        if width is not None:
            self.skip(width)
        elif item.array and item.width is not None:
            self.emit(SKIP_ARRAY, stored, item.width, max(item.least, 1))
        elif item.array:
            start = self.loop(item)
            if item.type == "struct":
                self.pass_struct(item)
            else:
                self.pass_over(replace(item, array=False, nullable=False))
            self.close(start)
        elif item.type != "struct":
            self.emit(SKIP_TEXT if item.type == "string" else SKIP_BYTES, stored)
        else:
            marker = self.emit(MARKER) if item.nullable else -1
            self.pass_struct(item)
            if marker >= 0:
                self.land(marker, 1)

    def pass_struct(self, item: Item) -> None:
        for inner in item.items:
            if inner.tag is None:
                self.pass_over(inner)
        if item.flexible:
            self.emit(TAGS)


_LISTED = {"topic", "resource", "detail"}
"""Texts that go to lists only."""
_FLAGS = {
    "topic": HAS_TOPIC,
    "topic_id": HAS_TOPIC_ID,
    "partition": HAS_PARTITION,
    "records": HAS_RECORDS,
}
_BLOCK_AT = {
    "partition": PARTITION_AT,
    "records": RECORDS_AT,
    **{role: NUMBERS_AT + at for at, role in enumerate(ROW_NUMBERS)},
}
