"""Conversations written segment by segment, to be cut where it hurts."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from kwsniff.run.plan import Split, cut
from tests.hostile.wire import ACK, FIN, GLOBAL, PSH, RST, SYN, Flow
from tests.parts.compare import SMALL

__all__ = ["ACK", "FIN", "PSH", "RST", "SYN", "Talk", "api_versions", "no_versions", "request", "response"]

HEARTBEAT = 12


def request(
    correlation_id: int, *, key: int = HEARTBEAT, version: int = 0, body: bytes | None = None
) -> bytes:
    """A Heartbeat v0 request, or one with the given body."""
    group, member = b"\0\5group", b"\0\6member"
    body = group + struct.pack(">i", 1) + member if body is None else body
    data = struct.pack(">hhi", key, version, correlation_id) + b"\0\6client" + body
    return struct.pack(">i", len(data)) + data


def response(correlation_id: int, error: int = 0) -> bytes:
    """A Heartbeat v0 response."""
    return struct.pack(">iih", 6, correlation_id, error)


def api_versions(correlation_id: int) -> bytes:
    """An ApiVersions v3 request, which names the client's software (KIP-511)."""
    header = struct.pack(">hhi", 18, 3, correlation_id) + b"\0\6client\0"
    data = header + b"\x08library" + b"\x041.0" + b"\0"
    return struct.pack(">i", len(data)) + data


def no_versions(correlation_id: int) -> bytes:
    """An ApiVersions v3 response without any API."""
    data = struct.pack(">ih", correlation_id, 0) + b"\x01" + struct.pack(">i", 0) + b"\0"
    return struct.pack(">i", len(data)) + data


class Talk:
    """A capture file in the making."""

    def __init__(self) -> None:
        self.records: list[bytes] = []

    def add(self, record: bytes) -> None:
        self.records.append(record)

    def open(self, flow: Flow) -> None:
        self.add(flow.send(0, b"", SYN))
        self.add(flow.send(1, b"", SYN | ACK))
        self.add(flow.send(0, b"", ACK))

    def exchange(self, flow: Flow, first: int, count: int) -> None:
        """So many requests, each answered before the next."""
        for correlation_id in range(first, first + count):
            self.add(flow.send(0, request(correlation_id)))
            self.add(flow.send(1, response(correlation_id)))

    def write(self, place: Path) -> str:
        """The capture file."""
        path = place / "talk.pcap"
        path.write_bytes(GLOBAL + b"".join(self.records))
        return str(path)

    def splits(self, path: str, cuts: Sequence[int]) -> list[Split]:
        """The splits of that file that begin with the segments of these numbers."""
        starts = np.cumsum([len(GLOBAL), *map(len, self.records)])
        return cut(path, [int(starts[index]) for index in cuts], SMALL)
