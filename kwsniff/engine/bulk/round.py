"""One round: the plain stretches of many connections at once, through the compiled kernels.

Theory of operation. The connections' states become rows of integers (`link`), `streams` follows them and
pairs frames, `bodies` reads what the frames say, `calls` makes calls of it, and the states go back. What the
kernels leave is done here by the exact path's own methods, in stream order: requests that still wait at the
end of the round, responses to those that waited at its beginning, and calls of which a body is not plain.

The tables are kept between rounds and grow to what a block of packets needs.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kwsniff.config import Config
from kwsniff.engine.block import CallBlock
from kwsniff.engine.bulk import columns as c
from kwsniff.engine.bulk.bodies import bodies
from kwsniff.engine.bulk.calls import calls
from kwsniff.engine.bulk.full import Bodies
from kwsniff.engine.bulk.link import Held, store
from kwsniff.engine.bulk.programs import Programs, known_versions
from kwsniff.engine.bulk.rest import Rest
from kwsniff.engine.bulk.streams import follow, regions, scratch
from kwsniff.engine.bulk.texts import CAPACITY, SLOTS
from kwsniff.engine.rows import Rows
from kwsniff.events import Anomaly
from kwsniff.net.columns import ACK, FIN, RST, SYN
from kwsniff.net.reassembly import FAR
from kwsniff.spec.program import MAX_DEPTH
from kwsniff.spec.runtime import uuid_text

if TYPE_CHECKING:
    from kwsniff.engine.connection import Connection
    from kwsniff.events import Call
    from kwsniff.wire.conversation import Conversation
    from kwsniff.wire.render import Problem

Ints = NDArray[np.int64]
Share = tuple["Connection", int, int]
"""A connection and the segments it is to take: from a row, to a row."""

FRAMES_AT_ONCE = 1 << 17


class Segments:
    """The columns of a block of segments in connection order, as the kernels want them."""

    def __init__(self, rows: Rows) -> None:
        flags = rows.flags
        self.side = rows.side.astype(np.bool_)
        self.acks = flags & ACK != 0
        self.special = (flags & (FIN | SYN | RST) != 0) | (rows.captured != rows.length)
        self.captured, self.time, self.packet = rows.captured, rows.time, rows.packet
        self.order, self.seq, self.ack = rows.order, rows.seq, rows.ack
        self.buffer, self.start = rows.buffer.astype(np.int32, copy=False), rows.start
        # Short payloads lie in the array of views, all others in blocks: see kwsniff.arrow.
        # Whether one may write to an array is part of its type, for which numba compiles.
        views, *blocks = [np.frombuffer(data.toreadonly(), np.uint8) for data in rows.buffers]
        self.inline = views
        self.block = blocks[0] if blocks else views
        if len(blocks) > 1:
            self.special |= self.buffer > 1


class Rounds:
    """Runs rounds; see the module's head."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._programs = Programs()
        self._versions = known_versions()
        self._scratch = scratch()
        self._limits = np.array(
            [
                int(config.idle_timeout * 1e9), config.max_frame_bytes, config.max_connection_bytes,
                config.max_outstanding, config.reorder_packets, int(config.reorder_time * 1e9),
                int(config.hole_time * 1e9), config.max_reorder_bytes - FAR, int(config.orphan_time * 1e9),
            ],
            np.int64,
        )  # fmt: skip
        self._lists = config.columns is None or bool(config.columns & {"topics", "topic_ids", "partitions"})
        self._buf = np.zeros(0, np.uint8)
        self._frames = np.zeros((0, c.FRAME_COLUMNS), np.int64)
        self._facts = np.zeros((0, c.FACT_COLUMNS), np.int64)
        self._rows = np.zeros((1 << 14, c.ROW_COLUMNS), np.int64)
        self._topics = np.zeros((1 << 12, 2), np.int64)
        self._spans = np.zeros((CAPACITY + 1, 3), np.int64)
        self._slots = np.full(SLOTS, -1, np.int32)
        self._stamps = np.zeros((CAPACITY, 3), np.int64)
        self._counts = np.zeros(3, np.int64)
        self._left = np.zeros(MAX_DEPTH + 2, np.int64)

    def take(
        self, segments: Segments, rows: Rows, shares: list[Share], out: list[Call]
    ) -> tuple[list[int], CallBlock, dict[int, int]]:
        """Take from each share what is plain.

        Returns the row at which each stopped, calls, and the place in the round of calls added to `out`.
        """
        held, buf, chunks, frames, deeds = self._follow(segments, shares)
        links = held.links
        self._read(buf, frames)
        view = memoryview(buf)
        for index, (connection, _, _) in enumerate(shares):
            link = links[index]
            if link[c.TAKEN] > link[c.BEGIN]:
                store(connection, link, held.sides[index], held.holes[index], view, chunks, rows)
                last = int(link[c.TAKEN]) - 1
                connection.capture = rows.capture
                connection.last_packet = int(rows.packet[last])
                connection.last_order = int(rows.order[last])
        bodies = Bodies(self._config, view, frames, self._facts) if self._config.full else None
        block = self._calls(buf, frames, shares, bodies)
        sequence = self._exact(view, frames, deeds, shares, out, bodies.notes if bodies else {})
        for (connection, _, _), link in zip(shares, links, strict=True):
            connection.exchange.conversation.response_gap = bool(link[c.GAP])
        return links[:, c.TAKEN].tolist(), block, sequence

    def _follow(self, segments: Segments, shares: list[Share]) -> tuple[Held, Any, Ints, Ints, Ints]:
        self._programs.learn()
        held = Held(len(shares))
        for index, (connection, begin, end) in enumerate(shares):
            held.load(index, connection, begin, end)
        held_bytes, held_chunks, waiting, early = held.arrays()
        links = held.links
        size, chunk_count = regions(segments.side, segments.captured, links, held.sides)
        if size > len(self._buf):
            self._buf = np.zeros(size, np.uint8)
        chunks = np.empty((chunk_count, c.CHUNK_COLUMNS), np.int64)
        room = min(4 * len(segments.side) + 4096, FRAMES_AT_ONCE)
        if room > len(self._frames):
            self._frames = np.zeros((room, c.FRAME_COLUMNS), np.int64)
            self._facts = np.zeros((room, c.FACT_COLUMNS), np.int64)
        queue = np.empty(len(self._frames) + (int(links[:, c.WAITING].max())), np.int64)
        deeds = np.empty((len(segments.side) + 8192 + len(waiting), c.DEED_COLUMNS), np.int64)
        count, deed_count = follow(
            segments.side, segments.seq, segments.ack, segments.acks, segments.special, segments.captured,
            segments.time, segments.packet, segments.order, segments.buffer, segments.start, segments.inline,
            segments.block, links, held.sides, held_bytes, held_chunks, waiting, early,
            self._programs.entries, self._versions, self._limits, self._buf, chunks, self._frames, queue,
            deeds, held.holes, *self._scratch,
        )  # fmt: skip
        return held, self._buf, chunks, self._frames[:count], deeds[:deed_count]

    def _read(self, buf: Any, frames: Ints) -> None:
        self._slots.fill(-1)
        self._spans[CAPACITY, 0] = 0
        self._stamps.fill(0)
        self._counts.fill(0)
        done = 0
        while True:
            done = bodies(
                done, frames, buf, self._programs.code, self._programs.entries, self._config.verify_crc,
                self._lists, self._facts, self._rows, self._topics, self._counts, self._spans, self._slots,
                self._stamps, self._left, self._config.max_elements,
            )  # fmt: skip
            if done == len(frames):
                return
            self._rows = np.concatenate([self._rows, np.zeros_like(self._rows)])
            self._topics = np.concatenate([self._topics, np.zeros_like(self._topics)])

    def _calls(self, buf: Any, frames: Ints, shares: list[Share], bodies: Bodies | None) -> CallBlock:
        asked = int(np.count_nonzero((frames[:, c.KEY] >= 0) & (frames[:, c.PARTNER] != c.UNPAIRED)))
        table = np.empty((c.CALL_COLUMNS, asked), np.int64)
        topics = np.empty((int(self._counts[1]), 2), np.int64)
        rows = np.empty((int(self._counts[0]), c.ROW_COLUMNS), np.int64)
        places = np.zeros(2, np.int64)
        count = calls(
            frames, self._facts, self._rows, self._topics, buf, self._spans, self._slots, self._stamps,
            int(self._counts[2]), table, topics, rows, places, np.zeros(c.FACT_COLUMNS, np.int64),
        )  # fmt: skip
        return CallBlock(
            table[:, :count],
            np.array([connection.number for connection, _, _ in shares], np.int64),
            [
                (connection.exchange.conversation.software_name,
                connection.exchange.conversation.software_version) for connection, _, _ in shares
            ],
            topics[: places[0]],
            rows[: places[1]],
            bodies.of(table[c.CALL_FRAME, :count]) if bodies else None,
            self._texts(memoryview(buf)),
        )  # fmt: skip

    def _texts(self, buf: memoryview) -> list[str]:
        spans = self._spans[: self._spans[CAPACITY, 0]].tolist()
        return [
            uuid_text(bytes(buf[start : start + size])) if kind else str(buf[start : start + size], "ascii")
            for start, size, kind in spans
        ]

    def _exact(
        self,
        buf: memoryview,
        frames: Ints,
        deeds: Ints,
        shares: list[Share],
        out: list[Call],
        notes: dict[int, list[Problem]],
    ) -> dict[int, int]:
        """Do with the exact path what the kernels left, in stream order."""
        partner, is_request = frames[:, c.PARTNER], frames[:, c.KEY] >= 0
        clean = self._facts[: len(frames), c.CLEAN] > 0
        # Requests tell whether their call is clean; responses are as their request is.
        paired = partner >= 0
        clean[paired & ~is_request] = clean[partner[paired & ~is_request]]
        trailing = self._facts[: len(frames), c.TRAILING]
        left = ~clean | (partner == c.NO_REPLY) | (trailing > 0)
        left[list(notes)] = True
        work = [(2 * index, index) for index in np.flatnonzero(left).tolist()]
        if len(deeds):
            work += [(place, -1 - at) for at, place in enumerate(deeds[:, c.DEED_PLACE].tolist())]
            work.sort(key=itemgetter(0))
        rest = Rest(buf, frames, deeds, shares)
        sequence: dict[int, int] = {}
        for place, index in work:
            before = len(out)
            if index < 0:
                rest.deed(-1 - index)
            elif clean[index]:
                row = frames[index].tolist()
                if row[c.KEY] < 0 and row[c.PARTNER] > index:
                    # It was read when its request was there.
                    row[c.ORDER] = max(row[c.ORDER], int(frames[row[c.PARTNER], c.ORDER]))
                conversation = shares[row[c.CONNECTION]][0].exchange.conversation
                self._note_clean(conversation, row, int(trailing[index]), notes.get(index, []))
            else:
                rest.frame(index)
            for at in range(before, len(out)):
                sequence[at] = place
        return sequence

    def _note_clean(
        self, conversation: Conversation, row: list[int], trailing: int, notes: list[Problem]
    ) -> None:
        """What a frame of a call that the kernels made still means for its connection."""
        if row[c.PARTNER] == c.NO_REPLY:
            conversation.remember_no_reply(row[c.CORRELATION_ID])
        if trailing > 0:
            direction = "response" if row[c.KEY] < 0 else "request"
            notes = [("trailing_bytes", f"{trailing} bytes after the {direction} body"), *notes]
        for code, detail in notes:
            conversation.anomalies.append(
                Anomaly(row[c.ORDER], conversation.connection, code, detail, row[c.PACKET], row[c.LAST_TIME])
            )
