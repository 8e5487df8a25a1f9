"""The `facts` projection of a layout as a program of small integers, for a kernel to run over many messages.

Theory of operation. Where `kwsniff.spec.source_facts` writes Python, this writes instructions of four int32:
an operation and three operands. A kernel (`kwsniff.engine.bulk.bodies`) carries them out over a buffer. The
program accepts less than the generated decoder, never more: what is rare makes it give up on the message,
and the generated decoder then has the word. A layout whose facts need what the registers of the kernel
cannot hold (a topic inside a topic, roles that speak of the client) has no program at all.

Invariant: for any bytes, either the kernel gives up or it yields the `Facts` that the decoder yields.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kwsniff.spec.interpret import has_roles
from kwsniff.spec.model import BROKER_ROLES, WIDTHS, Item, Layout, forgets
from kwsniff.spec.source import width_of

(
    END, SKIP, SKIP_STRING, SKIP_BYTES, SKIP_COMPACT, ARRAY, COMPACT_ARRAY, NEXT, TAGS, MARKER, ERROR, NUMBER,
    TEXT, TOPIC_ID, PARTITION, BASE_OFFSET, RECORDS, ROW_BEGINS, ROW, TOPIC_ROW, PARTITIONS,
) = range(21)  # fmt: skip
"""Operations. Operands: bytes; nullable; nullable, width; …; see `_Writer`."""

THROTTLE, ACKS, MAX_WAIT = range(3)
"""Numbers, in the order of their columns in the kernel's table."""
GROUP, MEMBER, TRANSACTIONAL_ID, TOPIC, UNUSED = range(5)
"""Texts. Of an unused one only the decoding is checked."""
NULLABLE, COMPACT = 1, 2
"""Flags of an operand that says how a length is stored."""
HAS_TOPIC, HAS_TOPIC_ID, HAS_ERROR, HAS_BASE, HAS_RECORDS, HAS_PARTITION = 1, 2, 4, 8, 16, 32
"""Flags of a row, and of a whole message."""
MAX_DEPTH = 8
"""Arrays inside arrays that a kernel can follow; no message has more than five."""

_NUMBERS = {"throttle": THROTTLE, "acks": ACKS, "max_wait": MAX_WAIT}
_TEXTS = {"group": GROUP, "member": MEMBER, "transactional_id": TRANSACTIONAL_ID, "topic": TOPIC}
_LENGTH_WIDTHS = {"string": 2, "bytes": 4, "records": 4}


class UnsuitableError(ValueError):
    """The layout has no program."""


@dataclass(frozen=True, slots=True)
class Program:
    """Instructions, four integers each, and what the message has at all (flags HAS_…)."""

    code: tuple[int, ...]
    flags: int


def program(layout: Layout) -> Program:
    """The program of one message at one version.

    Raises:
        UnsuitableError: with the reason why there is none.
    """
    writer = _Writer()
    writer.struct(layout.items, layout.flexible, _Scope(), 0)
    writer.emit(END)
    return Program(tuple(writer.code), writer.flags)


@dataclass
class _Scope:
    """What rows of one struct can take from around them and from the struct itself."""

    around: int = 0
    own: int = 0
    has_row: bool = False

    def inside(self) -> _Scope:
        """The scope of a struct within: only topics are handed down."""
        return _Scope((self.around | self.own) & (HAS_TOPIC | HAS_TOPIC_ID))


