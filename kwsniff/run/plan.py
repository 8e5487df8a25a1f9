"""Cutting the input into splits: ranges of packets of one file each.

An uncompressed pcap or pcapng file is cut where records begin. Those places come from reading all record
headers of the file with the same reader that will read the splits, so they cannot be wrong; a file in which
that reader had to look for records, because of damage, is not cut, nor is a compressed one.

Theory of operation. One can read a file from its beginning (`cut`), or many at once a *stretch* of it each
(`followed`). A stretch begins at the first place behind a wanted one from which records seem to go on, which
is how the reader finds them again behind damage: a guess, and a file that holds another capture may well
mislead it. From there records are followed to the first packet that belongs to the next stretch. The first
stretch begins where the file does; so if each ends with the very packet that the next one begins with, all
are on the one chain of records that there is, and no guess is left (`together`).

Only a file in which all is as most writers write it is cut by stretches. Whatever makes a reader look twice,
or a packet depend on more than the head of the file (damage, times that jump, packets without a time,
interfaces that are described late), leaves it to `cut`. A file that holds secrets of TLS connections is not
cut: what is known of such a connection is not put together where splits meet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from kwsniff.capture.pcap import CHAIN, FILE_HEADER, MAGICS, MAX_JUMP, PcapReader
from kwsniff.capture.pcapng import INTERFACE, MAGIC, SECRETS, SECTION, SMALLEST, PcapngReader
from kwsniff.capture.place import opened, size_of
from kwsniff.capture.reader import Window
from kwsniff.capture.source import CaptureFile
from kwsniff.capture.stream import ByteStream
from kwsniff.config import MIB, Config
from kwsniff.net.packets import CaptureTotals, Integers, PacketBlock

PACKET_AT = 28
"""Where the packet lies in an enhanced or obsolete packet block of pcapng."""
SPLIT_BYTES = 1 << 30
"""Size of a split, about. At each cut every connection is followed step by step for a while, twice, so splits
are as large as may be lost with a worker."""
SECOND = 1_000_000_000
STEADY_S = MAX_JUMP - 1001
"""Steps of time that no reader looks at twice: it compares whole seconds, and the rest may be a thousand."""
HEAD = 1 << 16
"""Bytes of the file that are looked at for what stands at its beginning."""
WINDOW = 2 * MIB
"""Bytes that are followed at a time: a cache holds them."""
T = TypeVar("T")
U = TypeVar("U")


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


class Range:
    """Bytes of a file, behind a prelude."""

    def __init__(self, split: Split) -> None:
        assert split.end is not None
        self._file = opened(split.path, split.start, split.end)
        self._left = split.end - split.start
        self._prelude = split.prelude
        self.close = self._file.close

    def read(self, size: int) -> bytes:
        """The next bytes, at most so many."""
        if self._prelude:
            data, self._prelude = self._prelude, b""
            return data
        data = self._file.read(min(size, self._left)) or b""
        self._left -= len(data)
        return data


MakeReader = Callable[[Window, str, Config, CaptureTotals], T]


@contextmanager
def split_reader(
    split: Split, config: Config, totals: CaptureTotals, pcap: MakeReader[T], pcapng: MakeReader[U]
) -> Iterator[T | U]:
    """A reader of a range of a file, as if the file began there. Raises CaptureError."""
    with closing(Range(split)) as bytes_of:
        window = Window(ByteStream(bytes_of, split.path), config.block_bytes)  # type: ignore[arg-type]
        window.begin()
        window.start = split.start - len(split.prelude)
        make = pcap if window.data[:4].tobytes() in MAGICS else pcapng
        yield make(window, split.path, config, totals)


Cut = tuple[int, int, int, bytes]
"""A place in a file, how many packets are before it, the time of the last, and the prelude of what begins."""


@dataclass(slots=True)
class _Cuts:
    """Where a file could be cut."""

    wanted: list[int]
    found: list[Cut] = field(default_factory=list)
    last_ns: int | None = None
    """Time of the last packet so far."""

    def offer(self, places: Integers, block: PacketBlock, prelude: bytes) -> None:
        """The packets of this block begin at these places; each wanted place takes the next one."""
        packets, times = int(block.number[0]) - 1, block.time_ns
        while self.wanted and len(places) and self.wanted[0] <= places[-1]:
            index = int(np.searchsorted(places, self.wanted[0]))
            place = int(places[index])
            self.wanted = [each for each in self.wanted if each > place]
            if packets + index:
                before_ns = int(times[index - 1]) if index else self.last_ns or 0
                self.found.append((place, packets + index, before_ns, prelude))
        self.last_ns = int(times[-1])


def pieces(path: str, config: Config, size: int) -> list[Split]:
    """A file in splits of about so many bytes; whole if there is a key log. Raises CaptureError."""
    wanted = places(size_of(path), size) if config.keylog is None else []
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
    size, totals = size_of(path), CaptureTotals()
    cuts = _Cuts(sorted(set(wanted)))
    with indexer(Split(path, 0, size), config, totals) as reader:
        for block in filter(len, reader.blocks()):
            # The reader might have looked for damage.
            jumps = isinstance(reader, PcapIndexer) and not _steady(block.time_ns, cuts.last_ns, MAX_JUMP)
            if jumps or reader.whole:
                return [Split(path)]
            cuts.offer(reader.places(block), block, reader.prelude)
        if not cuts.found or totals.damaged or reader.whole:
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

    whole = False
    """What the file holds is told apart only by who reads all of it."""
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
    whole = False
    """There are packets without a time, which have that of the one before, or secrets of TLS connections."""

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
        self.whole = self.whole or len(places) > 0
        return super().simple_packets(places, *known)

    def describe(self, place: int, kind: int, size: int) -> None:
        super().describe(place, kind, size)
        self.whole = self.whole or kind == SECRETS
        if kind in (SECTION, INTERFACE):
            before = b"" if kind == SECTION else self.prelude
            self.prelude = before + self._window.data[place : place + size].tobytes()


Indexer = PcapIndexer | PcapngIndexer


def indexer(
    split: Split, config: Config, totals: CaptureTotals | None = None
) -> AbstractContextManager[Indexer]:
    """The one for a range of a file, as if the file began there. Raises CaptureError."""
    return split_reader(split, config, totals or CaptureTotals(), PcapIndexer, PcapngIndexer)


# Stretches


@dataclass(frozen=True, slots=True)
class Stretch:
    """What following a stretch of a file came to."""

    first: int
    """Where the block of its first packet begins; if it has none, that of the next stretch."""
    next: int | None
    """Where that of the next stretch's first packet begins; None at the end of the file."""
    packets: int
    last_ns: int
    """Time of the packet before `next`, if there is one."""
    prelude: bytes
    """What has to be known to read its packets."""
    dropped: int
    """Packets that the file says were dropped."""


