"""From a block of packets to its TCP segments.

All packets of a block take each step together: a step is a function over the columns of those packets that
have come to the same header. What has another header inside (tunnels, IPv6 extension headers) takes another
round over the same buffer. What cannot be read in place leaves for the slow path, packet by packet: IP
fragments wait in the `Defragmenter`, frames of rarer link layers are peeled by scapy. Both give back plain IP
packets in a new buffer, which are then dissected like any others.

Invariants: the segments found depend on the bytes of the capture only, not on how it is cut into blocks; they
come out in the order of their packets; no bytes whatsoever make `dissect` raise.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields

import numpy as np

from kwsniff.net import ip, link, tcp, tunnel
from kwsniff.net.columns import COPY
from kwsniff.net.duplicates import Duplicates
from kwsniff.net.fragments import Defragmenter, Fragment
from kwsniff.net.layer import Layer, frames
from kwsniff.net.packets import Bytes, Integers, Mask, Note, PacketBlock
from kwsniff.net.peel import PEELED_ETHERTYPES, Peeler
from kwsniff.net.tcp import Segments
from kwsniff.net.totals import CaptureTotals

ETHERNET, RAW_IP = 1, 101
MAX_DEPTH = 16
"""Tunnels and extension headers inside one another."""
NOTES_PER_CODE = 100
"""Notes of one code for one file; the others are only counted."""


@dataclass(slots=True)
class Dissected:
    """The segments of one block, in packet order, and the notes on it."""

    block: PacketBlock
    segments: Segments
    """`row` is the index in `block`, `start` an offset in the buffer that `buffer` names."""
    buffer: Integers
    """Index in `buffers` for each segment."""
    buffers: list[Bytes]
    notes: list[Note]
    """In packet order."""


_Frame = tuple[int, bytes, int]
"""Link type, captured bytes, length on the wire."""
_Packet = tuple[int, bytes, int]
"""Row, captured bytes of an IP packet, length on the wire."""


@dataclass(slots=True)
class _Slow:
    """One packet for the slow path: a fragment, or a frame to peel."""

    row: int
    what: Fragment | _Frame


class Dissector:
    """Dissects the blocks of one run in order; remembers fragments between blocks and files."""

    def __init__(self, totals: CaptureTotals) -> None:
        self._totals = totals
        self._defragmenter = Defragmenter()
        self._peeler = Peeler()
        self._duplicates = Duplicates()
        self._notes: list[Note] = []
        self._noted: dict[str, int] = {}
        self._unknown_links: set[int] = set()

    def dissect(self, block: PacketBlock) -> Dissected:
        """Find the TCP segments of `block`, among them those whose last fragment it holds."""
        self._notes = []
        self.note(block.notes)
        self._count(block)
        first = _Round(self, block.data, frames(block), block)
        for linktype in np.unique(block.linktype).tolist():
            first.link(linktype, first.frames.pick(block.linktype == linktype), 0)
        return self._collect(block, [first, *self._slow_rounds(block, first.slow, 0)])

    def end_file(self, packet: int) -> list[Note]:
        """Notes on how many notes were left out; call it after the last block of each file.

        `packet` is the number of the last packet of the file.
        """
        left_out = {code: count - NOTES_PER_CODE for code, count in self._noted.items()}
        self._noted.clear()
        self._unknown_links.clear()
        return [
            Note(packet, code, f"{count} more in this file") for code, count in left_out.items() if count > 0
        ]

    def end(self) -> list[Note]:
        """Notes on the fragments still waiting; call it after the last file."""
        self._notes = []
        self.lost(self._defragmenter.flush())
        return self._notes

    def note(self, notes: Iterable[Note]) -> None:
        """Keep notes, but no more than `NOTES_PER_CODE` of a code."""
        for note in notes:
            count = self._noted[note.code] = self._noted.get(note.code, 0) + 1
            if count <= NOTES_PER_CODE:
                self._notes.append(note)

    def malformed(self, block: PacketBlock, rows: Integers, what: str) -> None:
        """Note packets whose headers contradict their length."""
        self._totals.malformed += len(rows)
        known = self._noted.get("packet_malformed", 0)
        shown = rows[: max(NOTES_PER_CODE - known, 0)].tolist()
        self.note(self._note(block, row, "packet_malformed", what) for row in shown)
        self._noted["packet_malformed"] = known + len(rows)

    def lost(self, notes: list[Note]) -> None:
        """Note datagrams that never became whole."""
        self._totals.fragments_lost += len(notes)
        self.note(notes)

    def unknown_link(self, block: PacketBlock, linktype: int, rows: Integers) -> None:
        """Note a link type nobody knows, once a file."""
        self._totals.unknown_link += len(rows)
        if linktype not in self._unknown_links:
            self._unknown_links.add(linktype)
            detail = f"link type {linktype}, its packets are passed over"
            self.note([self._note(block, int(rows[0]), "link_type_unknown", detail)])

    @property
    def waiting(self) -> int:
        """Datagrams of which fragments have been seen, and others not yet."""
        return len(self._defragmenter)

    @property
    def noted(self) -> dict[str, int]:
        """How many notes of each code this file led to so far, also those left out."""
        return dict(self._noted)

    @property
    def totals(self) -> CaptureTotals:
        """The counts of this run."""
        return self._totals

    @property
    def peeler(self) -> Peeler:
        """The way to scapy."""
        return self._peeler

    @staticmethod
    def _note(block: PacketBlock, row: int, code: str, detail: str) -> Note:
        return Note(int(block.number[row]), code, detail, int(block.time_ns[row]))

    def _count(self, block: PacketBlock) -> None:
        self._totals.packets += len(block)
        self._totals.bytes += int(block.origlen.sum())
        if len(block):
            self._totals.see_times(int(block.time_ns.min()), int(block.time_ns.max()))

    def _slow_rounds(self, block: PacketBlock, slow: list[_Slow], depth: int) -> list[_Round]:
        """Take slow packets to plain IP packets, each batch of them in a round of its own.

        Frames are peeled first, which may bring out more fragments; then the fragments of all depths go
        to the defragmenter strictly in packet order, so that it does not matter how blocks are cut.
        """
        rounds: list[_Round] = []
        fragments: list[tuple[int, Fragment]] = []
        while slow:
            frames_ = [(each.row, each.what) for each in slow if not isinstance(each.what, Fragment)]
            fragments += [(each.row, each.what) for each in slow if isinstance(each.what, Fragment)]
            slow = []
            if frames_ and depth + len(rounds) > MAX_DEPTH:
                rows = np.array([row for row, _ in frames_], np.int64)
                self.malformed(block, rows, "headers nested too deep")
            elif frames_:
                rounds.append(_Round.of_packets(self, block, self._peeled(frames_)))
                slow = rounds[-1].slow
        return rounds + self._joined_rounds(block, fragments, depth)

    def _joined_rounds(
        self, block: PacketBlock, fragments: list[tuple[int, Fragment]], depth: int
    ) -> list[_Round]:
        """Rounds for the datagrams that these fragments complete."""
        rounds: list[_Round] = []
        plain: list[_Packet] = []
        for row, fragment in sorted(fragments, key=lambda each: each[0]):
            self._totals.fragments += 1
            time_ns, packet = int(block.time_ns[row]), int(block.number[row])
            whole, lost = self._defragmenter.add(fragment, time_ns, packet)
            self.lost(lost)
            if whole is None:
                continue
            if fragment.key[4] == tcp.PROTOCOL or depth >= MAX_DEPTH:
                plain.append((row, *whole))
                continue
            inner = _Round.of_packets(self, block, [(row, *whole)])  # may hold the next fragment
            rounds += [inner, *self._slow_rounds(block, inner.slow, depth + 1)]
        if plain:
            rounds.append(_Round.of_packets(self, block, plain))
        return rounds

    def _peeled(self, frames_: Iterable[tuple[int, _Frame]]) -> list[_Packet]:
        packets = []
        for row, frame in frames_:
            peeled = self._peeler.peel(*frame)
            if peeled is None:
                self._totals.non_ip += 1
            else:
                packets.append((row, *peeled))
        return packets

    def _collect(self, block: PacketBlock, rounds: list[_Round]) -> Dissected:
        parts = [(index, part) for index, each in enumerate(rounds) for part in each.found if len(part)]
        buffer = np.concatenate([np.full(len(part), index, np.int64) for index, part in parts] or [_NONE])
        segments = _joined([part for _, part in parts])
        if len(parts) > 1:
            order = np.argsort(segments.row, kind="stable")
            segments, buffer = _taken(segments, order), buffer[order]
        self._totals.segments += len(segments)
        copies = self._duplicates.find(segments, block.time_ns[segments.row])
        segments.flags = segments.flags | np.where(copies, COPY, 0)
        self._totals.duplicates += int(copies.sum())
        self._totals.payloads_cut += int((segments.captured < segments.length).sum())
        notes = sorted(self._notes, key=lambda note: note.packet)
        return Dissected(block, segments, buffer, [each.data for each in rounds], notes)


class _Round:
    """The way of some packets in one buffer through the layers. Rows are always those of `block`."""

    def __init__(self, dissector: Dissector, data: Bytes, layer: Layer, block: PacketBlock) -> None:
        self.data = data
        self.frames = layer
        self.found: list[Segments] = []
        self.slow: list[_Slow] = []
        self._block = block
        self._dissector = dissector
        self._totals = dissector.totals

    @classmethod
    def of_packets(cls, dissector: Dissector, block: PacketBlock, packets: list[_Packet]) -> _Round:
        """Dissect IP packets in a buffer of their own."""
        caplen = np.array([len(captured) for _, captured, _ in packets], np.int64)
        offset = np.cumsum(caplen) - caplen
        wire = np.array([length for _, _, length in packets], np.int64)
        rows = np.array([row for row, _, _ in packets], np.int64)
        data = np.frombuffer(b"".join(captured for _, captured, _ in packets), np.uint8)
        layer = Layer(rows, offset, offset + caplen, offset + np.maximum(wire, caplen))
        made = cls(dissector, data, layer, block)
        made.link(RAW_IP, layer, 0)
        return made

    def link(self, linktype: int, layer: Layer, depth: int) -> None:
        """Dissect link layers of one type."""
        if not len(layer) or self._too_deep(layer, depth):
            return
        if linktype not in link.LINK_LAYERS:
            self._odd_link(linktype, layer)
            return
        inner, ethertype = link.LINK_LAYERS[linktype](self.data, layer)
        odd = np.isin(ethertype, PEELED_ETHERTYPES) | (ethertype > 0) & (ethertype < 1536)
        if odd.any():
            self._peel(linktype, layer.pick(odd))
            inner, ethertype = inner.pick(~odd), ethertype[~odd]
        self.network(inner, ethertype, depth)

    def network(self, layer: Layer, ethertype: Integers, depth: int) -> None:
        """Dissect network layers, each of its ethertype."""
        v4, v6, cut = ethertype == link.IPV4, ethertype == link.IPV6, ethertype == link.CUT
        bridged = ethertype == link.ETHERNET_BRIDGED
        self._totals.non_ip += int(len(layer) - (v4 | v6 | cut | bridged).sum())
        if v4.any():
            self._ip(*ip.ipv4(self.data, layer.pick(v4)), "IPv4 header", depth)
        if v6.any():
            self._ip(*ip.ipv6(self.data, layer.pick(v6)), "IPv6 header", depth)
        if bridged.any():
            self.link(ETHERNET, layer.pick(bridged), depth + 1)
        if cut.any():
            ends = layer.pick(cut)
            self._refuse(ip.Refused(ends.row[~ends.lacks(0)], ends.row[ends.lacks(0)]), "link layer header")

    def _ip(self, datagrams: ip.Datagrams, refused: ip.Refused, what: str, depth: int) -> None:
        self._refuse(refused, what)
        if self._too_deep(datagrams.layer, depth):
            return
        extended = ip.extended(datagrams)
        if extended.any():
            stepped, bad = ip.skip_extensions(self.data, datagrams.pick(extended))
            self._ip(stepped, bad, "IPv6 extension header", depth + 1)
            datagrams = datagrams.pick(~extended)
        fragmented = datagrams.fragment != 0
        if fragmented.any():
            self._fragments(datagrams.pick(fragmented))
            datagrams = datagrams.pick(~fragmented)
        self._transport(datagrams, depth)

    def _transport(self, datagrams: ip.Datagrams, depth: int) -> None:
        is_tcp = datagrams.protocol == tcp.PROTOCOL
        segments, refused = tcp.segments(self.data, datagrams.pick(is_tcp))
        self.found.append(segments)
        self._refuse(refused, "TCP header")
        if is_tcp.all():
            return
        others = datagrams.pick(~is_tcp)
        opened, layer, ethertype = tunnel.opened(self.data, others)
        self._totals.non_tcp += len(others) - int(opened.sum())
        if len(layer):
            self.network(layer, ethertype, depth + 1)

    def _refuse(self, refused: ip.Refused, what: str) -> None:
        self._totals.headers_cut += len(refused.cut)
        if len(refused.malformed):
            self._dissector.malformed(self._block, refused.malformed, what)

    def _too_deep(self, layer: Layer, depth: int) -> bool:
        if depth > MAX_DEPTH and len(layer):
            self._dissector.malformed(self._block, layer.row, "headers nested too deep")
        return depth > MAX_DEPTH

    def _odd_link(self, linktype: int, layer: Layer) -> None:
        if self._dissector.peeler.knows(linktype):
            self._peel(linktype, layer)
        else:
            self._dissector.unknown_link(self._block, linktype, layer.row)

    def _peel(self, linktype: int, layer: Layer) -> None:
        for row, at, end, wire in _positions(layer):
            self.slow.append(_Slow(row, (linktype, self.data[at:end].tobytes(), wire - at)))

    def _fragments(self, datagrams: ip.Datagrams) -> None:
        columns = (
            datagrams.src_hi,
            datagrams.src_lo,
            datagrams.dst_hi,
            datagrams.dst_lo,
            datagrams.protocol,
            datagrams.ident,
        )
        keys = zip(*(column.tolist() for column in columns), strict=True)
        places = datagrams.fragment.tolist()
        for key, place, (row, at, end, wire) in zip(keys, places, _positions(datagrams.layer), strict=True):
            payload = self.data[at : max(end, at)].tobytes()
            self.slow.append(_Slow(row, Fragment(key, place & ~1, bool(place & 1), payload, wire - at)))


_NONE = np.empty(0, np.int64)


def _positions(layer: Layer) -> Iterable[tuple[int, int, int, int]]:
    return zip(layer.row.tolist(), layer.at.tolist(), layer.end.tolist(), layer.wire.tolist(), strict=True)


def _joined(parts: list[Segments]) -> Segments:
    if len(parts) == 1:
        return parts[0]
    return Segments(
        *(
            np.concatenate([getattr(part, each.name) for part in parts] or [_NONE])
            for each in fields(Segments)
        )
    )


def _taken(segments: Segments, order: Integers | Mask) -> Segments:
    return Segments(*(getattr(segments, each.name)[order] for each in fields(Segments)))
