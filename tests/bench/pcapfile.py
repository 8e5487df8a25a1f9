"""Classic pcap files as the bench needs them: raw records to copy, cut, damage and shift in time."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HEADER = 24
TIME = 8  # seconds and fraction, the first half of a record header
LENGTHS = struct.Struct("<II")
MAGICS = {b"\xd4\xc3\xb2\xa1": 1_000_000, b"\x4d\x3c\xb2\xa1": 1_000_000_000}
CHUNK = 1 << 22


@dataclass(frozen=True)
class Header:
    """A file's header and what fractions of a second its times count."""

    raw: bytes
    per_second: int


def header(path: Path) -> Header:
    with path.open("rb") as file:
        raw = file.read(HEADER)
    if raw[:4] not in MAGICS:
        raise SystemExit(f"{path}: is no little-endian pcap file")
    return Header(raw, MAGICS[raw[:4]])


def packets(path: Path) -> Iterator[tuple[bytes, bytes]]:
    """Of each packet its time and the rest of its record (lengths and bytes), both as stored."""
    with path.open("rb", buffering=CHUNK) as file:
        file.seek(HEADER)
        while len(record := file.read(TIME + LENGTHS.size)) == TIME + LENGTHS.size:
            captured, _ = LENGTHS.unpack_from(record, TIME)
            body = file.read(captured)
            if len(body) < captured:
                return
            yield record[:TIME], record[TIME:] + body


def count(path: Path) -> int:
    return sum(1 for _ in packets(path))
