"""Segments of TLS connections written anew, with the plaintext of their records.

Theory of operation. `Layout` says where the texts of records lie in the streams of plaintext; `Written` gives
segments the payloads, sequence numbers and acknowledgements that follow from it. What a segment completed is
its payload; what waited until it came goes into LATE segments before it (see `kwsniff.engine.decrypting`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from kwsniff.engine.drained import Rows
from kwsniff.engine.flags import FIN, LATE, RST, SYN
from kwsniff.engine.streams import MASK
from kwsniff.net.address import text
from kwsniff.net.segments import SegmentColumns
from kwsniff.tls.decrypter import Session

Ints = NDArray[np.int64]
MAX_KEPT = 1 << 16
"""Bytes of the records of a handshake that are kept of each end."""
LATE_COLUMNS = ("row", "side", "packet", "time", "a_hi", "a_lo", "a_port", "b_hi", "b_lo", "b_port")


@dataclass(slots=True)
class Link:
    """A TLS connection."""

    session: Session
    sent: list[int] = field(default_factory=lambda: [0, 0])
    """Bytes of plaintext of each end so far, those with it that could not be read."""
    lost: list[int] = field(default_factory=lambda: [0, 0])
    """Bytes of each stream that belong to broken records since the last whole one."""
    over: int = 0
    """Bit k: the end of stream k was handed on."""
    failed: int = 0
    """Records that did not open after others had."""
    kept: list[bytes] = field(default_factory=lambda: [b"", b""])
    """Records of each end that carry no data, while it is not known whether there are keys."""
    sealed: bool = False
    """There are none, so far: all records are handed on as they are."""

    def without_data(self, side: int, record: bytes) -> bytes:
        """What stands for a record without application data."""
        if self.sealed:
            return record
        if self.session.facts.decrypted:
            self.kept = [b"", b""]
        elif len(self.kept[side]) + len(record) <= MAX_KEPT:
            self.kept[side] += record
        return b""

    def closed(self, side: int, record: bytes) -> bytes:
        """A record to which there are no keys, behind those of its handshake."""
        self.sealed = True
        record, self.kept[side] = self.kept[side] + record, b""
        return record


@dataclass(slots=True)
class Opened:
    """Records of some segments, in order, and what they hold."""

    texts: list[bytes]
    holes: Ints
    """Bytes before each that could not be read."""
    failed: list[int] = field(default_factory=list)
    """Those that do not open and are to be told."""


class Layout:
    """Where in the streams of plaintext the records of some segments lie."""

    def __init__(self, streams: Ints, records: Rows, opened: Opened, sent: Ints) -> None:
        """`streams` says which of the streams each record is of, `sent` what these had before."""
        size = np.fromiter(map(len, opened.texts), np.int64, len(opened.texts))
        gone = size + opened.holes
        order = np.argsort(streams, kind="stable")
        self._before = np.concatenate([[0], np.cumsum(gone[order])])
        self._first = np.searchsorted(streams[order], np.arange(len(sent)))
        self._start = sent - self._before[self._first]
        row = records["row"].astype(np.int64)
        self._width = int(row.max(initial=0)) + 2
        self._keys = streams[order] * self._width + row[order]
        self.after = (
            self._start + self._before[np.searchsorted(streams[order], np.arange(len(sent)), "right")]
        )
        self._chunks(opened, streams, records, size, order)

    def sent(self, streams: Ints, rows: Ints) -> Ints:
        """Bytes of streams behind what segments set free."""
        rows = np.minimum(rows, self._width - 1)
        behind = np.searchsorted(self._keys, streams * self._width + rows, "right")
        return self._start[streams] + self._before[behind]

    def _chunks(self, opened: Opened, streams: Ints, records: Rows, size: Ints, order: Ints) -> None:
        """Texts that follow each other and were completed by one packet, as one payload."""
        end = np.empty(len(size), np.int64)
        end[order] = self._start[streams[order]] + self._before[1:]
        every_end, every_size = end, size
        full = np.flatnonzero(size)
        stream, end, size = streams[full], end[full], size[full]
        row, came = records["row"][full], records["order"][full]
        new = np.ones(len(full), np.bool_)
        new[1:] = (
            (np.diff(stream) != 0)
            | (np.diff(row) != 0)
            | (np.diff(came) != 0)
            | (end[:-1] != (end - size)[1:])
        )
        first = np.flatnonzero(new)
        last = np.append(first, len(full))[1:]
        ends = np.concatenate([[0], np.cumsum(size)])
        self.records = records[full[first]]
        """The first record of each payload."""
        self.at = (end - size)[first]
        """Where each begins in its stream."""
        self.start, self.size = ends[first], ends[last] - ends[first]
        """Where it is in `data`, and how long."""
        self.data = b"".join(opened.texts)
        lost = np.flatnonzero(opened.holes)
        self.lost, self.holes = records[lost], opened.holes[lost]
        """Records before which bytes could not be read, how many ..."""
        self.lost_at = (every_end - every_size - opened.holes)[lost]
        """... and where they begin in their streams."""


class Written:
    """Segments that are written anew."""

    def __init__(self, segments: SegmentColumns) -> None:
        self._segments = segments
        self._buffers = [*segments.buffers, *[memoryview(b"")] * (2 - len(segments.buffers))]
        self._columns: dict[str, Ints] | None = None
        self._late: list[dict[str, Ints]] = []
        self._data: list[bytes] = []
        self._size = 0
        self._notes: list[tuple[int, str, str, int, int]] = []

    def put(self, first: int, rows: Rows, of: Ints, place: Ints, layout: Layout, links: list[Link]) -> None:
        """Write those `of` the `rows`, the first of which is `first`: `place` is that of stream 0 of the
        connection of each."""
        if self._columns is None:
            names = ("seq", "ack", "flags", "length", "captured", "buffer", "start")
            self._columns = {name: np.array(getattr(self._segments, name), np.int64) for name in names}
        columns, side = self._columns, rows["side"][of]
        own, other = place + side, place + 1 - side
        at = first + of
        now = {
            name: rows[name][of] for name in ("seq", "ack", "flags", "base", "other_base", "ahead", "acked")
        }
        sent = layout.sent(own, of)
        acked = layout.sent(other, of)
        acked = np.where(now["acked"] < 0, np.maximum(acked + now["acked"], 0), acked + now["acked"])
        moved = (now["flags"] & SYN) == 0
        known = moved & (now["base"] >= 0)
        # What its payload was is told by the records; without one only an RST or a keep-alive lies elsewhere.
        is_bare = (rows["length"][of] == 0) | (now["flags"] & RST != 0)
        seq = now["base"] + sent + np.where(is_bare, now["ahead"], 0)
        columns["seq"][at] = np.where(known, seq & MASK, now["seq"])
        known = moved & (now["other_base"] >= 0)
        columns["ack"][at] = np.where(known, (now["other_base"] + acked) & MASK, now["ack"])
        columns["flags"][at] &= ~FIN
        columns["length"][at] = columns["captured"][at] = columns["start"][at] = columns["buffer"][at] = 0
        self._payloads(first, rows, layout)
        self._ends(first, rows, of, place, layout, links)

    def _payloads(self, first: int, rows: Rows, layout: Layout) -> None:
        """Give segments the plaintext that they completed."""
        columns, records = self._columns, layout.records
        assert columns is not None
        row = records["row"]
        own = np.ones(len(records), np.bool_)
        for name in ("number", "side", "order"):
            own &= records[name] == rows[name][row]
        # A segment that brings the bytes before and behind some that waited has two payloads.
        own[1:] &= ~((row[1:] == row[:-1]) & own[:-1])
        at = first + row[own]
        columns["seq"][at] = (records["base"][own] + layout.at[own]) & MASK
        columns["length"][at] = columns["captured"][at] = layout.size[own]
        columns["start"][at], columns["buffer"][at] = layout.start[own] + self._size, len(self._buffers)
        self.put_late(first, layout, ~own)

    def put_late(self, first: int, layout: Layout, which: NDArray[np.bool_]) -> None:
        """Give plaintext that waited segments of its own."""
        self._add_late(first, layout.lost, layout.lost_at, length=layout.holes)
        size, start = layout.size[which], layout.start[which] + self._size
        self._add_late(
            first, layout.records[which], layout.at[which], length=size, captured=size, start=start
        )
        self._data.append(layout.data)
        self._size += len(layout.data)

    def _add_late(self, first: int, records: Rows, at: Ints, **columns: Ints) -> None:
        """Add LATE segments that begin at these places of the streams of records."""
        if not len(records):
            return
        made = {name: records[name].astype(np.int64) for name in LATE_COLUMNS}
        nothing = np.zeros(len(records), np.int64)
        made |= {"before": first + made.pop("row"), "seq": (records["base"] + at) & MASK}
        self._late.append({"captured": nothing, "start": nothing, "flags": nothing + LATE} | made | columns)

    def _ends(self, first: int, rows: Rows, of: Ints, place: Ints, layout: Layout, links: list[Link]) -> None:
        """Hand on the ends of streams, once all of them is there."""
        columns = self._columns
        assert columns is not None
        over = rows["over"][of]
        for each in np.flatnonzero(over).tolist():
            link, row = links[int(place[each]) // 2], int(of[each])
            for side in range(2):
                if not int(over[each]) >> side & 1 or link.over >> side & 1:
                    continue
                link.over |= 1 << side
                is_own = side == int(rows["side"][row])
                stream = place[each : each + 1] + side
                sent = int(layout.sent(stream, of[each : each + 1])[0])
                base = int(rows["base" if is_own else "other_base"][row])
                if is_own and int(rows["flags"][row]) & FIN and not int(rows["flags"][row]) & RST:
                    behind = int(columns["seq"][first + row] + columns["length"][first + row]) & MASK
                    if behind == (base + sent) & MASK:
                        columns["flags"][first + row] |= FIN
                        continue
                self._late.append(self._late_end(first + row, side, is_own, base + sent))

    def _late_end(self, at: int, side: int, is_own: bool, seq: int) -> dict[str, Ints]:
        """A LATE segment before the one at a place, which ends a stream of its connection."""
        segments = self._segments
        a, b = ("src", "dst") if is_own == (side == 0) else ("dst", "src")
        made = {f"a_{name}": getattr(segments, f"{a}_{name}")[at] for name in ("hi", "lo", "port")}
        made |= {f"b_{name}": getattr(segments, f"{b}_{name}")[at] for name in ("hi", "lo", "port")}
        made |= {"before": at, "side": side, "seq": seq & MASK, "flags": FIN | LATE}
        made |= dict.fromkeys(("length", "captured", "start"), 0)
        made |= {"packet": segments.packet[at], "time": segments.time[at]}
        return {name: np.array([int(value)], np.int64) for name, value in made.items()}

    def note(self, first: int, records: Rows) -> None:
        """Tell of records that do not open."""
        for record in records:
            ends = [
                f"{text(int(record[f'{end}_hi']), int(record[f'{end}_lo']))}:{record[f'{end}_port']}"
                for end in "ab"
            ]
            detail = f"{record['size']} bytes between {' and '.join(ends)}"
            at, packet, time = first + int(record["row"]), int(record["packet"]), int(record["time"])
            self._notes.append((at, "tls_record_unreadable", detail, packet, time))

    def columns(self) -> SegmentColumns:
        """All segments."""
        segments, columns = self._segments, self._columns or {}
        if not columns and not self._late:
            return segments
        buffers = [*self._buffers, memoryview(b"".join(self._data))]
        notes = sorted([*segments.notes, *self._notes], key=lambda note: note[0])
        made = replace(segments, **columns, buffers=buffers, notes=notes, place=None)
        return self._with_late(made) if self._late else made

    def _with_late(self, segments: SegmentColumns) -> SegmentColumns:
        late = {name: np.concatenate([each[name] for each in self._late]) for name in self._late[0]}
        count = len(late["before"])
        places = np.concatenate([2 * np.arange(len(segments)) + 1, 2 * late["before"]])
        order = np.argsort(places, kind="stable")
        names = ("packet", "time", "seq", "flags", "length", "captured", "start")
        given = {name: late[name] for name in names}
        given |= {"ack": np.zeros(count), "tsval": np.full(count, -1)}
        given["buffer"] = np.full(count, len(self._buffers))
        for name in ("hi", "lo", "port"):
            a, b = late[f"a_{name}"], late[f"b_{name}"]
            given[f"src_{name}"] = np.where(late["side"] == 0, a, b)
            given[f"dst_{name}"] = np.where(late["side"] == 0, b, a)
        columns = {
            name: np.concatenate([getattr(segments, name), added])[order].astype(np.int64)
            for name, added in given.items()
        }
        return replace(segments, **columns)
