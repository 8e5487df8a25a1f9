"""From a block of packets to its TCP segments.

`headers` takes each packet through its headers, tunnels and all. IP fragments wait in the `Defragmenter`,
which gives back IP packets in a new buffer, and these are then dissected like any others.

Invariants: the segments found depend on the bytes of the capture only, not on how it is cut into blocks; they
come out in the order of their packets; no bytes whatsoever make `dissect` raise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields

import numpy as np

from kwsniff.net import runner as machine
from kwsniff.net import tcp
from kwsniff.net.fragments import Defragmenter, Fragment, read_fragment
from kwsniff.net.inout import BAD_LINK, CUT, MALFORMED, MAX_DEPTH, NON_IP, NON_TCP, ODD_LINK, TOO_DEEP
from kwsniff.net.packets import Bytes, CaptureTotals, Integers, Mask, Note, PacketBlock
from kwsniff.net.runner import Packets, Recent, find_copies
from kwsniff.net.segments import COPY
from kwsniff.net.tcp import Segments

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


_Packet = tuple[int, bytes, int]
"""Row, captured bytes of an IP packet, length on the wire."""


class Dissector:
    """Dissects the blocks of one run in order; remembers fragments between blocks and files."""

    def __init__(self, totals: CaptureTotals) -> None:
        self._totals = totals
        self._defragmenter = Defragmenter()
        self._inside = machine.Inside()
        self._recent = Recent()
        self._notes: list[Note] = []
        self._noted: dict[str, int] = {}
        self._unknown_links: set[int] = set()

    def dissect(self, block: PacketBlock) -> Dissected:
        """Find the TCP segments of `block`, among them those whose last fragment it holds."""
        self._notes = []
        self.note(block.notes)
        self._count(block)
        first = _Round.of_block(self, block)
        joined = list(self._joined(block, first.fragments)) if first.fragments else []
        rounds = [first, *([_Round.of_packets(self, block, joined)] if joined else ())]
        return self._collect(block, rounds)

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

    def malformed(self, block: PacketBlock, rows: Integers, what: Sequence[str]) -> None:
        """Note packets whose headers contradict their length; `what` says for each which header."""
        self._totals.malformed += len(rows)
        known = self._noted.get("packet_malformed", 0)
        shown = rows[: max(NOTES_PER_CODE - known, 0)].tolist()
        self.note(
            self._note(block, row, "packet_malformed", each) for row, each in zip(shown, what, strict=False)
        )
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

    @staticmethod
    def _note(block: PacketBlock, row: int, code: str, detail: str) -> Note:
        return Note(int(block.number[row]), code, detail, int(block.time_ns[row]))

    def _count(self, block: PacketBlock) -> None:
        self._totals.packets += len(block)
        self._totals.bytes += int(block.origlen.sum())
        if len(block):
            self._totals.see_times(int(block.time_ns.min()), int(block.time_ns.max()))

    def _joined(self, block: PacketBlock, fragments: Iterable[tuple[int, Fragment]]) -> Iterator[_Packet]:
        """The IP packets that fragments complete. One may hold the next fragment, taken at once: they
        go to the defragmenter in the order of their packets, wherever blocks are cut."""
        times, numbers = block.time_ns.tolist(), block.number.tolist()
        for row, fragment in fragments:
            for _ in range(MAX_DEPTH):
                self._totals.fragments += 1
                key = fragment.key
                whole, lost = self._defragmenter.add(fragment, times[row], numbers[row])
                if lost:
                    self.lost(lost)
                if whole is None:
                    break
                inner = None if key[4] == tcp.PROTOCOL else self._inside.fragment(*whole)
                if inner is None:
                    yield row, *whole
                    break
                fragment = read_fragment(inner, memoryview(whole[0]))
            else:
                self.malformed(block, np.array([row]), [MALFORMED[TOO_DEEP]])

    def _collect(self, block: PacketBlock, rounds: list[_Round]) -> Dissected:
        parts = [(index, each.segments) for index, each in enumerate(rounds) if len(each.segments)]
        buffer = np.concatenate([np.full(len(part), index, np.int64) for index, part in parts] or [_NONE])
        segments = _joined([part for _, part in parts])
        if len(parts) > 1:
            order = np.argsort(segments.row, kind="stable")
            segments, buffer = _taken(segments, order), buffer[order]
        self._totals.segments += len(segments)
        copies = find_copies(self._recent, segments, block.time_ns[segments.row])
        segments.flags = segments.flags | np.where(copies, COPY, 0)
        self._totals.duplicates += int(copies.sum())
        self._totals.payloads_cut += int((segments.captured < segments.length).sum())
        notes = sorted(self._notes, key=lambda note: note.packet)
        return Dissected(block, segments, buffer, [each.data for each in rounds], notes)


class _Round:
    """The way of some packets in one buffer through the layers. Rows are always those of `block`."""

    def __init__(
        self, dissector: Dissector, packets: Packets, block: PacketBlock, rows: Integers | None = None
    ) -> None:
        """`rows` are the rows of the packets, None if they are all of the block."""
        self.data = packets.data
        self.fragments: list[tuple[int, Fragment]] = []
        self._packets, self._block, self._rows = packets, block, rows
        self._dissector = dissector
        found = machine.dissect(packets)
        self.segments = found.segments
        if rows is not None:
            self.segments.row = rows[self.segments.row]
        if len(self.segments) < len(packets):
            self._judge(found)

    @classmethod
    def of_block(cls, dissector: Dissector, block: PacketBlock) -> _Round:
        """Dissect the frames of a block."""
        end = block.offset + block.caplen
        wire = np.maximum(block.offset + block.origlen, end)
        return cls(dissector, Packets(block.data, block.offset, end, wire, block.linktype), block)

    @classmethod
    def of_packets(cls, dissector: Dissector, block: PacketBlock, packets: list[_Packet]) -> _Round:
        """Dissect IP packets in a buffer of their own."""
        caplen = np.array([len(captured) for _, captured, _ in packets], np.int64)
        offset = np.cumsum(caplen) - caplen
        wire = np.array([length for _, _, length in packets], np.int64)
        rows = np.array([row for row, _, _ in packets], np.int64)
        data = np.frombuffer(b"".join(captured for _, captured, _ in packets), np.uint8)
        linktype = np.full(len(packets), machine.RAW_IP, np.int64)
        whole = Packets(data, offset, offset + caplen, offset + np.maximum(wire, caplen), linktype)
        return cls(dissector, whole, block, rows)

    def _judge(self, found: machine.Read) -> None:
        """Count, note or take further the packets that are no segment."""
        totals = self._dissector.totals
        counts = np.bincount(found.verdict, minlength=TOO_DEEP + 1)
        totals.non_ip += int(counts[NON_IP])
        totals.non_tcp += int(counts[NON_TCP])
        totals.headers_cut += int(counts[CUT])
        if counts[BAD_LINK:].any():
            self._dissector.malformed(self._block, *self._malformed(found.verdict))
        self.fragments = self._fragments(found.fragments)
        if counts[ODD_LINK]:
            self._odd_links(np.flatnonzero(found.verdict == ODD_LINK))

    def _malformed(self, verdict: Integers) -> tuple[Integers, list[str]]:
        which = np.flatnonzero(verdict >= BAD_LINK)
        return self._rows_of(which), [MALFORMED[code] for code in verdict[which].tolist()]

    def _rows_of(self, which: Integers) -> Integers:
        return which if self._rows is None else self._rows[which]

    def _fragments(self, found: list[list[int]]) -> list[tuple[int, Fragment]]:
        rows = range(len(self._packets)) if self._rows is None else self._rows.tolist()
        data = self.data.data
        return [(rows[each[0]], read_fragment(each, data)) for each in found]

    def _odd_links(self, which: Integers) -> None:
        """Packets of link types that nobody knows."""
        linktypes = self._packets.linktype[which]
        for linktype in np.unique(linktypes).tolist():
            self._dissector.unknown_link(self._block, linktype, self._rows_of(which[linktypes == linktype]))


_NONE = np.empty(0, np.int64)


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
