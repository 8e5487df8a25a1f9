"""Samples cut into files as a capturing program that rotates would leave them."""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from pathlib import Path

from kwsniff.capture.source import blocks
from kwsniff.config import Config

HEADER = struct.Struct("<IHHiIII")
RECORD = struct.Struct("<IIII")
MAGIC = 0xA1B23C4D
BEGAN = 1_700_000_000
"""Time of modification of the first file, in seconds; the next ones follow a second apart."""


def rotated(paths: Sequence[str], into: Path, packets: int = 100) -> list[Path]:
    """The packets of `paths`, `packets` to a file, as pcap with nanoseconds."""
    records: list[bytes] = []
    link = 1
    for path in paths:
        for block in blocks(path, Config()):
            data = memoryview(block.data)
            for at, size, wire, time, linktype in zip(
                block.offset.tolist(), block.caplen.tolist(), block.origlen.tolist(), block.time_ns.tolist(),
                block.linktype.tolist(), strict=True,
            ):  # fmt: skip
                link = linktype
                second, rest = divmod(time, 1_000_000_000)
                records.append(RECORD.pack(second, rest, size, wire) + bytes(data[at : at + size]))
    into.mkdir(parents=True, exist_ok=True)
    files = []
    for number, first in enumerate(range(0, len(records), packets)):
        file = into / f"trace{number}.pcap"
        head = HEADER.pack(MAGIC, 2, 4, 0, 0, 262144, link)
        file.write_bytes(head + b"".join(records[first : first + packets]))
        os.utime(file, (BEGAN + number, BEGAN + number))
        files.append(file)
    return files


def later(file: Path, into: Path, hours: int) -> None:
    """A file that `rotated` made, again at `into`, so many hours later."""
    data = bytearray(file.read_bytes())
    at = HEADER.size
    while at < len(data):
        second, rest, size, wire = RECORD.unpack_from(data, at)
        RECORD.pack_into(data, at, second + 3600 * hours, rest, size, wire)
        at += RECORD.size + size
    into.write_bytes(data)
    modified = int(file.stat().st_mtime) + 3600 * hours
    os.utime(into, (modified, modified))
