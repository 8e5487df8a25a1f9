"""Random messages and their bytes, from the published facts alone: the other side of the round trip.

Shares no code with the decoders, not even a varint.
"""

from __future__ import annotations

import random
import struct
import uuid
from typing import Any

from spec_tables import covers

NUMBERS = {
    "int8": (1, True),
    "int16": (2, True),
    "uint16": (2, False),
    "int32": (4, True),
    "uint32": (4, False),
    "int64": (8, True),
}
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789-._"
EXOTIC = "äß€日本𝄞\0\n\"'"


def present(fields: list[dict[str, Any]], version: int) -> list[dict[str, Any]]:
    return [field for field in fields if covers(field["v"], version)]


# Random values


class Maker:
    """Random bodies of one message version. `rich` ones have long strings and arrays."""

    def __init__(self, rng: random.Random, version: int, rich: bool = False) -> None:
        self.rng = rng
        self.version = version
        self.rich = rich

    def body(self, fields: list[dict[str, Any]], depth: int = 0) -> dict[str, Any]:
        made = {}
        for field in present(fields, self.version):
            if "tag" in field and self.rng.random() < 0.5:
                continue
            made[field["n"]] = self.field(field, depth)
        return made

    def field(self, field: dict[str, Any], depth: int) -> Any:
        if covers(field.get("null"), self.version) and self.rng.random() < 0.25:
            return None
        if not field["t"].startswith("[]"):
            return self.value(field, field["t"], depth)
        return [self.value(field, field["t"][2:], depth + 1) for _ in range(self.length(field["t"], depth))]

    def length(self, kind: str, depth: int) -> int:
        chance = self.rng.random()
        if self.rich and chance < 0.1:
            return 130 if kind != "[]struct" or depth == 0 else 9
        return self.rng.choice((0, 1, 1, 2, 3)) if depth < 3 else self.rng.choice((0, 1, 1))

    def value(self, field: dict[str, Any], kind: str, depth: int) -> Any:
        rng = self.rng
        if kind == "struct":
            return self.body(field["f"], depth)
        if kind in NUMBERS:
            width, signed = NUMBERS[kind]
            bits = rng.choice((3, width * 4, width * 8))
            number = rng.getrandbits(bits)
            return number - (1 << bits - 1) if signed else number
        if kind == "bool":
            return rng.random() < 0.5
        if kind == "float64":
            return rng.choice((0.0, -1.5, rng.uniform(-1e9, 1e9), float("inf")))
        if kind == "uuid":
            return str(uuid.UUID(int=rng.choice((0, rng.getrandbits(128), rng.getrandbits(128)))))
        size = (
            rng.choice((0, 1, 7, 20))
            if not self.rich or rng.random() < 0.8
            else rng.choice((127, 128, 300, 17000))
        )
        if kind == "string":
            alphabet = LETTERS if rng.random() < 0.8 else LETTERS + EXOTIC
            return "".join(rng.choice(alphabet) for _ in range(min(size, 300)))
        return rng.randbytes(size)


# Bytes


def unsigned_varint(number: int) -> bytes:
    out = bytearray()
    while True:
        number, low = number >> 7, number & 0x7F
        if not number:
            out.append(low)
            return bytes(out)
        out.append(low | 0x80)


class Encoder:
    """Bytes of one message version. With `rng`, unknown tagged fields are strewn in."""

    def __init__(self, message: dict[str, Any], version: int, rng: random.Random | None = None) -> None:
        self.message = message
        self.version = version
        self.flexible = covers(message["flexible"], version)
        self.rng = rng

    def encode(self, body: dict[str, Any]) -> bytes:
        return self.struct(self.message["fields"], body)

    def struct(self, fields: list[dict[str, Any]], body: dict[str, Any]) -> bytes:
        here = present(fields, self.version)
        out = b"".join(self.field(field, body[field["n"]]) for field in here if "tag" not in field)
        return out + self.tags(here, body) if self.flexible else out

    def tags(self, fields: list[dict[str, Any]], body: dict[str, Any]) -> bytes:
        tagged = [(f["tag"], self.field(f, body[f["n"]])) for f in fields if "tag" in f and f["n"] in body]
        if self.rng is not None and self.rng.random() < 0.2:
            number = self.rng.choice((100, 127, 128, 5000))
            tagged.append((number, self.rng.randbytes(self.rng.choice((0, 3, 200)))))
        parts = [unsigned_varint(tag) + unsigned_varint(len(data)) + data for tag, data in sorted(tagged)]
        return unsigned_varint(len(parts)) + b"".join(parts)

    def length(self, size: int | None, width: int, plain: bool) -> bytes:
        """`size` None stands for null."""
        if self.flexible and not plain:
            return unsigned_varint(0 if size is None else size + 1)
        return (-1 if size is None else size).to_bytes(width, "big", signed=True)

    def field(self, field: dict[str, Any], value: Any) -> bytes:
        kind, plain = field["t"], "plain" in field
        if kind.startswith("[]"):
            if value is None:
                return self.length(None, 4, plain)
            elements = b"".join(self.value(field, kind[2:], element, False) for element in value)
            return self.length(len(value), 4, plain) + elements
        return self.value(field, kind, value, covers(field.get("null"), self.version))

    def value(self, field: dict[str, Any], kind: str, value: Any, nullable: bool) -> bytes:
        if kind == "struct":
            if nullable:
                return b"\xff" if value is None else b"\x01" + self.struct(field["f"], value)
            return self.struct(field["f"], value)
        if kind in NUMBERS:
            width, signed = NUMBERS[kind]
            return int(value).to_bytes(width, "big", signed=signed)
        if kind == "bool":
            return b"\x01" if value else b"\x00"
        if kind == "float64":
            return struct.pack(">d", value)
        if kind == "uuid":
            return uuid.UUID(value).bytes
        raw = None if value is None else value.encode() if kind == "string" else value
        lead = self.length(None if raw is None else len(raw), 2 if kind == "string" else 4, "plain" in field)
        return lead + (raw or b"")
