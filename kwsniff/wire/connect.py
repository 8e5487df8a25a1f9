"""The group protocol of Kafka Connect workers, which no published message definition describes.

Workers put it into the `bytes` fields of JoinGroup and SyncGroup under protocol type `connect`. Layouts after
KIP-415 and KIP-507: version 0 is the eager one, version 1 adds the current allocation, revoked tasks and a
delay, version 2 is as version 1 but for signed requests among workers. Strings and arrays are never compact.
A worker may leave out trailing fields of version 1 and above.
"""

from __future__ import annotations

from struct import Struct, error

from kwsniff.binary import DecodeError

_INT16, _INT32, _INT64 = Struct(">h"), Struct(">i"), Struct(">q")


class _Reader:
    __slots__ = ("data", "pos")

    def __init__(self, data: bytes) -> None:
        self.data, self.pos = data, 0

    def more(self) -> bool:
        return self.pos < len(self.data)

    def number(self, kind: Struct) -> int:
        try:
            value: int = kind.unpack_from(self.data, self.pos)[0]
        except error:
            raise DecodeError("truncated_body", offset=self.pos) from None
        self.pos += kind.size
        return value

    def chunk(self, size: int) -> bytes:
        start, self.pos = self.pos, self.pos + size
        if self.pos > len(self.data):
            raise DecodeError("truncated_body", offset=start)
        return self.data[start : self.pos]

    def text(self) -> str | None:
        size = self.number(_INT16)
        if size < 0:
            return None
        try:
            return self.chunk(size).decode()
        except UnicodeDecodeError:
            raise DecodeError("text_invalid", offset=self.pos) from None

    def count(self, least: int) -> int:
        """Of an array, each element of which takes at least that many bytes; -1 if null."""
        count = self.number(_INT32)
        if count * least > len(self.data) - self.pos:
            raise DecodeError("array_too_long", offset=self.pos)
        return max(count, -1)


def decode_metadata(data: bytes) -> dict[str, object]:
    """What a worker says when it joins: its address, the config offset it has read, what it runs now.

    Raises:
        DecodeError: `data` is no such message.
    """
    reader = _Reader(data)
    version = _version(reader)
    body: dict[str, object] = {"version": version, "url": reader.text()}
    body["config_offset"] = reader.number(_INT64)
    if version > 0 and reader.more():
        size = reader.number(_INT32)
        body["allocation"] = decode_assignment(reader.chunk(size)) if size >= 0 else None
    _finish(reader)
    return body


def decode_assignment(data: bytes) -> dict[str, object]:
    """What the leader gives a worker to run, and in version 1 and above what it takes away.

    Raises:
        DecodeError: `data` is no such message.
    """
    reader = _Reader(data)
    version = _version(reader)
    body: dict[str, object] = {"version": version, "error_code": reader.number(_INT16)}
    body["leader"] = reader.text()
    body["leader_url"] = reader.text()
    body["config_offset"] = reader.number(_INT64)
    if version == 0 or reader.more():
        body["assignment"] = _connectors(reader)
    if version > 0 and reader.more():
        body["revoked"] = _connectors(reader)
    if version > 0 and reader.more():
        body["delay_ms"] = reader.number(_INT32)
    _finish(reader)
    return body


def _version(reader: _Reader) -> int:
    version = reader.number(_INT16)
    if not 0 <= version <= 2:
        raise DecodeError("value_invalid", "version", 0)
    return version


def _connectors(reader: _Reader) -> list[dict[str, object]] | None:
    """Connectors with the numbers of their tasks; task -1 stands for the connector itself."""
    count = reader.count(6)
    if count < 0:
        return None
    return [{"connector": reader.text(), "tasks": _tasks(reader)} for _ in range(count)]


def _tasks(reader: _Reader) -> list[int]:
    return [reader.number(_INT32) for _ in range(reader.count(4))]


def _finish(reader: _Reader) -> None:
    if reader.more():
        raise DecodeError("trailing_bytes", offset=reader.pos)
