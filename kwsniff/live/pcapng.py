"""Packets written as pcapng (IETF draft-ietf-opsawg-pcapng), in files that are changed by size or time.

A file is whole after every write: the format is a row of blocks, and each block is written at once.
"""

from __future__ import annotations

import os
import re
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO

import numpy as np

from kwsniff.live.errors import LiveError
from kwsniff.net.packets import Mask, PacketBlock

SECTION, INTERFACE, _STATISTICS, PACKET = 0x0A0D0D0A, 1, 5, 6
_NAME, _FILTER, RESOLUTION, _OS_DROP, _RECEIVED, _DROPPED, _APPLICATION = 2, 11, 9, 7, 4, 5, 4
NANOSECONDS = b"\x09"
SNAPLEN = 262_144


@dataclass(frozen=True, slots=True)
class WriterRotation:
    """When to begin another file."""

    size: int | None = None
    """Bytes."""
    seconds: float | None = None

    @classmethod
    def of(cls, text: str) -> WriterRotation:
        """From `100M` (bytes; K, M, G), `1h` (s, m, h, d) or both with a comma. Raises ValueError."""
        size, seconds = None, None
        for part in text.split(","):
            found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMG]i?B?|s|min|m|h|d)\s*", part)
            if found is None or float(found[1]) <= 0:
                raise ValueError(f"{text!r} is neither a size such as 100M nor a time such as 1h")
            value, unit = float(found[1]), found[2]
            if unit[0] in "KMG":
                size = int(value * 1000 ** ("KMG".index(unit[0]) + 1))
            else:
                seconds = value * {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}[unit]
        return cls(size, seconds)


@dataclass(frozen=True, slots=True)
class WrittenInterface:
    """What a file says of an interface."""

    name: str
    linktype: int
    bpf: str


@dataclass(slots=True)
class Counts:
    """Of one interface, since the start."""

    received: int = 0
    kernel_dropped: int = 0
    own_dropped: int = 0


class PcapngFiles:
    """Writes packets to FILE, or, with a rotation, to FILE_00001_20261121120000.pcapng and so on."""

    def __init__(
        self, path: str, interfaces: Sequence[WrittenInterface], rotation: WriterRotation | None = None
    ) -> None:
        """Open the first file. Raises LiveError."""
        self._path, self._rotation = path, rotation
        self._interfaces = list(interfaces)
        self._index = {interface.name: index for index, interface in enumerate(interfaces)}
        self._counts = [Counts() for _ in interfaces]
        self._count = 0
        self.files: list[str] = []
        """Names of the files so far."""
        self._open()

    def write(self, block: PacketBlock, chosen: Mask | None = None) -> None:
        """Append packets of a block: all, or those chosen. Raises OSError."""
        if self._due():
            self._close_file()
            self._open()
        rows = np.arange(len(block)) if chosen is None else np.flatnonzero(chosen)
        if not len(rows):
            return
        data = memoryview(block.data)  # type: ignore[arg-type]
        index = self._index[block.capture]
        parts: list[bytes | memoryview] = []
        columns = (block.offset, block.caplen, block.origlen, block.time_ns)
        for offset, caplen, origlen, when in zip(*(column[rows].tolist() for column in columns), strict=True):
            pad = -caplen % 4
            size = 32 + caplen + pad
            parts.append(
                struct.pack("<IIIIIII", PACKET, size, index, when >> 32, when & 0xFFFFFFFF, caplen, origlen)
            )
            parts.append(data[offset : offset + caplen])
            parts.append(b"\0" * pad + struct.pack("<I", size))
        self._stream.write(b"".join(parts))
        self._written = self._stream.tell()

    def count(self, name: str, received: int, kernel_dropped: int, own_dropped: int) -> None:
        """Note what the statistics at the end of a file are to say of an interface."""
        self._counts[self._index[name]] = Counts(received, kernel_dropped, own_dropped)

    def flush(self) -> None:
        """Let readers see what was written. Raises OSError."""
        self._stream.flush()

    def close(self) -> None:
        """Write statistics and close. Raises OSError."""
        self._close_file()

    def _due(self) -> bool:
        rotation = self._rotation
        if rotation is None:
            return False
        full = rotation.size is not None and self._written >= rotation.size
        return full or (rotation.seconds is not None and time.monotonic() - self._since >= rotation.seconds)

    def _open(self) -> None:
        self._count += 1
        name = self._path
        if self._rotation is not None:
            root, ending = os.path.splitext(self._path)
            stamp = time.strftime("%Y%m%d%H%M%S", time.gmtime())
            name = f"{root}_{self._count:05d}_{stamp}{ending or '.pcapng'}"
        try:
            self._stream: IO[bytes] = open(name, "wb")  # noqa: SIM115 - closed in _close_file
        except OSError as error:
            raise LiveError(f"cannot write {name}: {error.strerror or error}") from None
        self.files.append(name)
        del self.files[:-1000]
        self._since = time.monotonic()
        self._stream.write(self._head())
        self._stream.flush()
        self._written = self._stream.tell()

    def _head(self) -> bytes:
        section = struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1) + options((_APPLICATION, b"kwsniff live"))
        blocks = [block(SECTION, section)]
        for interface in self._interfaces:
            found = [(_NAME, interface.name.encode()), (RESOLUTION, NANOSECONDS)]
            if interface.bpf:
                found.append((_FILTER, b"\0" + interface.bpf.encode()))
            fields = struct.pack("<HHI", interface.linktype, 0, SNAPLEN)
            blocks.append(block(INTERFACE, fields + options(*found)))
        return b"".join(blocks)

    def _close_file(self) -> None:
        now = time.time_ns()
        for index, counts in enumerate(self._counts):
            fields = struct.pack("<III", index, now >> 32, now & 0xFFFFFFFF)
            found = options(
                (_RECEIVED, struct.pack("<Q", counts.received)),
                (_DROPPED, struct.pack("<Q", counts.own_dropped)),
                (_OS_DROP, struct.pack("<Q", counts.kernel_dropped)),
            )
            self._stream.write(block(_STATISTICS, fields + found))
        self._stream.close()


def block(kind: int, body: bytes) -> bytes:
    """One block of a pcapng file; `body` is as long as a multiple of four."""
    size = 12 + len(body)
    return struct.pack("<II", kind, size) + body + struct.pack("<I", size)


def options(*given: tuple[int, bytes]) -> bytes:
    """Options of a block by code, with what ends them."""
    parts = [
        struct.pack("<HH", code, len(value)) + value + b"\0" * (-len(value) % 4) for code, value in given
    ]
    return b"".join(parts) + struct.pack("<HH", 0, 0)
