"""Cutting the input into splits: ranges of packets of one file each.

An uncompressed pcap or pcapng file is cut where records begin. Those places come from reading all record
headers of the file with the same reader that will read the splits (`cut`, or in `kwsniff.run.stretch` many
at once), so they cannot be wrong; a file in which that reader had to look for records, because of damage, is
not cut, nor is a compressed one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from kwsniff.capture.pcap import CHAIN, FILE_HEADER, MAGICS, MAX_JUMP, PcapReader
from kwsniff.capture.pcapng import INTERFACE, MAGIC, SECTION, SMALLEST, PcapngReader
from kwsniff.capture.place import opened, size_of
from kwsniff.capture.reader import Reader, Window
from kwsniff.capture.source import CaptureFile, resolve
from kwsniff.capture.stream import ByteStream
from kwsniff.config import Config
from kwsniff.net.packets import CaptureTotals, Integers, PacketBlock

PACKET_AT = 28
"""Where the packet lies in an enhanced or obsolete packet block of pcapng."""
SPLIT_BYTES = 1 << 30
"""Size of a split, about. At each cut every connection is followed step by step for a while, twice, so splits
are as large as may be lost with a worker."""


@dataclass(frozen=True, slots=True)
class Split:
    """Packets of one file, or all packets of several."""

    path: str
    start: int = 0
    end: int | None = None
    """Bytes of the file; None: the whole file, read as any other."""
    packet: int = 1
    """Number of the first packet."""
    before_ns: int = 0
    """Time of the packet before it, in nanoseconds."""
    prelude: bytes = b""
    """What a file that begins here would begin with: file header or section header and interfaces."""
    last: bool = True
    """The file ends with it."""
    dropped: int = 0
    """Packets that the file says were dropped, told with its last split."""
    more: tuple[str, ...] = ()
    """Further whole files behind a whole file."""


Cut = tuple[int, int, int, bytes]
"""A place in a file, how many packets are before it, the time of the last, and the prelude of what begins."""


@dataclass(slots=True)
class _Cuts:
    """Where a file could be cut."""

    wanted: list[int]
    found: list[Cut] = field(default_factory=list)
    last_ns: int = 0

    def offer(self, places: Integers, block: PacketBlock, prelude: bytes) -> None:
        """The packets of this block begin at these places; each wanted place takes the next one."""
        packets, times = int(block.number[0]) - 1, block.time_ns
        while self.wanted and len(places) and self.wanted[0] <= places[-1]:
            index = int(np.searchsorted(places, self.wanted[0]))
            place = int(places[index])
            self.wanted = [each for each in self.wanted if each > place]
            if packets + index:
                before_ns = int(times[index - 1]) if index else self.last_ns
                self.found.append((place, packets + index, before_ns, prelude))
        self.last_ns = int(times[-1])


def plan(paths: Sequence[str | os.PathLike[str]], config: Config, size: int = SPLIT_BYTES) -> list[Split]:
    """The splits of the captures at `paths`, in the order of their packets. Raises CaptureError."""
    files = resolve(paths)
    return joined(files, [pieces(file.path, config, size) for file in files], size)


def pieces(path: str, config: Config, size: int) -> list[Split]:
    """A file in splits of about so many bytes. Raises CaptureError."""
    wanted = places(size_of(path), size)
    return cut(path, wanted, config) if wanted else [Split(path)]


def places(total: int, size: int) -> list[int]:
    """Where splits of about so many bytes, all of one size, should begin, but for the first, in a file of
    `total` bytes."""
    count = max(round(total / size), 1)
    return [total * number // count for number in range(1, count)]


def joined(files: Sequence[CaptureFile], parts: Sequence[list[Split]], size: int) -> list[Split]:
    """All splits in order; small files that follow each other are one split."""
    splits: list[Split] = []
    room = 0
    for file, own in zip(files, parts, strict=True):
        stored = file.size or 0
        if len(own) == 1 and own[0].end is None and stored <= room:
            splits[-1] = replace(splits[-1], more=(*splits[-1].more, file.path))
            room -= stored
        else:
            splits += own
            room = size - stored if own[-1].end is None else 0
    return splits


def cut(path: str, wanted: Sequence[int], config: Config) -> list[Split]:
    """A file in splits that begin at the first records behind the offsets `wanted`. Raises CaptureError."""
    if not can_be_cut(path):
        return [Split(path)]
    size = size_of(path)
    totals = CaptureTotals()
    cuts = _Cuts(sorted(set(wanted)))
    with opened(path) as file:
        window = Window(ByteStream(file, path, size), config.block_bytes)
        window.move(0)
        sound = _offered(indexer(window, path, config, totals), cuts)
    if not sound or not cuts.found or totals.damaged:
        return [Split(path)]
    return splits_at(path, cuts.found, size, totals.dropped)


def can_be_cut(path: str) -> bool:
    """Whether a file is an uncompressed capture. Raises CaptureError."""
    with opened(path) as file:
        magic = file.read(4)
    return magic in MAGICS or magic == MAGIC


def splits_at(path: str, cuts: Sequence[Cut], size: int, dropped: int) -> list[Split]:
    """A file of so many bytes in splits that begin at its start and at the cuts."""
    starts = [(0, 0, 0, b""), *cuts]
    ends = [start for start, *_ in cuts] + [size]
    return [
        Split(path, start, end, before + 1, before_ns, prelude, end == size, dropped if end == size else 0)
        for (start, before, before_ns, prelude), end in zip(starts, ends, strict=True)
    ]


class PcapIndexer(PcapReader):
    """Reads a pcap file for places of packets, and what a packet further on needs to be read (`prelude`)."""

    timeless = False
    dropped = 0
    """pcap files don't tell of any."""

    def __init__(self, window: Window, capture: str, config: Config, totals: CaptureTotals) -> None:
        super().__init__(window, capture, config, totals)
        self.prelude = window.data[:FILE_HEADER].tobytes()

    def places(self, block: PacketBlock) -> Integers:
        """Where in the file the records of the packets begin."""
        return block.offset - self._header + (block.place or 0)

    def found(self, at: int) -> int | None:
        """The first place from `at` on in the window from which records seem to go on."""
        place, sure = self._find(at)
        return place + self._window.start if sure else None


