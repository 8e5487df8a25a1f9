"""What the readers of all capture formats share: the window on the file, packet numbers, notes on damage."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

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
                np.arange(self.packets + 1, self.packets + 1 + size, dtype=np.int64),
                linktype[some],
                self._taken_notes(),
                self._window.start,
            )
            self.packets += size
        if len(time_ns):
            self._last_time_ns = int(time_ns[-1])

    def _end(self, stop: int, what: str) -> Iterator[PacketBlock]:
        """Note how the file ended: `stop` is where the chain of records did, `what` what begins there.

        Notes that came after the last packet go out in a block without packets.
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
        if self._notes:
            yield self._nothing()

    def _nothing(self) -> PacketBlock:
        """A block without packets."""
        none = np.empty(0, np.int64)
        notes = self._taken_notes()
        return PacketBlock(self._capture, self._window.data, none, none, none, none, none, none, notes)

    def _taken_notes(self) -> list[Note]:
        notes, self._notes = self._notes, []
        return notes

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

    dry = False
    """The last move brought nothing, and yet more may follow (see `kwsniff.capture.growing`)."""

    def __init__(self, stream: ByteStream, block_bytes: int) -> None:
        self._stream = stream
        self._block_bytes = max(block_bytes, SMALLEST)
        self.data: Bytes = np.zeros(SLACK, np.uint8)
        self.size = 0
        self.start = 0
        """Offset in the (decompressed) stream of the first byte."""
        self.at_end = False
        """No more bytes follow."""

    @property
    def damage(self) -> tuple[str, str] | None:
        """Anomaly code and detail if the compressed input ended early or was broken."""
        return self._stream.damage

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
