"""Cutting the input into splits: ranges of packets of one file each.

An uncompressed pcap or pcapng file is cut where records begin. Those places come from reading all record
headers of the file with the same reader that will read the splits (`index`), so they cannot be wrong; a file
in which that reader had to look for records, because of damage, is not cut, nor is a compressed one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from kwsniff.capture.pcap import FILE_HEADER, MAGICS, MAX_JUMP, PcapReader
from kwsniff.capture.pcapng import INTERFACE, MAGIC, PcapngReader
from kwsniff.capture.place import opened, size_of
from kwsniff.capture.reader import Reader
from kwsniff.capture.source import CaptureFile, resolve
from kwsniff.capture.stream import ByteStream
from kwsniff.capture.window import Window
from kwsniff.config import Config
from kwsniff.net.packets import Integers, PacketBlock
from kwsniff.net.totals import CaptureTotals

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


@dataclass(slots=True)
class _Cuts:
    """Where a file could be cut: places in it, the packets before them, and what has to be known there."""

    wanted: list[int]
    found: list[tuple[int, int, int, bytes]] = field(default_factory=list)
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
    wanted = list(range(size, size_of(path) - size // 2, size))
    return cut(path, wanted, config) if wanted else [Split(path)]


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
    with opened(path) as file:
        magic = file.read(4)
    size = size_of(path)
    if magic not in MAGICS and magic != MAGIC:
        return [Split(path)]
    totals = CaptureTotals()
    cuts = _Cuts(sorted(set(wanted)))
    with opened(path) as file:
        window = Window(ByteStream(file, path, size), config.block_bytes)
        window.move(0)
        index = _pcap_index if magic in MAGICS else _pcapng_index
        sound = index(window, path, config, totals, cuts)
    if not sound or not cuts.found or totals.damaged:
        return [Split(path)]
    starts = [(0, 0, 0, b""), *cuts.found]
    ends = [start for start, *_ in cuts.found] + [size]
    return [
        Split(
            path, start, end, before + 1, before_ns, prelude, end == size,
            totals.dropped if end == size else 0,
        )
        for (start, before, before_ns, prelude), end in zip(starts, ends, strict=True)
    ]  # fmt: skip


def _pcap_index(window: Window, path: str, config: Config, totals: CaptureTotals, cuts: _Cuts) -> bool:
    """Offer all places; whether each split can be read on its own."""
    prelude = window.data[:FILE_HEADER].tobytes()
    reader = PcapReader(window, path, config, totals)
    header = reader.record_header
    for block in _even(reader):
        if block is None:
            return False
        cuts.offer(block.offset - header + window.start, block, prelude)
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


class _PcapngIndex(PcapngReader):
    """Reads a pcapng file and remembers what a packet further on needs to be read."""

    prelude = b""
    timeless = False
    """There are packets without a time: they have that of the packet before."""

    def _simple(self, places: Integers) -> Any:
        self.timeless = self.timeless or len(places) > 0
        return super()._simple(places)

    def _section(self, at: int) -> int:
        after = super()._section(at)
        if after != at:
            self.prelude = self._window.data[at:after].tobytes()
        return after

    def _describe(self, place: int, kind: int) -> None:
        super()._describe(place, kind)
        if kind == INTERFACE:
            self.prelude += self._window.data[place : place + self._size_at(place)].tobytes()


def _pcapng_index(window: Window, path: str, config: Config, totals: CaptureTotals, cuts: _Cuts) -> bool:
    """As `_pcap_index`, for pcapng."""
    reader = _PcapngIndex(window, path, config, totals)
    for block in reader.blocks():
        if not len(block):
            continue
        if reader.timeless:
            return False
        cuts.offer(block.offset - PACKET_AT + window.start, block, reader.prelude)
    return True
