"""Primitive values of the Kafka wire format, and the one error every decoder raises.

All integers are big-endian (Kafka protocol guide, "Protocol Primitive Types"). Readers take a buffer, a
position and an exclusive end, and return the value with the position after it.
"""

from __future__ import annotations

Buffer = bytes | bytearray | memoryview


class DecodeError(ValueError):
    """Bytes that are not what the protocol says they should be.

    Attributes:
        code: one of the anomaly codes of `kwsniff.rows.events`, for instance ``truncated_body``.
        path: the field being read, for instance ``topics[3].partitions[0].records``; empty if unknown.
        offset: bytes from the start of the body to where reading failed; -1 if unknown.
    """

    def __init__(self, code: str, path: str = "", offset: int = -1) -> None:
        self.code = code
        self.path = path
        self.offset = offset
        super().__init__(code, path, offset)

    def __str__(self) -> str:
        where = f" at {self.path}" if self.path else ""
        return f"{self.code}{where}, offset {self.offset}" if self.offset >= 0 else f"{self.code}{where}"


def uvarint(buf: Buffer, pos: int, end: int) -> tuple[int, int]:
    """UNSIGNED_VARINT: 7 bits a byte, least significant group first, at most 5 bytes (KIP-482)."""
    value = shift = 0
    while pos < end:
        byte = buf[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFFFFFF:
                raise DecodeError("varint_too_long", offset=pos)
            return value, pos
        shift += 7
        if shift > 28:
            raise DecodeError("varint_too_long", offset=pos)
    raise DecodeError("truncated_body", offset=pos)


def varlong(buf: Buffer, pos: int, end: int) -> tuple[int, int]:
    """VARLONG: zig-zag, at most 10 bytes (Kafka protocol guide)."""
    value = shift = 0
    while pos < end:
        byte = buf[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            value &= 0xFFFFFFFFFFFFFFFF
            return (value >> 1) ^ -(value & 1), pos
        shift += 7
        if shift > 63:
            raise DecodeError("varint_too_long", offset=pos)
    raise DecodeError("truncated_body", offset=pos)


def varint(buf: Buffer, pos: int, end: int) -> tuple[int, int]:
    """VARINT: zig-zag, at most 5 bytes (Kafka protocol guide)."""
    value, pos = uvarint(buf, pos, end)
    return (value >> 1) ^ -(value & 1), pos
