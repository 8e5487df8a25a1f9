"""pcapng files (https://www.ietf.org/archive/id/draft-ietf-opsawg-pcapng-03.html).

A file is a chain of blocks, each with its length at both ends, in sections that may differ in byte order; a
section describes its interfaces, and every packet names one. Blocks that hold no packet and describe nothing
needed here are stepped over, options of packets (comments and the like) are never looked at.

Where the chain breaks, reading goes on at the next place that has a known block type and the same plausible
length at both ends of the block.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from kwsniff.capture.error import CaptureError
from kwsniff.capture.interfaces import Interface, Interfaces
from kwsniff.capture.reader import MAX_CAPLEN, MAX_SNAPLEN, Reader
from kwsniff.capture.window import Window
from kwsniff.config import Config
from kwsniff.net.packets import Bytes, Integers, PacketBlock, gather, number
from kwsniff.net.totals import CaptureTotals

MAGIC = b"\x0a\x0d\x0d\x0a"
SECTION, INTERFACE, OBSOLETE, SIMPLE, NAMES, STATISTICS, ENHANCED = 0x0A0D0D0A, 1, 2, 3, 4, 5, 6
SECRETS, CUSTOM = 10, 0xBAD
_LANDMARKS = (SECTION, INTERFACE, OBSOLETE, SIMPLE, NAMES, STATISTICS, ENHANCED, SECRETS, CUSTOM)
_BYTE_ORDER_MAGIC = {b"\x4d\x3c\x2b\x1a": "<", b"\x1a\x2b\x3c\x4d": ">"}
MAX_BLOCK = 2 * MAX_SNAPLEN
MAX_FOUND = 2 * MAX_CAPLEN
"""Longest block taken for the place where blocks go on after damage."""
SMALLEST = 12
SEARCH_STEP = 1 << 18


class _Columns(NamedTuple):
    """Packets of one type of block."""

    place: Integers
    """Where the block starts."""
    start: Integers
    """Where the packet starts."""
    caplen: Integers
    origlen: Integers
    interface: Integers
    ticks: Integers
    """Timestamp in the units of the interface, or -1 if the block has none."""


def block_starts(data: Bytes, at: int, end: int, order: str) -> tuple[list[int], int]:
    """Follow the chain of blocks from `at`: the offsets of all complete ones, and where it goes on.

    It stops at a new section and at a length that cannot be. A length that is no multiple of 4, as some
    writers have it, stands for the next one.
    """
    type_and_length = struct.Struct(order + "II").unpack_from
    starts: list[int] = []
    append = starts.append
    last = end - SMALLEST
    buffer = data.data
    while at <= last:
        kind, length = type_and_length(buffer, at)
        if kind == SECTION or length < SMALLEST or length > MAX_BLOCK:
            return starts, at
        append(at)
        at += (length + 3) & ~3
    if starts and at > end:
        at = starts.pop()
    return starts, at


class PcapngReader(Reader):
    """Reads one pcapng file."""

    def __init__(self, window: Window, capture: str, config: Config, totals: CaptureTotals) -> None:
        super().__init__(window, capture, config, totals)
        if window.size < 28 or self._section_order(0) is None:
            raise CaptureError(f"{capture}: ends inside its section header or has a broken one")
        self._order = "<"
        self._interfaces = Interfaces()

    def blocks(self) -> Iterator[PacketBlock]:
        """See `Reader.blocks`."""
        at, window = 0, self._window
        while True:
            at = self._section(at)
            starts, stop = block_starts(window.data, at, window.size, self._order)
            places = np.array(starts, np.int64)
            good = self._intact(places)
            yield from self._packets(places[:good])
            broken = int(places[good]) if good < len(places) else self._broken(stop)
            if broken is not None or self._goes_on_behind(stop):
                at = self._resume(stop if broken is None else broken)
            elif self._section_follows(stop):
                at = stop
            elif not window.at_end:
                window.move(stop, self._size_at(stop))
                at = 0
                if window.dry:
                    yield self._nothing()
            else:
                break
        self._totals.dropped += self._interfaces.dropped()
        yield from self._end(stop, "a block")

    # Sections

    def _section_order(self, at: int) -> str | None:
        return _BYTE_ORDER_MAGIC.get(self._window.data[at + 8 : at + 12].tobytes())

    def _section_follows(self, at: int) -> bool:
        """Whether a whole section header block starts here."""
        window = self._window
        is_whole = self._is_section(at) and at + self._size_at(at) <= window.size
        return is_whole and self._broken(at) is None

    def _is_section(self, at: int) -> bool:
        window = self._window
        return at + SMALLEST <= window.size and window.data[at : at + 4].tobytes() == MAGIC

    def _section(self, at: int) -> int:
        """Begin a section if one starts at `at`; return where its blocks start."""
        if not self._section_follows(at):
            return at
        self._order = self._section_order(at) or self._order
        self._totals.dropped += self._interfaces.dropped()
        self._interfaces = Interfaces()
        return at + self._size_at(at)

    def _size_at(self, at: int) -> int:
        """Length of the block that starts at `at`, 0 if its header is not in the window."""
        if at + SMALLEST > self._window.size:
            return 0
        order = (self._section_order(at) if self._is_section(at) else None) or self._order
        (length,) = struct.unpack_from(order + "I", self._window.data.data, at + 4)
        return (int(length) + 3) & ~3

    # Packets

    def _packets(self, places: Integers) -> Iterator[PacketBlock]:
        kinds = self._words(places, 0)
        for place, kind in self._others(places, kinds):
            self._describe(place, kind)
        found = [
            self._enhanced(places[kinds == ENHANCED]),
            self._simple(places[kinds == SIMPLE]),
            self._obsolete(places[kinds == OBSOLETE]),
        ]
        columns = found[0]
        if len(found[1].place) or len(found[2].place):
            order = np.argsort(np.concatenate([each.place for each in found]), kind="stable")
            columns = _Columns(*(np.concatenate(each)[order] for each in zip(*found, strict=True)))
        yield from self._checked(columns)

    def _others(self, places: Integers, kinds: Integers) -> Iterator[tuple[int, int]]:
        other = (kinds == INTERFACE) | (kinds == STATISTICS)
        return zip(places[other].tolist(), kinds[other].tolist(), strict=True)

    def _describe(self, place: int, kind: int) -> None:
        length = self._size_at(place)
        body = self._window.data[place + 8 : place + length - 4].tobytes()
        if kind == INTERFACE:
            self._interfaces.add(body, self._order)
        else:
            self._interfaces.add_statistics(body, self._order)

    def _words(self, places: Integers, offset: int) -> Integers:
        """The 32-bit words at `offset` from each place."""
        return number(gather(self._window.data, np.dtype(self._order + "u4"), places + offset))

    def _columns(self, places: Integers) -> Any:
        """The fixed part of the body of enhanced and obsolete packet blocks."""
        layout = np.dtype(
            [(name, self._order + "u4") for name in ("interface", "high", "low", "cap", "orig")]
        )
        return gather(self._window.data, layout, places + 8)

    def _enhanced(self, places: Integers) -> _Columns:
        places = self._long_enough(places, 32)
        fields = self._columns(places)
        return self._with_ticks(places, fields, number(fields["interface"]))

    def _obsolete(self, places: Integers) -> _Columns:
        """Like enhanced, but the interface has 16 bits; the others count drops."""
        places = self._long_enough(places, 32)
        fields = self._columns(places)
        interface = number(gather(self._window.data, np.dtype(self._order + "u2"), places + 8))
        return self._with_ticks(places, fields, interface)

    def _with_ticks(self, places: Integers, fields: Any, interface: Integers) -> _Columns:
        ticks = number(fields["high"]) << 32 | number(fields["low"])
        return _Columns(places, places + 28, number(fields["cap"]), number(fields["orig"]), interface, ticks)

    def _simple(self, places: Integers) -> _Columns:
        """No timestamp, no captured length: that is the snaplen, or all of the packet."""
        places = self._long_enough(places, 16)
        origlen = self._words(places, 8)
        snaplen = self._interfaces[0].snaplen if len(self._interfaces) else 0
        caplen = np.minimum(origlen, snaplen) if snaplen else origlen
        return _Columns(places, places + 12, caplen, origlen, np.zeros_like(places), np.full_like(places, -1))

    def _long_enough(self, places: Integers, size: int) -> Integers:
        short = self._words(places, 4) < size
        for place in places[short].tolist():
            self._note_skipped(self._window.start + place, self._size_at(place))
        return places[~short]

    def _checked(self, columns: _Columns) -> Iterator[PacketBlock]:
        """Hand out the packets; one longer than its block or of no interface counts as damage."""
        length = self._words(columns.place, 4)
        room = columns.place + length - 4 - columns.start
        bad = (columns.caplen > room) | (columns.interface >= len(self._interfaces))
        if bad.any():
            for place in columns.place[bad].tolist():
                self._note_skipped(self._window.start + place, self._size_at(place))
            columns = _Columns(*(column[~bad] for column in columns))
        time_ns, linktype = self._times_and_links(columns)
        yield from self._cut(columns.start, columns.caplen, columns.origlen, time_ns, linktype)

    def _times_and_links(self, columns: _Columns) -> tuple[Integers, Integers]:
        time_ns = np.zeros_like(columns.ticks)
        linktype = np.zeros_like(columns.ticks)
        for index in np.unique(columns.interface).tolist():
            interface: Interface = self._interfaces[index]
            of_it = columns.interface == index
            time_ns[of_it] = interface.nanoseconds(columns.ticks[of_it])
            linktype[of_it] = interface.linktype
        timeless = columns.ticks == -1
        if timeless.any():
            time_ns = self._carried(time_ns, timeless)
        return time_ns, linktype

    def _carried(self, time_ns: Integers, timeless: np.ndarray[Any, np.dtype[np.bool_]]) -> Integers:
        """Give packets without a timestamp that of the packet before."""
        index = np.maximum.accumulate(np.where(timeless, -1, np.arange(len(time_ns))))
        return np.where(index < 0, self._last_time_ns or 0, time_ns[index])

    # Damage

    def _intact(self, places: Integers) -> int:
        """How many blocks come before the first whose two lengths differ."""
        sizes = self._words(places, 4)
        differs = self._words(places + ((sizes + 3) & ~3) - 4, 0) != sizes
        return int(differs.argmax()) if differs.any() else len(places)

    def _broken(self, stop: int) -> int | None:
        """`stop` if what begins there is no block."""
        if stop + SMALLEST > self._window.size:
            return None
        size = self._size_at(stop)
        is_block = SMALLEST <= size <= MAX_BLOCK
        if self._is_section(stop):
            is_block = is_block and self._section_order(stop) is not None
        return None if is_block else stop

    def _goes_on_behind(self, stop: int) -> bool:
        """Whether a block that seems to reach beyond the end of the file has blocks inside it."""
        window = self._window
        unfinished = window.at_end and stop < window.size and not self._section_follows(stop)
        return unfinished and self._find(stop + 1)[1]

    def _resume(self, broken: int) -> int:
        """Note what is skipped and return where blocks go on, at the latest at the end of the file."""
        window = self._window
        position = window.start + broken
        found, sure = self._find(broken + 1)
        while not sure and not window.at_end and not window.dry:
            keep = max(window.size - SMALLEST + 1, broken + 1) if found < 0 else found
            window.move(keep, 2 * MAX_FOUND)
            broken = -1
            found, sure = self._find(0)
        found = found if sure else window.size
        self._note_skipped(position, window.start + found - position)
        return found

    def _find(self, at: int) -> tuple[int, bool]:
        """The first place from `at` on where a block starts, -1 if there is none, and whether that is sure.

        It is not sure if the block would reach beyond the window.
        """
        window = self._window
        end = window.size - SMALLEST + 1
        for base in range(at, end, SEARCH_STEP):
            count = min(SEARCH_STEP, end - base)
            kinds, sizes = (
                np.ndarray((count,), self._order + "u4", window.data, base + 4 * field, (1,))
                for field in range(2)
            )
            hits = np.isin(kinds, _LANDMARKS) & (sizes >= SMALLEST) & (sizes <= MAX_FOUND)
            hits = hits & (sizes % 4 == 0) | (kinds == SECTION)
            for hit in np.flatnonzero(hits).tolist():
                is_block = self._is_block(base + hit)
                if is_block or (is_block is None and not window.at_end):
                    return base + hit, bool(is_block)
        return -1, False

    def _is_block(self, at: int) -> bool | None:
        """Whether a block starts at `at`; None if the window ends too early to tell."""
        is_section = self._is_section(at)
        order = self._section_order(at) if is_section else self._order
        if order is None:
            return False
        size = self._size_at(at)
        if not SMALLEST <= size <= MAX_FOUND:
            return False
        if at + size > self._window.size:
            return None
        return struct.unpack_from(order + "I", self._window.data.data, at + size - 4) == (size,)
