"""What the readers of all capture formats share: the window on the file, packet numbers, notes on damage."""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from kwsniff.capture.stream import ByteStream
from kwsniff.config import Config
from kwsniff.net.packets import Bytes, CaptureTotals, Integers, Note, PacketBlock

MAX_CAPLEN = 262_144
"""Bytes of one packet: the largest snaplen that libpcap and Wireshark write for networks."""
MAX_SNAPLEN = 16 << 20
"""A file may announce longer packets, up to here."""


class Reader(ABC):
    """Reads one capture, once, from front to back."""

    def __init__(self, window: Window, capture: str, config: Config, totals: CaptureTotals) -> None:
        self.packets = 0
        """Packets handed out so far."""
        self._window = window
        self._capture = capture
        self._block_packets = config.block_packets
        self._totals = totals
        self._notes: list[Note] = []
        self._secrets: list[bytes] = []
        """Key logs that came since the last block."""
        self._last_time_ns: int | None = None

    def go_on(self, packets: int, time_ns: int) -> None:
        """What is read now is part of a file, behind so many packets, the last of which had this time."""
        self.packets, self._last_time_ns = packets, time_ns

    @abstractmethod
    def blocks(self) -> Iterator[PacketBlock]:
        """The packets of the file, in its order. Damage becomes notes, never an error."""

    def _cut(
        self, offset: Integers, caplen: Integers, origlen: Integers, time_ns: Integers, linktype: Integers
    ) -> Iterator[PacketBlock]:
        """Number the packets and hand them out in blocks of the configured size."""
        for first in range(0, len(offset), self._block_packets):
            some = slice(first, first + self._block_packets)
            size = len(offset[some])
            yield PacketBlock(
                self._capture,
                self._window.data,
                offset[some],
                caplen[some],
                origlen[some],
                time_ns[some],
                number=np.arange(self.packets + 1, self.packets + 1 + size, dtype=np.int64),
                linktype=linktype[some],
                notes=self._taken_notes(),
                place=self._window.start,
                secrets=self._taken_secrets(),
            )
            self.packets += size
        if len(time_ns):
            self._last_time_ns = int(time_ns[-1])

    def _end(self, stop: int, what: str) -> Iterator[PacketBlock]:
        """Note how the file ended: `stop` is where the chain of records did, `what` what begins there.

        Notes and secrets that came after the last packet go out in a block without packets.
        """
        damage = self._window.damage
        if damage is not None:
            code, detail = damage
            self._totals.cut_short += code == "capture_cut_short"
            self._totals.damaged += code == "capture_damaged"
            self._note(code, detail)
        elif stop < self._window.size:
            self._totals.cut_short += 1
            place = self._window.start + stop
            self._note("capture_cut_short", f"the file ends inside {what} at offset {place}")
        if self._notes or self._secrets:
            yield self._nothing()

    def _find(self, at: int) -> tuple[int, bool]:
        """The first place from `at` on in the window where records go on, -1 if there is none, and whether
        that is sure, which it may not be at the end of the window."""
        raise NotImplementedError

    def _search(self, at: int, header: int, need: int) -> tuple[int, bool]:
        """As `_find`, in the windows that follow too: a header of so many bytes may lie across two, and so
        many are needed to be sure."""
        window = self._window
        found, sure = self._find(at)
        while not sure and not window.at_end and not window.dry:
            window.move(max(window.size - header + 1, at) if found < 0 else found, need)
            at = 0
            found, sure = self._find(0)
        return found, sure

    def _nothing(self) -> PacketBlock:
        """A block without packets."""
        none = np.empty(0, np.int64)
        return PacketBlock(
            self._capture, self._window.data, none, none, none, none, number=none, linktype=none,
            notes=self._taken_notes(), secrets=self._taken_secrets(),
        )  # fmt: skip

    def _taken_notes(self) -> list[Note]:
        notes, self._notes = self._notes, []
        return notes

    def _taken_secrets(self) -> bytes:
        secrets, self._secrets = b"".join(self._secrets), []
        return secrets

    def _note(self, code: str, detail: str) -> None:
        """Note something about the place where the next packet would be."""
        self._notes.append(Note(self.packets + 1, code, detail, self._last_time_ns))

    def _note_skipped(self, position: int, size: int) -> None:
        self._totals.damaged += 1
        self._totals.skipped_bytes += size
        self._note("capture_damaged", f"{size} bytes at offset {position} are no packets and were skipped")


# The part of a capture that is in memory: a buffer that moves through the stream, one block at a time.
#
# A block's buffer is never written again once its packets are handed out, since Arrow arrays point into it:
# every move allocates a new one and copies the few bytes of the record that did not fit. Behind the data come
# `SLACK` zero bytes, so that fixed-size headers can be gathered up to the very end.

SLACK = 64
SMALLEST = 64
"""Bytes read at a time at least: no header is longer."""