def followed(path: str, begin: int, end: int | None, size: int, config: Config) -> Stretch | None:
    """The stretch of a file of `size` bytes with the packets that begin from `begin` to before `end` (None:
    all that follow); None if it is for `cut`. Raises CaptureError."""
    if not can_be_cut(path):
        return None
    config = replace(config, block_bytes=WINDOW)
    whole = Split(path, 0, size)
    head = _head(whole, config)
    if head is None:
        return None
    prelude, time_ns = head
    first = _found(replace(whole, start=begin, prelude=prelude), time_ns, config) if begin else 0
    if first is None:
        return None
    return _Follower(whole, end, prelude, config).stretch(first)


def together(path: str, stretches: Sequence[Stretch | None], size: int) -> list[Split] | None:
    """A file of `size` bytes in splits that begin with the stretches; None if these don't prove each other,
    so that it is for `cut`."""
    known = [each for each in stretches if each is not None]
    if len(known) < len(stretches) or not all(map(_fit, known, known[1:])):
        return None
    cuts: dict[int, Cut] = {}
    packets = last_ns = 0
    for each in known:
        if packets:
            cuts[each.first] = each.first, packets, last_ns, each.prelude
        if each.packets:
            packets, last_ns = packets + each.packets, each.last_ns
    return splits_at(path, list(cuts.values()), size, known[-1].dropped) if cuts else [Split(path)]


def _fit(one: Stretch, other: Stretch) -> bool:
    return one.next == other.first and one.prelude == other.prelude and not one.dropped


def _head(whole: Split, config: Config) -> tuple[bytes, int] | None:
    """What a file that begins further on would begin with, and the time of its first packet; None if there is
    no packet."""
    with indexer(whole, replace(config, block_bytes=HEAD)) as reader:
        for block in filter(len, reader.blocks()):
            return reader.prelude, int(block.time_ns[0])
    return None


def _found(rest: Split, time_ns: int, config: Config) -> int | None:
    """The first place from which records seem to go on, of about this time if there are such ones."""
    with indexer(rest, config) as reader:
        anywhere = reader.found(len(rest.prelude))
        reader.go_on(0, time_ns)
        near = reader.found(len(rest.prelude))
    return anywhere if near is None else near


class _Follower:
    """Follows the records of a stretch."""

    def __init__(self, whole: Split, end: int | None, prelude: bytes, config: Config) -> None:
        self._whole, self._end, self._prelude, self._config = whole, end, prelude, config
        self._totals = CaptureTotals()
        self._first: int | None = None
        self._next: int | None = None
        self._packets = self._place = self._last_ns = 0

    def _from(self, place: int) -> Split:
        """The file from a place on."""
        return replace(self._whole, start=place, prelude=self._prelude if place else b"")

    def stretch(self, begin: int) -> Stretch | None:
        """What it is from `begin` on; None if it is for `cut`."""
        with indexer(self._from(begin), self._config, self._totals) as reader:
            steady = self._follow(reader)
        if not steady or reader.whole or reader.prelude != self._prelude or self._totals.damaged:
            return None
        if self._first is None or (self._next is None) != (self._end is None):
            return None
        if self._totals.cut_short and self._goes_on_inside():
            return None
        return Stretch(self._first, self._next, self._packets, self._last_ns, self._prelude, reader.dropped)

    def _follow(self, reader: Indexer) -> bool:
        """Follow the packets; whether their times are steady."""
        for block in filter(len, reader.blocks()):
            places, times = reader.places(block), block.time_ns
            if self._first is None:
                self._first, self._last_ns = int(places[0]), int(times[0])
            count = len(places) if self._end is None else int(np.searchsorted(places, self._end))
            if not _steady(times[: count + 1], self._last_ns, STEADY_S):
                return False
            if count:
                self._packets += count
                self._place, self._last_ns = int(places[count - 1]), int(times[count - 1])
            if count < len(places):
                self._next = int(places[count])
                break
        return True

    def _goes_on_inside(self) -> bool:
        """Whether the last record, or what was cut short behind it, may hold others: then the reader of the
        whole file looks twice."""
        if self._last_ns < 2 * STEADY_S * SECOND:  # records without a time would be looked for, too
            return True
        rest = self._from(self._place)
        size = (self._whole.end or 0) - self._place + len(rest.prelude)
        with indexer(rest, replace(self._config, block_bytes=size + 1)) as reader:
            return reader.found(len(rest.prelude) + 1) is not None


def _steady(times: Integers, before: int | None, most_s: int) -> bool:
    """Whether times behind one another are so many seconds apart at most."""
    steps = np.diff(times, prepend=times[0] if before is None else before)
    return int(np.abs(steps).max()) <= most_s * SECOND