class _Writer:
    def __init__(self) -> None:
        self.code: list[int] = []
        self.flags = 0
        self.fence = 0
        """Where a jump leads to: what stands before cannot become one with what follows."""

    def emit(self, *words: int) -> int:
        """Add one instruction; returns where it stands."""
        at = len(self.code)
        self.code.extend((*words, 0, 0, 0, 0)[:4])
        return at

    def skip(self, width: int) -> None:
        """Pass over bytes; neighbours become one instruction."""
        last = len(self.code) - 4
        if last >= self.fence and self.code[last] == SKIP:
            self.code[last + 1] += width
        else:
            self.emit(SKIP, width)

    def struct(self, items: tuple[Item, ...], flexible: bool, scope: _Scope, depth: int) -> None:
        scope.has_row = any("partition" in item.roles and not item.array for item in items)
        if scope.has_row:
            self.emit(ROW_BEGINS)
        for item in items:
            if item.tag is None:
                self.item(item, scope, depth)
        if flexible:
            self.emit(TAGS, int(any(item.tag is not None and has_roles(item) for item in items)))
        if forgets(items):
            scope.own &= ~(HAS_TOPIC | HAS_TOPIC_ID)
        self.rows(scope)

    def rows(self, scope: _Scope) -> None:
        """What a struct adds to the tables once it is read."""
        if scope.own & (HAS_TOPIC | HAS_TOPIC_ID):
            self.emit(TOPIC_ROW, scope.own)
        if scope.own & HAS_PARTITION:
            self.emit(ROW, scope.around | scope.own)

    def item(self, item: Item, scope: _Scope, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise UnsuitableError("arrays too deep")
        if not has_roles(item):
            self.pass_over(item, depth)
        elif item.array:
            self.array(item, scope, depth)
        elif item.type != "struct":
            self.value(item, scope)
        elif item.nullable:
            jump = self.emit(MARKER)
            self.struct(item.items, item.flexible, scope.inside(), depth)
            self.code[jump + 1] = self.fence = len(self.code)
        else:
            self.struct(item.items, item.flexible, scope.inside(), depth)

    def value(self, item: Item, scope: _Scope) -> None:
        roles = [role for role in item.roles if role not in ("secret", "resource")] or ["resource"]
        if len(roles) != 1:
            raise UnsuitableError(f"{item.name} has several roles")
        role, stored = roles[0], NULLABLE * item.nullable | COMPACT * item.compact
        if role == "error":
            self.flags |= HAS_ERROR
            self.emit(ERROR, int(scope.has_row))
            scope.own |= HAS_ERROR
        elif role in _NUMBERS:
            self.emit(NUMBER, _NUMBERS[role], WIDTHS[item.type])
        elif role in _TEXTS:
            self.emit(TEXT, _TEXTS[role], stored)
            if role == "topic":
                self.own(scope, HAS_TOPIC)
        elif role == "topic_id":
            self.emit(TOPIC_ID)
            self.own(scope, HAS_TOPIC_ID)
        elif role == "partition":
            self.emit(PARTITION)
            self.own(scope, HAS_PARTITION)
        elif role == "base_offset":
            self.emit(BASE_OFFSET)
            self.own(scope, HAS_BASE)
        elif role == "records":
            self.emit(RECORDS, stored)
            self.own(scope, HAS_RECORDS)
        elif item.type in WIDTHS:
            self.skip(WIDTHS[item.type])
        elif role in BROKER_ROLES or item.type == "string":
            self.emit(TEXT, UNUSED, stored)
        else:
            raise UnsuitableError(f"{item.name} has the role {role}")

    def own(self, scope: _Scope, flag: int) -> None:
        if (scope.around | scope.own) & flag or (flag == HAS_PARTITION and not scope.has_row):
            raise UnsuitableError("a row inside a row of its kind")
        self.flags |= flag
        scope.own |= flag

    # Arrays

    def array(self, item: Item, scope: _Scope, depth: int) -> None:
        stored = NULLABLE * item.nullable | COMPACT * item.compact
        if "partition" in item.roles:
            self.flags |= HAS_PARTITION
            self.emit(PARTITIONS, stored, scope.inside().around)
            return
        inner = scope.inside()
        start = self.loop(item)
        if item.type == "struct":
            self.struct(item.items, item.flexible, inner, depth + 1)
        else:
            self.value(replace(item, array=False, nullable=False), inner)
            self.rows(inner)
        self.close(start)

    def loop(self, item: Item) -> int:
        operation = COMPACT_ARRAY if item.compact else ARRAY
        at = self.emit(operation, int(item.nullable), max(item.least, 1))
        self.fence = len(self.code)
        return at

    def close(self, start: int) -> None:
        self.emit(NEXT, start + 4)
        self.code[start + 3] = self.fence = len(self.code)

    # What is passed over

    def pass_over(self, item: Item, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise UnsuitableError("arrays too deep")
        width = width_of(item)
        if width is not None:
            self.skip(width)
        elif item.array and item.width is not None:
            self.pass_length(item, item.width, 4)
        elif item.array:
            start = self.loop(item)
            if item.type == "struct":
                self.pass_struct(item, depth + 1)
            else:
                self.pass_over(replace(item, array=False, nullable=False), depth + 1)
            self.close(start)
        elif item.type != "struct":
            self.pass_length(item, 1, _LENGTH_WIDTHS[item.type])
        elif item.nullable:
            jump = self.emit(MARKER)
            self.pass_struct(item, depth)
            self.code[jump + 1] = self.fence = len(self.code)
        else:
            self.pass_struct(item, depth)

    def pass_length(self, item: Item, width: int, lead: int) -> None:
        if item.compact:
            self.emit(SKIP_COMPACT, int(item.nullable), width)
        elif lead == 2:
            self.emit(SKIP_STRING, int(item.nullable))
        else:
            self.emit(SKIP_BYTES, int(item.nullable), width)

    def pass_struct(self, item: Item, depth: int) -> None:
        for inner in item.items:
            if inner.tag is None:
                self.pass_over(inner, depth)
        if item.flexible:
            self.emit(TAGS, 0)