class Window:
    """`data[:size]` are the bytes of the stream from `start` on."""

    data: Bytes = np.zeros(SLACK, np.uint8)
    size = start = 0
    """`start` is an offset in the (decompressed) stream."""
    at_end = False
    """No more bytes follow."""
    dry = False
    """The last move brought nothing, and yet more may follow (see `kwsniff.capture.growing`)."""

    def __init__(self, stream: ByteStream, block_bytes: int) -> None:
        self._stream = stream
        self._block_bytes = max(block_bytes, SMALLEST)

    @property
    def damage(self) -> tuple[str, str] | None:
        """Anomaly code and detail if the compressed input ended early or was broken."""
        return self._stream.damage

    def begin(self) -> None:
        """Read the first bytes, as many as tell the format. Raises CaptureError."""
        self.move(0)

    def move(self, keep: int, need: int = 0) -> None:
        """Drop the bytes before `keep` and read on until the buffer holds a block, or `need` bytes.

        Sizes depend on the stream's content only, so that every run cuts the same blocks.
        """
        rest = self.data[keep : self.size]
        capacity = max(self._block_bytes, need, len(rest) + 1)
        data = np.empty(capacity + SLACK, np.uint8)
        data[: len(rest)] = rest
        size = len(rest) + self._stream.fill(data.data[len(rest) : capacity])
        data[size : size + SLACK] = 0
        self.at_end = size < capacity
        self.start += keep
        self.data, self.size = data, size


# The interfaces of a pcapng section: link type, time resolution and offset, drop counts.

_SECOND = 1_000_000_000
_END, _TSRESOL, _TSOFFSET = 0, 9, 14
_IFDROP, _OSDROP = 5, 7


@dataclass(frozen=True, slots=True)
class Interface:
    """One interface of a section."""

    linktype: int
    snaplen: int
    """Bytes captured of a packet at most, 0 for all."""
    resolution: int = 6
    """`if_tsresol`: a negative power of 10, or of 2 if the highest bit is set."""
    offset: int = 0
    """`if_tsoffset`: seconds to add."""

    def nanoseconds(self, ticks: Integers) -> Integers:
        """Timestamps in units of the resolution as nanoseconds since 1970 UTC, rounded down.

        `ticks` are unsigned 64-bit numbers in int64.
        """
        exponent = self.resolution & 0x7F
        if self.resolution == 6:
            time = ticks * 1000
        elif self.resolution == 9:
            time = ticks
        else:
            unit = (2 if self.resolution & 0x80 else 10) ** exponent
            exact = ((tick & 0xFFFF_FFFF_FFFF_FFFF) * _SECOND // unit for tick in ticks.tolist())
            time = np.fromiter((_wrapped(value) for value in exact), np.int64, len(ticks))
        return time + np.int64(_wrapped(self.offset * _SECOND)) if self.offset else time


def _wrapped(value: int) -> int:
    """As int64 arithmetic would have it: times that far out are nonsense, but must not raise."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


class Interfaces:
    """The interfaces of one section, in the order of their blocks, which is how packets name them."""

    def __init__(self) -> None:
        self._interfaces: list[Interface] = []
        self._dropped: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._interfaces)

    def __iter__(self) -> Iterator[Interface]:
        return iter(self._interfaces)

    def __getitem__(self, index: int) -> Interface:
        return self._interfaces[index]

    def add(self, body: bytes, order: str) -> None:
        """Take the body of an interface description block; one too short describes an unknown link type."""
        if len(body) < 8:
            self._interfaces.append(Interface(linktype=0xFFFF, snaplen=0))
            return
        linktype, snaplen = struct.unpack_from(order + "HxxI", body)
        resolution, offset = 6, 0
        for code, value in _options(body[8:], order):
            if code == _TSRESOL and value:
                resolution = value[0]
            elif code == _TSOFFSET and len(value) == 8:
                (offset,) = struct.unpack(order + "q", value)
        self._interfaces.append(Interface(linktype, snaplen, resolution, offset))

    def add_statistics(self, body: bytes, order: str) -> None:
        """Take the body of an interface statistics block; its counts run from the start of the capture."""
        if len(body) < 12:
            return
        (interface,) = struct.unpack_from(order + "I", body)
        drops = [
            struct.unpack(order + "Q", value)[0]
            for code, value in _options(body[12:], order)
            if code in (_IFDROP, _OSDROP) and len(value) == 8
        ]
        if drops:
            self._dropped[interface] = sum(drops)

    def dropped(self) -> int:
        """Packets that the interfaces and the operating system dropped, by the last statistics."""
        return sum(self._dropped.values())


def _options(options: bytes, order: str) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + 4 <= len(options):
        code, length = struct.unpack_from(order + "HH", options, at)
        if code == _END:
            return
        yield code, options[at + 4 : at + 4 + length]
        at += 4 + (length + 3 & ~3)
