"""A capture with a small snap length cannot show what a connection carries: it must not say `not_kafka`."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

import kwsniff

SAMPLE = Path("captures/ipv6.pcap")


def records(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = 24
    while at < len(data):
        (size,) = struct.unpack_from("<I", data, at + 8)
        yield data[at : at + 16], data[at + 16 : at + 16 + size]
        at += 16 + size


def snapped(data: bytes, size: int) -> bytes:
    """The capture as `tcpdump -s size` had written it."""
    parts = [data[:24]]
    for header, packet in records(data):
        parts.append(header[:8] + struct.pack("<I", min(size, len(packet))) + header[12:] + packet[:size])
    return b"".join(parts)


@pytest.mark.parametrize("payload", range(11))  # IPv6 and TCP with timestamps take 86 bytes: as 66 with IPv4
def test_who_saw_no_header_does_not_judge(payload: int, tmp_path: Path) -> None:
    path = tmp_path / "snapped.pcap"
    path.write_bytes(snapped(SAMPLE.read_bytes(), 86 + payload))
    codes = {row["code"] for batch in kwsniff.events(path) for row in batch.to_pylist()}
    assert "not_kafka" not in codes