class PcapngIndexer(PcapngReader):
    """The same for a pcapng file."""

    prelude = b""
    timeless = False
    """There are packets without a time: they have that of the packet before."""

    @property
    def dropped(self) -> int:
        """Packets that this section says were dropped, so far."""
        return self._interfaces.dropped()

    def places(self, block: PacketBlock) -> Integers:
        """As that of `PcapIndexer`, in which blocks are records."""
        return block.offset - PACKET_AT + (block.place or 0)

    def found(self, at: int) -> int | None:
        """As that of `PcapIndexer`."""
        self._order = self._section_order(0) or self._order
        place, sure = self._find(at)
        while sure and not self._goes_on(place):
            place, sure = self._find(place + 1)
        return place + self._window.start if sure else None

    def _goes_on(self, place: int) -> bool:
        """Whether some blocks follow each other from a place on, as far as the window shows."""
        for _ in range(CHAIN):
            whole = self._is_block(place) if place + SMALLEST <= self._window.size else None
            if not whole:
                return whole is None
            place += self._size_at(place)
        return True

    def packets_at(self, places: Integers) -> Iterator[PacketBlock]:
        """What a packet further on needs is that of its section: packets of no other are in one block."""
        begins = np.flatnonzero(self._words(places, 0) == SECTION)
        for part in np.split(places, begins):
            yield from super().packets_at(part)

    def simple_packets(self, places: Integers, *known: Any) -> Any:
        self.timeless = self.timeless or len(places) > 0
        return super().simple_packets(places, *known)

    def describe(self, place: int, kind: int, size: int) -> None:
        super().describe(place, kind, size)
        if kind in (SECTION, INTERFACE):
            before = b"" if kind == SECTION else self.prelude
            self.prelude = before + self._window.data[place : place + size].tobytes()


Indexer = PcapIndexer | PcapngIndexer


def indexer(window: Window, path: str, config: Config, totals: CaptureTotals) -> Indexer:
    """The one for the file that the window begins with."""
    if window.data[:4].tobytes() in MAGICS:
        return PcapIndexer(window, path, config, totals)
    return PcapngIndexer(window, path, config, totals)


def _offered(reader: Indexer, cuts: _Cuts) -> bool:
    """Offer all places; whether each split can be read on its own."""
    blocks = _even(reader) if isinstance(reader, PcapIndexer) else reader.blocks()
    for block in blocks:
        if block is None or reader.timeless:
            return False
        if len(block):
            cuts.offer(reader.places(block), block, reader.prelude)
    return True


def _even(reader: Reader) -> Iterator[PacketBlock | None]:
    """The reader's blocks; None if times jump so far that it might have looked for damage."""
    last: int | None = None
    for block in reader.blocks():
        if not len(block):
            continue
        jumps = np.abs(np.diff(block.time_ns, prepend=block.time_ns[0] if last is None else last))
        if int(jumps.max()) > MAX_JUMP * 1_000_000_000:
            yield None
            return
        last = int(block.time_ns[-1])
        yield block
