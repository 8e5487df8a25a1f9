"""Segments of TLS connections made into segments of what they carry.

Theory of operation. An engine of its own, with `limits.tls`, puts the streams of TLS connections in order and
cuts them into records (`kwsniff.engine.records`); `kwsniff.tls.decrypter.Session` opens these one after the
other. Each segment is then written anew: its payload is the plaintext of the records that it completed, its
sequence number and what it acknowledges are those that this plaintext would have. So the engine that comes
next needs to know nothing of TLS, and a record that could not be read is a hole of about its size, which it
treats as any other that the capture lacks.

Bytes that could not be read before, because some that precede them came later or never, have the packet and
the time of the segment that brought them: they go into segments of their own, flagged LATE, before the one
that set them free.

Records of a connection whose keys are not at hand are handed on as they are: that is a connection of TLS for
the engine that comes next, too.

Invariant: but for those that are LATE there are as many segments as before, in the same order; so both
engines give a connection the same number.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kwsniff.config import Config
from kwsniff.engine import checkpoint
from kwsniff.engine import tables as entry
from kwsniff.engine.drained import Drained, Rows
from kwsniff.engine.intake import Intake
from kwsniff.engine.rewriting import Layout, Link, Opened, Written
from kwsniff.native.rowcopies import copied
from kwsniff.net.segments import SegmentColumns, segment_columns, with_secrets
from kwsniff.tls.decrypter import Session
from kwsniff.tls.keylog import GrowingKeyLog, KeyLog
from kwsniff.tls.suites import HEADER_BYTES

Ints = NDArray[np.int64]
PART_OF_MEMORY = 4
"""Of what may be buffered in all: here wait ciphertext behind holes, and records that are not whole."""
MOST_NOTED = 10
"""Records of a connection that are told not to open."""
MAX_ENDED = 65_536
"""Connections that are over and kept until their rows are told."""
COUNTS = ("packets", "bytes", "missing", "again", "zero_windows", "records", "last_record")
"""Of each end of a connection: counted where its segments are still those of the capture."""


class Decryption(Intake):
    """TLS connections of one input."""

    def __init__(
        self, config: Config, share: tuple[int, int] | None = None, *, compiled: bool | None = None
    ) -> None:
        held = config.max_buffered_bytes // PART_OF_MEMORY
        own = replace(config, full=False, records=False, columns=frozenset(), max_buffered_bytes=held)
        super().__init__(own, share, compiled=compiled)
        self._given = config
        self.machine.t.limits[0].tls = 1
        self.keys = KeyLog() if config.keylog is None else GrowingKeyLog(config.keylog, may_come=True)
        """Secrets, which may still become more."""
        self._links: dict[int, Link] = {}
        """By the numbers of connections, until their rows were told ..."""
        self._over: dict[int, Any] = {}
        """... and their rows of `ends`, if they are over."""
        self._capture: str | None = None

    def begin(self, order: int) -> None:
        """Its first segment has this place in the input."""
        self.machine.t.run[0].order = order

    # What is known of connections

    def told(self, drained: Drained) -> Drained:
        """What is told of some connections, with what is known of their TLS."""
        numbers = [number for number in drained.owners["number"].tolist() if number in self._links]
        if not numbers:
            return drained
        facts = {number: self._links[number].session.facts for number in numbers}
        over = {}
        for row in drained.ends:
            number = int(row["number"])
            end = self._over.get(number)
            # What is known of one whose records go on, because only they show that it does, depends on how
            # far was read.
            if number in facts and end is not None and end["order"] <= row["order"]:
                over[number] = facts[number]
                self._complete(row, self._links.pop(number), self._over.pop(number))
        return drained._replace(tls=facts, tls_over=over)

    def _complete(self, row: Any, link: Link, end: Any) -> None:
        """Write into the row of a connection what the segments of the capture said of it."""
        if not link.session.facts.decrypted:
            row["state"] = entry.TLS
        same = int(row["client"]) == max(int(end["client"]), 0)
        for who, other in (("client", "broker"), ("broker", "client")):
            for name in COUNTS:
                row[f"{who}_{name}"] = end[f"{who if same else other}_{name}"]
        for name in ("copies", "alert", "hello_time", "agreed_time"):
            row[name] = end[name]
        row["alert_side"] = end["alert_side"] if same else 1 - end["alert_side"]

    # Segments in, segments out

    def plain(self, segments: SegmentColumns) -> SegmentColumns:
        """The same segments in the clear, as far as there are keys."""
        self.keys.refresh()
        run = self.machine.t.run[0]
        run.capture, self._capture = 0, segments.capture
        buffer, start = self._set_buffers(segments)
        written = Written(segments)
        for at, stop in self._slices(segments):
            self._set_segments(segments, buffer, start, at, stop)
            run = self.machine.t.run[0]
            run.row = run.phase = run.records = run.record_bytes = 0
            self.machine.set_column("segments", "number", 0)
            self._act(entry.FOLLOW, stop - at)
            self._write(written, at, self.machine.array("segments", stop - at))
        self.machine.shrink()
        return written.columns()

    def pass_time(self, now: int) -> SegmentColumns:
        """No segment before `now` (nanoseconds since 1970) is still to come: what that sets free."""
        return self._freed(entry.TICK, now)

    def finish(self) -> SegmentColumns:
        """The input is over: what still waits."""
        self.machine.t.run[0].finished = self.machine.t.run[0].order
        return self._freed(entry.FINISH)

    def _freed(self, what: int, how: int = 0) -> SegmentColumns:
        run = self.machine.t.run[0]
        run.row = run.records = run.record_bytes = 0
        self._act(what, how)
        nothing = replace(segment_columns(with_secrets(b"")), capture=self._capture)
        written = Written(nothing)
        self._write(written, 0, self.machine.array("segments", 0))
        return written.columns()

    def _act(self, what: int, how: int = 0) -> None:
        """Have the kernels do something. Of what they tell only the ends of connections are of interest."""
        for _ in self.machine.act(what, how):
            self._take_ends()
        self._take_ends()

    def _take_ends(self) -> None:
        run = self.machine.t.run[0]
        for row in copied(self.machine.array("ends", int(run.ends))):
            if row["state"] == entry.TLS:
                self._over[int(row["number"])] = row
        run.ends = run.notes = run.calls = run.kept = 0
        while len(self._over) > MAX_ENDED:
            number = next(iter(self._over))
            self._links.pop(number, None)
            del self._over[number]

    def _write(self, written: Written, first: int, rows: Rows) -> None:
        """Write segments anew, which the kernels have taken, the first of which is `first` of its batch."""
        run = self.machine.t.run[0]
        records = copied(self.machine.array("records", int(run.records)))
        of = np.flatnonzero(rows["number"])
        if not len(of) and not len(records):
            return
        data = self.machine.data("record_data", 0, int(run.record_bytes))
        numbers = np.union1d(rows["number"][of], records["number"])
        links = [self._link(number) for number in numbers.tolist()]
        sent = np.array([link.sent for link in links], np.int64).ravel()
        streams = 2 * np.searchsorted(numbers, records["number"]) + records["side"]
        opened = self._opened(links, streams, records, data)
        layout = Layout(streams, records, opened, sent)
        for at, link in enumerate(links):
            link.sent = [int(each) for each in layout.after[2 * at : 2 * at + 2]]
        if len(of):
            place = 2 * np.searchsorted(numbers, rows["number"][of])
            written.put(first, rows, of, place, layout, links)
        else:
            written.put_late(first, layout, np.ones(len(layout.records), np.bool_))
        written.note(first, records[opened.failed])

    def _link(self, number: int) -> Link:
        link = self._links.get(number)
        if link is None:
            link = self._links[number] = Link(Session(self.keys))
        return link

    def _opened(self, links: list[Link], streams: Ints, records: Rows, data: bytes) -> Opened:
        """Open records in their order."""
        opened = Opened([], np.zeros(len(records), np.int64))
        add = opened.texts.append
        takes = [partial(link.session.take, side) for link in links for side in range(2)]
        lost = [count for link in links for count in link.lost]
        first = records["at"]
        simple = (first >= 0) & (records["unread"] == 0)
        columns = streams, first, first + records["size"], simple
        for stream, at, end, is_simple in zip(*(each.tolist() for each in columns), strict=True):
            if is_simple and not lost[stream]:
                plain = takes[stream](data[at:end])
                if plain:
                    add(plain)
                    continue
                hole = 0
            else:
                row = records[len(opened.texts)]
                plain, hole, lost[stream] = _taken_late(
                    links[stream >> 1], stream & 1, row, lost[stream], data
                )
            if plain is None:
                plain, unread = _instead(links[stream >> 1], self.keys, stream & 1, data[at:end])
                hole += unread
                if unread and links[stream >> 1].failed <= MOST_NOTED:
                    opened.failed.append(len(opened.texts))
            elif not plain and at >= 0:
                plain = links[stream >> 1].without_data(stream & 1, data[at:end])
            opened.holes[len(opened.texts)] = hole
            add(plain)
        for at, link in enumerate(links):
            link.lost = lost[2 * at : 2 * at + 2]
        return opened

    # To go on in another process

    def __getstate__(self) -> dict[str, Any]:
        """Without secrets, which are not to lie about: those of the key log are read again."""
        tables = checkpoint.state(self.machine)
        return {
            "config": self._given,
            "share": self._share,
            "tables": tables,
            "links": self._links,
            "over": self._over,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["config"], state["share"])  # type: ignore[misc]
        checkpoint.restore(self.machine, state["tables"])
        self._links, self._over = state["links"], state["over"]
        for link in self._links.values():
            link.session.keys = self.keys


def _taken_late(link: Link, side: int, row: Any, lost: int, data: bytes) -> tuple[bytes | None, int, int]:
    """What a record holds that is broken or comes after bytes that are missing, or None; bytes that could not
    be read before; and bytes of the stream that are missing since the last whole record."""
    unread, size, at = int(row["unread"]), int(row["size"]), int(row["at"])
    hole = link.session.lost_size(side, unread) if unread else 0
    lost += unread
    if at < 0:
        return b"", hole + link.session.size_of(side, size - HEADER_BYTES), lost + size
    return link.session.take(side, data[at : at + size], lost), hole, 0


def _instead(link: Link, keys: KeyLog, side: int, record: bytes) -> tuple[bytes, int]:
    """What stands for a record that does not open, and bytes that are missing. If there are no keys to its
    connection, that is the record itself."""
    session = link.session
    if not session.facts.decrypted and (session.hello is None or keys.find(session.hello.random) is None):
        return link.closed(side, record), 0
    link.failed += 1
    return b"", max(session.size_of(side, len(record) - HEADER_BYTES), 1)
