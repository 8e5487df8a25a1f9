"""The slow, obvious decoder: follows a layout field by field and knows the path and offset of each.

It is the oracle of the compiled decoders, and explains their failures: whatever they refuse is decoded
again here to say which field is at fault.
"""

from __future__ import annotations

import struct
from typing import Any
from uuid import UUID

from kwsniff.config import MAX_ELEMENTS
from kwsniff.spec.binary import Buffer, DecodeError, uvarint
from kwsniff.spec.model import WIDTHS, Item, Layout

FORMATS = {
    "bool": ">?",
    "int8": ">b",
    "int16": ">h",
    "uint16": ">H",
    "int32": ">i",
    "uint32": ">I",
    "int64": ">q",
    "float64": ">d",
}


def interpret(
    layout: Layout, buf: Buffer, pos: int, end: int, *, facts: bool = False
) -> tuple[dict[str, Any], int]:
    """Decodes the body in `buf[pos:end]`; returns its fields by name and the position behind the last.

    With `facts`, strings without a role need not be valid text and known tagged fields without roles are
    passed over, as the facts projection does. Raises `DecodeError`; its offset counts from `pos`.
    """
    reader = BodyReader(buf, pos, end, facts)
    return reader.struct(layout.items, layout.flexible, "", end), reader.pos


def has_roles(item: Item) -> bool:
    """Whether the field or anything inside it feeds `Facts`."""
    return any(role != "secret" for role in item.roles) or any(map(has_roles, item.items))


class BodyReader:
    """Reads one body; a subclass may look at each field as it is read."""

    def __init__(self, buf: Buffer, pos: int, end: int, facts: bool) -> None:
        self.buf = buf
        self.pos = pos
        self.start = pos
        self.limit = min(end, len(buf))
        self.facts = facts
        self.left = MAX_ELEMENTS

    def fail(self, code: str, path: str) -> DecodeError:
        return DecodeError(code, path, self.pos - self.start)

    def take(self, size: int, path: str, end: int) -> bytes:
        if size > end - self.pos:
            raise self.fail("truncated_body", path)
        self.pos += size
        return bytes(self.buf[self.pos - size : self.pos])

    def uvarint(self, path: str, end: int) -> int:
        try:
            value, self.pos = uvarint(self.buf, self.pos, end)
        except DecodeError as error:
            raise self.fail(error.code, path) from None
        return value

    def struct(self, items: tuple[Item, ...], flexible: bool, path: str, end: int) -> dict[str, Any]:
        end = min(end, self.limit)
        fields = {item.name: self.field(item, _join(path, item), end) for item in items if item.tag is None}
        if flexible:
            self.tags({item.tag: item for item in items if item.tag is not None}, fields, path, end)
        return fields

    def tags(self, known: dict[int | None, Item], fields: dict[str, Any], path: str, end: int) -> None:
        """Tagged fields: count, then tag, size and content of each (KIP-482). Unknown ones are skipped."""
        count = self.uvarint(_join(path, "tags"), end)
        if 2 * count > end - self.pos:
            raise self.fail("array_too_long", _join(path, "tags"))
        for _ in range(count):
            tag, size = self.uvarint(_join(path, "tags"), end), self.uvarint(_join(path, "tags"), end)
            stop = self.pos + size
            item = known.get(tag)
            name = _join(path, item or f"tag {tag}")
            if stop > end:
                raise self.fail("truncated_body", name)
            if item is not None and not (self.facts and not has_roles(item)):
                fields[item.name] = self.field(item, name, stop)
                if self.pos < stop:
                    raise self.fail("trailing_bytes", name)
            self.pos = stop

    def field(self, item: Item, path: str, end: int) -> Any:
        if not item.array:
            return self.value(item, path, end)
        count = self.length(item, 4, path, end)
        if count is None:
            return None
        if count * max(item.least, 1) > end - self.pos:
            raise self.fail("array_too_long", path)
        if self.facts and item.width is not None and not has_roles(item):
            self.take(count * item.width, path, end)
            return None
        self.left -= count >> 3 if item.type in WIDTHS and item.type != "uuid" else count
        if self.left < 0:
            raise self.fail("element_limit", path)
        return [self.element(item, f"{path}[{index}]", end) for index in range(count)]

    def element(self, item: Item, path: str, end: int) -> Any:
        if item.type == "struct":
            return self.struct(item.items, item.flexible, path, end)
        return self.value(item, path, end, element=True)

    def value(self, item: Item, path: str, end: int, element: bool = False) -> Any:
        if item.type == "uuid":
            return str(UUID(bytes=self.take(16, path, end)))
        if item.type in WIDTHS:
            return struct.unpack(FORMATS[item.type], self.take(WIDTHS[item.type], path, end))[0]
        if item.type == "struct":
            if item.nullable and not self.present(path, end):
                return None
            return self.struct(item.items, item.flexible, path, end)
        size = self.length(item, 2 if item.type == "string" else 4, path, end, element)
        if size is None:
            return None
        raw = self.take(size, path, end)
        return raw if item.type != "string" else self.text(item, raw, path)

    def text(self, item: Item, raw: bytes, path: str) -> str | None:
        if self.facts and not has_roles(item):
            return None
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            self.pos += error.start - len(raw)
            raise self.fail("text_invalid", path) from None

    def present(self, path: str, end: int) -> bool:
        """The byte before a nullable struct: -1 for null, 1 for present."""
        marker = self.take(1, path, end)
        if marker not in (b"\xff", b"\x01"):
            self.pos -= 1
            raise self.fail("value_invalid", path)
        return marker == b"\x01"

    def length(self, item: Item, width: int, path: str, end: int, element: bool = False) -> int | None:
        """Length of a string, bytes or array: compact ones are stored plus one. None for null."""
        at = self.pos
        if item.compact:
            length = self.uvarint(path, end) - 1
        else:
            length = int.from_bytes(self.take(width, path, end), "big", signed=True)
        if length >= 0:
            return length
        if length < -1 or element or not item.nullable:
            self.pos = at
            raise self.fail("length_invalid", path)
        return None


def _join(path: str, item: Item | str) -> str:
    name = item if isinstance(item, str) else item.name
    return f"{path}.{name}" if path else name
