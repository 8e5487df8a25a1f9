"""Packets written as pcapng (IETF draft-ietf-opsawg-pcapng), in files that are changed by size or time.

A file is whole after every write: the format is a row of blocks, each is written at once, and what a full
disk leaves of one is taken away again.
"""

from __future__ import annotations

import os
import re
import struct
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from kwsniff.capture.error import LiveError
from kwsniff.capture.keymaterial import AddedLines
from kwsniff.capture.pcapng import SECRETS, TLS_KEY_LOG
from kwsniff.net.packets import Integers, Mask, PacketBlock

SECTION, INTERFACE, _STATISTICS, PACKET = 0x0A0D0D0A, 1, 5, 6
MOST_SECRETS = 1 << 20
"""Bytes of a key log in one block."""
_NAME, _FILTER, RESOLUTION, _OS_DROP, _RECEIVED, _DROPPED, _APPLICATION = 2, 11, 9, 7, 4, 5, 4
NANOSECONDS = b"\x09"
SNAPLEN = 262_144
_FIXED = 32
"""Bytes of a packet's block beside the packet."""


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
        self,
        path: str,
        interfaces: Sequence[WrittenInterface],
        rotation: WriterRotation | None = None,
        key_log: AddedLines | None = None,
    ) -> None:
        """Open the first file. `key_log`: its secrets are written, too, at the beginning of each file all so
        far, others as they come. Raises LiveError."""
        self._path, self._rotation, self._key_log = path, rotation, key_log
        self._secrets = b""
        self._apart = 0
        """Bytes of the file that are secrets, which its size does not count."""
        self._interfaces = list(interfaces)
        self._index = {interface.name: index for index, interface in enumerate(interfaces)}
        self._counts = [Counts() for _ in interfaces]
        self._count = 0
        self.files: list[str] = []
        """Names of the files so far."""
        self._open()

    def write(self, block: PacketBlock, chosen: Mask | None = None) -> None:
        """Append packets of a block: all, or those chosen.

        Raises:
            OSError: with the name of the file, which is closed then and whole.
            LiveError: there can be no other file.
        """
        self._write_secrets()
        rows = np.arange(len(block)) if chosen is None else np.flatnonzero(chosen)
        ends = np.cumsum(_FIXED + block.caplen[rows] + -block.caplen[rows] % 4)
        at = 0
        while at < len(rows):
            before = int(ends[at - 1]) if at else 0
            if self._is_over(int(ends[at]) - before):
                self._close_file()
                self._open()
            stop = max(int(np.searchsorted(ends, before + self._room(), "right")), at + 1)
            here = ends[at:stop] - before
            self._append(self._blocks(block, rows[at:stop], here), here)
            at = stop

    def count(self, name: str, received: int, kernel_dropped: int, own_dropped: int) -> None:
        """Note what the statistics at the end of a file are to say of an interface."""
        self._counts[self._index[name]] = Counts(received, kernel_dropped, own_dropped)

    def close(self) -> None:
        """Write statistics and close. Raises OSError."""
        self._close_file()

    def _is_over(self, size: int) -> bool:
        """Whether a packet that takes so many bytes belongs to another file: each has one, however large."""
        rotation = self._rotation
        if rotation is None or self._written == self._begun:
            return False
        late = rotation.seconds is not None and time.monotonic() - self._since >= rotation.seconds
        return late or size > self._room()

    def _room(self) -> int:
        """Bytes that packets may still take of the file."""
        if self._rotation is None or self._rotation.size is None:
            return 1 << 62
        return self._rotation.size - (self._written - self._apart) - len(self._statistics())

    def _more_secrets(self) -> bytes:
        """Blocks of the secrets since the last time; packets are written without, too."""
        more = b""
        with suppress(OSError):
            more = self._key_log.more() if self._key_log is not None else b""
        self._secrets += more
        return secrets_blocks(more)

    def _write_secrets(self) -> None:
        if made := self._more_secrets():
            self._append(made, np.array([len(made)]))
            self._begun += len(made)
            self._apart += len(made)

    def _blocks(self, block: PacketBlock, rows: Integers, ends: Integers) -> memoryview:
        """Packets as blocks that end at `ends`."""
        offset, caplen, when = block.offset[rows], block.caplen[rows], block.time_ns[rows]
        starts = np.append(0, ends[:-1])
        words = np.zeros(int(ends[-1]) // 4, np.uint32)  # every block is as long as a multiple of four
        index = self._index[block.capture]
        head = (PACKET, ends - starts, index, when >> 32, when & 0xFFFFFFFF, caplen, block.origlen[rows])
        for place, values in enumerate(head):
            words[starts // 4 + place] = values
        words[ends // 4 - 1] = ends - starts
        made, data = memoryview(words).cast("B"), memoryview(block.data)  # type: ignore[arg-type]
        begin, end = (starts + 28).tolist(), (starts + 28 + caplen).tolist()
        first, last = offset.tolist(), (offset + caplen).tolist()
        for to, until, at, stop in zip(begin, end, first, last, strict=True):
            made[to:until] = data[at:stop]
        return made

    def _append(self, data: bytes | memoryview, ends: Integers) -> None:
        """Write blocks that end at `ends`; if not all can be written, only whole ones stay."""
        rest, done = memoryview(data), 0
        try:
            while done < len(data):
                done += self._stream.write(rest[done:]) or 0
        except OSError as error:
            whole = int(np.searchsorted(ends, done, "right"))
            self._written += int(ends[whole - 1]) if whole else 0
            self._give_up()
            raise OSError(error.errno, error.strerror, self.files[-1]) from None
        self._written += done

    def _give_up(self) -> None:
        """Close a file that takes no more; it ends with its last whole block."""
        with suppress(OSError):
            self._cut()
            if self._stream.write(statistics := self._statistics()) != len(statistics):
                self._cut()
        with suppress(OSError):
            self._stream.close()

    def _cut(self) -> None:
        self._stream.seek(self._written)
        self._stream.truncate()

    def _open(self) -> None:
        self._count += 1
        name = self._path
        if self._rotation is not None:
            root, ending = os.path.splitext(self._path)
            stamp = time.strftime("%Y%m%d%H%M%S", time.gmtime())
            name = f"{root}_{self._count:05d}_{stamp}{ending or '.pcapng'}"
        self._more_secrets()
        secrets = secrets_blocks(self._secrets)
        head = self._head() + secrets
        try:
            self._stream = open(name, "wb", buffering=0)  # noqa: SIM115 - closed in _close_file
            self._stream.write(head)
        except OSError as error:
            raise LiveError(f"cannot write {name}: {error.strerror or error}") from None
        self.files.append(name)
        del self.files[:-1000]
        self._since = time.monotonic()
        self._written = self._begun = len(head)
        self._apart = len(secrets)

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
        self._write_secrets()
        statistics = self._statistics()
        self._append(statistics, np.array([len(statistics)]))
        self._stream.close()

    def _statistics(self) -> bytes:
        now = time.time_ns()
        blocks = []
        for index, counts in enumerate(self._counts):
            fields = struct.pack("<III", index, now >> 32, now & 0xFFFFFFFF)
            found = options(
                (_RECEIVED, struct.pack("<Q", counts.received)),
                (_DROPPED, struct.pack("<Q", counts.own_dropped)),
                (_OS_DROP, struct.pack("<Q", counts.kernel_dropped)),
            )
            blocks.append(block(_STATISTICS, fields + found))
        return b"".join(blocks)


def block(kind: int, body: bytes) -> bytes:
    """One block of a pcapng file; `body` is as long as a multiple of four."""
    size = 12 + len(body)
    return struct.pack("<II", kind, size) + body + struct.pack("<I", size)


def secrets_blocks(key_log: bytes) -> bytes:
    """Decryption Secrets Blocks with the lines of a TLS key log, none if it is empty."""
    blocks, at = [], 0
    while at < len(key_log):
        stop = key_log.rfind(b"\n", at, at + MOST_SECRETS) + 1 or len(key_log)
        head = struct.pack("<II", TLS_KEY_LOG, stop - at)
        blocks.append(block(SECRETS, head + key_log[at:stop] + b"\0" * ((at - stop) % 4)))
        at = stop
    return b"".join(blocks)


def options(*given: tuple[int, bytes]) -> bytes:
    """Options of a block by code, with what ends them."""
    parts = [
        struct.pack("<HH", code, len(value)) + value + b"\0" * (-len(value) % 4) for code, value in given
    ]
    return b"".join(parts) + struct.pack("<HH", 0, 0)
