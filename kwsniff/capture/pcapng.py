"""pcapng files (https://www.ietf.org/archive/id/draft-ietf-opsawg-pcapng-03.html).

A file is a chain of blocks, each with its length at both ends, in sections that may differ in byte order; a
section describes its interfaces, and every packet names one. Blocks that hold no packet and describe nothing
needed here are stepped over, options of packets (comments and the like) are never looked at. TLS secrets
(Decryption Secrets Blocks, section 4.7) are handed on in front of the packets that follow them.

Where the chain breaks, reading goes on at the next place that has a known block type and the same plausible
length at both ends of the block.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kwsniff.capture.error import CaptureError
from kwsniff.capture.reader import MAX_CAPLEN, MAX_SNAPLEN, Interface, Interfaces, Reader, Window
from kwsniff.config import Config
from kwsniff.net.packets import Bytes, CaptureTotals, Integers, PacketBlock, gather, number

MAGIC = b"\x0a\x0d\x0d\x0a"
SECTION, INTERFACE, OBSOLETE, SIMPLE, NAMES, STATISTICS, ENHANCED = 0x0A0D0D0A, 1, 2, 3, 4, 5, 6
SECRETS, CUSTOM = 10, 0xBAD
_LANDMARKS = (SECTION, INTERFACE, OBSOLETE, SIMPLE, NAMES, STATISTICS, ENHANCED, SECRETS, CUSTOM)
_DESCRIBING = (SECTION, INTERFACE, STATISTICS, SECRETS)
_BYTE_ORDER_MAGIC = {b"\x4d\x3c\x2b\x1a": "<", b"\x1a\x2b\x3c\x4d": ">"}
MAX_BLOCK = 2 * MAX_SNAPLEN
MAX_FOUND = 2 * MAX_CAPLEN
"""Longest block taken for the place where blocks go on after damage."""
SMALLEST = 12
SEARCH_STEP = 1 << 18
TLS_KEY_LOG = 0x544C534B
"""Type of secrets that are lines of a key log (RFC 9850)."""
SECRETS_AT = 16
"""Where secrets begin in their block."""


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


class _Chain(NamedTuple):
    """Complete blocks, one behind the other."""

    places: Integers
    stop: int
    """Where the chain goes on."""
    turns: list[tuple[int, str]]
    """Where which byte order begins: at the first block and at each section."""

    def order_at(self, place: int) -> str:
        """The byte order of the block there."""
        return self.turns[max(bisect_right(self.turns, (place, "~")) - 1, 0)][1]


def follow_blocks(data: Bytes, at: int, end: int, order: str) -> _Chain:
    """Follow the chain of blocks from `at`.

    It stops at a length that cannot be. A length that is no multiple of 4, as some writers have it, stands
    for the next one.
    """
    readers = {each: struct.Struct(each + "II").unpack_from for each in "<>"}
    type_and_length = readers[order]
    starts: list[int] = []
    turns = [(at, order)]
    append = starts.append
    last = end - SMALLEST
    buffer = data.data
    while at <= last:
        kind, length = type_and_length(buffer, at)
        if kind == SECTION and (of_it := _BYTE_ORDER_MAGIC.get(bytes(buffer[at + 8 : at + 12]))):
            turns.append((at, of_it))
            type_and_length = readers[of_it]
            _, length = type_and_length(buffer, at)
        elif kind == SECTION:
            break
        if length < SMALLEST or length > MAX_BLOCK:
            break
        append(at)
        at += (length + 3) & ~3
    if starts and at > end:
        at = starts.pop()
    if len(turns) > 1 and turns[-1][0] == at:
        turns.pop()
    return _Chain(np.array(starts, np.int64), at, turns)


def key_log_of(data: memoryview[int], place: int, size: int, order: str) -> bytes | None:
    """The key log in the block of secrets at `place`, which is `size` bytes long; nothing if its secrets are
    of another kind. None if there is no room for what it says it holds."""
    if size < SECRETS_AT + 4:
        return None
    kind, length = struct.unpack_from(order + "II", data, place + 8)
    if kind != TLS_KEY_LOG:
        return b""
    if length > size - SECRETS_AT - 4:
        return None
    found = bytes(data[place + SECRETS_AT :][:length])
    return found if found.endswith(b"\n") or not found else found + b"\n"


class _Known(NamedTuple):
    """The interfaces that packets of a chain may name."""

    sections: Integers
    """Where sections begin."""
    interfaces: list[Interfaces]
    """Of the section that was there before, then those of each that begins."""

    def snaplens(self, places: Integers) -> Integers:
        """The snaplen of the first interface of the sections in which places lie, 0 if there is none."""
        firsts = [each[0].snaplen if len(each) else 0 for each in self.interfaces]
        return np.array(firsts, np.int64)[self._section(places)]

    def counts(self, places: Integers) -> Integers:
        """How many interfaces the sections have in which places lie."""
        return np.array([len(each) for each in self.interfaces], np.int64)[self._section(places)]

    def packets(self, columns: _Columns) -> Iterator[tuple[Interface, Integers]]:
        """Which packets came by which interface; those that are alike, of whatever section, are one."""
        kinds: dict[tuple[int, int, int], tuple[int, Interface]] = {}
        of_all = [
            kinds.setdefault((each.linktype, each.resolution, each.offset), (len(kinds), each))[0]
            for section in self.interfaces
            for each in section
        ]
        first = np.cumsum([0, *(len(each) for each in self.interfaces)])
        kind = np.array(of_all, np.int64)[first[self._section(columns.place)] + columns.interface]
        if len(kinds) == 1:
            yield next(iter(kinds.values()))[1], np.arange(len(kind))
            return
        order = np.argsort(kind, kind="stable")
        for interface, of_it in zip(
            (each for _, each in kinds.values()),
            np.split(order, np.cumsum(np.bincount(kind, minlength=len(kinds)))),
            strict=False,
        ):
            if len(of_it):
                yield interface, of_it

    def _section(self, places: Integers) -> Integers:
        return np.searchsorted(self.sections, places, "right")


class PcapngReader(Reader):
    """Reads one pcapng file."""

    def __init__(self, window: Window, capture: str, config: Config, totals: CaptureTotals) -> None:
        super().__init__(window, capture, config, totals)
        if window.size < 28 or self._section_order(0) is None:
            raise CaptureError(f"{capture}: ends inside its section header or has a broken one")
        self._order = "<"
        self._chain = _Chain(np.empty(0, np.int64), 0, [(0, "<")])
        self._interfaces = Interfaces()
        self._ahead: frozenset[int] = frozenset()
        """Places of blocks whose secrets were handed on before."""

    def expect(self, secrets: Mapping[int, bytes]) -> None:
        """Hand on these secrets, by the places of their blocks in the file, before all packets."""
        self._secrets += secrets.values()
        self._ahead = frozenset(secrets)

    def blocks(self) -> Iterator[PacketBlock]:
        """See `Reader.blocks`."""
        at, window = 0, self._window
        while True:
            self._chain = follow_blocks(window.data, at, window.size, self._order)
            places, stop, _ = self._chain
            good = self._intact(places)
            yield from self.packets_at(places[:good])
            if self._secrets:  # no packet came with them, and many more of them may
                yield self._nothing()
            self._order = self._chain.order_at(places[good] if good < len(places) else stop)
            broken = int(places[good]) if good < len(places) else self._broken(stop)
            if broken is not None or self._goes_on_behind(stop):
                at = self._resume(stop if broken is None else broken)
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

    def _is_section(self, at: int) -> bool:
        window = self._window
        return at + SMALLEST <= window.size and window.data[at : at + 4].tobytes() == MAGIC

    def _size_at(self, at: int) -> int:
        """Length of the block that starts at `at`, 0 if its header is not in the window."""
        if at + SMALLEST > self._window.size:
            return 0
        order = (self._section_order(at) if self._is_section(at) else None) or self._order
        (length,) = struct.unpack_from(order + "I", self._window.data.data, at + 4)
        return (int(length) + 3) & ~3

    # Packets

    def packets_at(self, places: Integers) -> Iterator[PacketBlock]:
        """The packets among blocks at these places, in their order."""
        kinds = self._words(places, 0)
        known = self._described(places, kinds)
        found = [
            self._enhanced(places[kinds == ENHANCED]),
            self.simple_packets(places[kinds == SIMPLE], known),
            self._obsolete(places[kinds == OBSOLETE]),
        ]
        columns = found[0]
        if len(found[1].place) or len(found[2].place):
            order = np.argsort(np.concatenate([each.place for each in found]), kind="stable")
            columns = _Columns(*(np.concatenate(each)[order] for each in zip(*found, strict=True)))
        yield from self._checked(columns, known)

    def _described(self, places: Integers, kinds: Integers) -> _Known:
        """Take the blocks that describe; the interfaces that packets may name."""
        other = np.isin(kinds, _DESCRIBING)
        begun, sections = [self._interfaces], []
        of_it = zip(places[other].tolist(), kinds[other].tolist(), self._sizes(places[other]), strict=True)
        for place, kind, size in of_it:
            self.describe(place, kind, size)
            if kind == SECTION:
                begun.append(self._interfaces)
                sections.append(place)
        return _Known(np.array(sections, np.int64), begun)

    def describe(self, place: int, kind: int, size: int) -> None:
        """Take a block that describes."""
        order = self._chain.order_at(place)
        body = self._window.data[place + 8 : place + size - 4].tobytes()
        if kind == SECTION:
            self._totals.dropped += self._interfaces.dropped()
            self._interfaces = Interfaces()
        elif kind == INTERFACE:
            self._interfaces.add(body, order)
        elif kind == STATISTICS:
            self._interfaces.add_statistics(body, order)
        elif (found := key_log_of(self._window.data.data, place, size, order)) is None:
            self._note_skipped(self._window.start + place, size)
        elif found and self._window.start + place not in self._ahead:
            self._secrets.append(found)

    def _gathered(
        self, layout: Callable[[str], np.dtype[Any]], places: Integers, offset: int | Integers
    ) -> NDArray[Any]:
        """What stands at `offset` from each place of a block, in the byte order of its section."""
        data, at = self._window.data, places + offset
        begins, orders = zip(*self._chain.turns, strict=True)
        found = gather(data, layout(orders[-1]), at)
        if len(set(orders)) > 1:
            index = np.maximum(np.searchsorted(begins, places, "right") - 1, 0)
            other = np.array(orders)[index] != orders[-1]
            found[other] = gather(data, layout("<" if orders[-1] == ">" else ">"), at[other])
        return found

    def _words(self, places: Integers, offset: int | Integers) -> Integers:
        """The 32-bit words at `offset` from each place of a block."""
        return number(self._gathered(lambda order: np.dtype(order + "u4"), places, offset))

    def _sizes(self, places: Integers) -> list[int]:
        """How long blocks are."""
        sizes: list[int] = ((self._words(places, 4) + 3) & ~3).tolist()
        return sizes

    def _columns(self, places: Integers) -> Any:
        """The fixed part of the body of enhanced and obsolete packet blocks."""
        names = ("interface", "high", "low", "cap", "orig")
        return self._gathered(lambda order: np.dtype([(name, order + "u4") for name in names]), places, 8)

    def _enhanced(self, places: Integers) -> _Columns:
        places = self._long_enough(places, 32)
        fields = self._columns(places)
        return self._with_ticks(places, fields, number(fields["interface"]))

    def _obsolete(self, places: Integers) -> _Columns:
        """Like enhanced, but the interface has 16 bits; the others count drops."""
        places = self._long_enough(places, 32)
        fields = self._columns(places)
        interface = number(self._gathered(lambda order: np.dtype(order + "u2"), places, 8))
        return self._with_ticks(places, fields, interface)

    def _with_ticks(self, places: Integers, fields: Any, interface: Integers) -> _Columns:
        ticks = number(fields["high"]) << 32 | number(fields["low"])
        return _Columns(places, places + 28, number(fields["cap"]), number(fields["orig"]), interface, ticks)

    def simple_packets(self, places: Integers, known: _Known) -> _Columns:
        """No timestamp, no captured length: that is the snaplen, or all of the packet."""
        places = self._long_enough(places, 16)
        origlen = self._words(places, 8)
        snaplen = known.snaplens(places)
        caplen = np.where(snaplen > 0, np.minimum(origlen, snaplen), origlen)
        return _Columns(places, places + 12, caplen, origlen, np.zeros_like(places), np.full_like(places, -1))

    def _long_enough(self, places: Integers, size: int) -> Integers:
        short = self._words(places, 4) < size
        self._skip(places[short])
        return places[~short]

    def _skip(self, places: Integers) -> None:
        """Note blocks that are damaged."""
        for place, size in zip(places.tolist(), self._sizes(places), strict=True):
            self._note_skipped(self._window.start + place, size)

    def _checked(self, columns: _Columns, known: _Known) -> Iterator[PacketBlock]:
        """Hand out the packets; one longer than its block or of no interface counts as damage."""
        length = self._words(columns.place, 4)
        room = columns.place + length - 4 - columns.start
        bad = (columns.caplen > room) | (columns.interface >= known.counts(columns.place))
        if bad.any():
            self._skip(columns.place[bad])
            columns = _Columns(*(column[~bad] for column in columns))
        time_ns, linktype = self._times_and_links(columns, known)
        yield from self._cut(columns.start, columns.caplen, columns.origlen, time_ns, linktype)

    def _times_and_links(self, columns: _Columns, known: _Known) -> tuple[Integers, Integers]:
        time_ns = np.zeros_like(columns.ticks)
        linktype = np.zeros_like(columns.ticks)
        for interface, of_it in known.packets(columns):
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
        differs = (self._words(places, ((sizes + 3) & ~3) - 4) != sizes) & (self._words(places, 0) != SECTION)
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
        return window.at_end and stop < window.size and self._find(stop + 1)[1]

    def _resume(self, broken: int) -> int:
        """Note what is skipped and return where blocks go on, at the latest at the end of the file."""
        position = self._window.start + broken
        found, sure = self._search(broken + 1, SMALLEST, 2 * MAX_FOUND)
        found = found if sure else self._window.size
        self._note_skipped(position, self._window.start + found - position)
        return found

    def _find(self, at: int) -> tuple[int, bool]:
        """See `Reader`; it is not sure if the block would reach beyond the window."""
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
