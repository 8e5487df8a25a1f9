"""One TCP connection: from its segments, in capture order, to what its conversation says.

Theory of operation. Segments that merely continue both streams are delivered in bulk: one vector comparison
finds the first that does not (out of order, cut, with a control flag, after long silence), and all before it
become one run of bytes a direction. That one goes through `_step`, which is exact and slow: it treats a
single segment, and goes on being used while a hole is open, framing is lost or the content is not judged
yet. The bulk path is a short cut: it yields what stepping would. What streams deliver goes to an `Exchange`.

Invariants: side 0 is end a of `Endpoints`, 1 is end b; after `closed`, segments are only counted.
"""

from __future__ import annotations

from bisect import bisect_right
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from kwsniff.config import Config
from kwsniff.engine.exchange import Exchange
from kwsniff.engine.probe import KAFKA, OTHER, TLS, TOKENS, WAIT
from kwsniff.engine.rows import Endpoints, Rows
from kwsniff.events import Anomaly, Call, ConnectionEnd
from kwsniff.net.address import text
from kwsniff.net.columns import ACK, FIN, RST, SYN, Ints
from kwsniff.net.reassembly import Run, Stream
from kwsniff.wire.plausible import Versions

SECOND = 1_000_000_000
LINGER = 60 * SECOND
"""Nanoseconds for which stray segments still belong to a connection that was closed."""
FEW = 8
"""Segments too few to be worth the bulk path's vector operations."""
STRAY_SYN = 1 << 16
"""A SYN so near to where a stream stands is no new connection: the flag was damaged."""
MAX_UNTOLD = 100
"""Anomalies that wait until it is known who the client is."""
_MASK = 0xFFFFFFFF


class Connection:
    """State of one connection; see the module's head."""

    __slots__ = (
        "_id", "anomalies", "backwards", "bytes", "capture", "closed", "config", "endpoints", "exchange",
        "fin", "first_time", "handshake", "isn", "last_order", "last_packet", "last_time", "number",
        "packets", "reset", "rst", "streams", "syn", "syn_ack", "syn_time", "untold",
    )  # fmt: skip

    def __init__(
        self,
        config: Config,
        number: int,
        endpoints: Endpoints,
        calls: list[Call],
        anomalies: list[Anomaly],
        versions: Versions,
    ) -> None:
        self.config, self.number, self.endpoints = config, number, endpoints
        self.anomalies = anomalies
        self.untold: list[Anomaly] = []
        """Anomalies of a connection that is not judged: their rows name the client."""
        self.streams: tuple[Stream, ...] = (Stream(config), Stream(config))
        kafka_ports = (endpoints.a_port in config.ports, endpoints.b_port in config.ports)
        self.exchange = Exchange(config, number, calls, anomalies, versions, kafka_ports, self.note)
        self.packets, self.bytes = [0, 0], [0, 0]
        self.first_time = self.last_time = -1
        self.last_packet = self.last_order = -1
        self.capture: str | None = None
        self._id: str | None = None
        self.isn: list[int | None] = [None, None]
        self.fin: list[int | None] = [None, None]
        self.syn = self.rst = self.closed = self.backwards = False
        self.reset: tuple[int, int] | None = None
        """Time and order of an RST that has not closed the connection yet."""
        self.syn_time = self.handshake = -1
        self.syn_ack = False

    # Segments in

    def feed(self, rows: Rows, begin: int, end: int) -> int:
        """Take segments from `begin` to `end`; return where a new connection of the same ends begins."""
        if self.first_time < 0:
            self.first_time = self.last_time = int(rows.time[begin])
        if self._is_new_connection(rows, begin):
            return begin
        self.capture = rows.capture
        row = begin
        while row < end:
            if end - row >= FEW and self._bulk_allowed():
                row = self._bulk(rows, row, end)
            stop = min(row + FEW, end)
            while row < stop:
                if self._is_new_connection(rows, row):
                    return row
                self._step(rows, row)
                row += 1
        return end

    def _bulk_allowed(self) -> bool:
        if self.closed or self.exchange.ignored:
            return True
        if self.reset is not None or (self.syn_ack and self.handshake < 0):
            return False  # segments that overtook the RST; the ACK that ends the handshake
        return self.exchange.is_kafka and not (self.streams[0].waiting or self.streams[1].waiting)

    def _bulk(self, rows: Rows, begin: int, end: int) -> int:
        """Take as many segments as only continue their streams; return the first that was not taken."""
        if not self.last_time - SECOND <= rows.time[begin] <= self.last_time + self._patience():
            return begin
        if self.closed or self.exchange.ignored:
            special = rows.flags[begin:end] & SYN != 0
            special[1:] |= np.diff(rows.time[begin:end]) > self._patience()
            if not self.exchange.ignored:
                special |= rows.length[begin:end] > 0  # might show that the connection goes on
        else:
            special = rows.special[begin:end]
        side = rows.side[begin:end]
        length = rows.length[begin:end]
        bad = special.copy()
        picked = []
        if self.exchange.is_kafka and not self.closed:
            for k in (0, 1):
                index = np.flatnonzero((side == k) & (length > 0))
                picked.append(index)
                if not len(index):
                    continue
                if self.streams[k].next_seq < 0 or not self.exchange.synchronised(k):
                    bad[index[0]] = True
                    continue
                before = np.cumsum(length[index]) - length[index]
                wanted = (self.streams[k].next_seq + before) & _MASK
                bad[index] |= rows.seq[begin:end][index] != wanted
        stop = int(bad.argmax()) if bad.any() else end - begin
        runs: list[Run | None] = []
        if stop and picked:
            runs = self._runs(rows, begin, stop, picked)
            before_trouble = self._before_trouble(runs, picked, stop)
            if before_trouble < stop:
                stop = before_trouble
                runs = self._runs(rows, begin, stop, picked)
        if stop:
            self._count(rows, begin, begin + stop, side[:stop], length[:stop])
            if picked:
                self._deliver_bulk(rows, begin, stop, runs)
        return begin + stop

    def _before_trouble(self, runs: list[Run | None], picked: list[NDArray[np.intp]], stop: int) -> int:
        """How many segments come before the first with a length that no frame has. What follows one must be
        looked at segment by segment: where framing is found again depends on how much is there to look at."""
        for k, run in enumerate(runs):
            if run is not None:
                at = self.exchange.framers[k ^ self.exchange.client].trouble(run)
                if at >= 0:
                    stop = min(stop, int(picked[k][bisect_right(run.starts, at) - 1]))
        return stop

    def _count(self, rows: Rows, begin: int, end: int, side: NDArray[np.int8], length: Ints) -> None:
        from_b = int(side.sum())
        self.packets[0] += end - begin - from_b
        self.packets[1] += from_b
        bytes_b = int((length * side).sum())
        self.bytes[0] += int(length.sum()) - bytes_b
        self.bytes[1] += bytes_b
        self.last_time = max(self.last_time, int(rows.time[begin:end].max()))
        self.last_packet, self.last_order = int(rows.packet[end - 1]), int(rows.order[end - 1])

    def _runs(self, rows: Rows, begin: int, stop: int, picked: list[NDArray[np.intp]]) -> list[Run | None]:
        """The bytes of both sides."""
        runs: list[Run | None] = [None, None]
        for k, index in enumerate(picked):
            index = index[: np.searchsorted(index, stop)] + begin
            if not len(index):
                continue
            data = rows.joined(index)
            length = rows.length[index]
            starts = (np.cumsum(length) - length).tolist()
            packets, times, orders = (
                column[index].tolist() for column in (rows.packet, rows.time, rows.order)
            )
            runs[k] = Run(data, starts, packets, times, orders)
        return runs

    def _deliver_bulk(self, rows: Rows, begin: int, stop: int, runs: list[Run | None]) -> None:
        self.exchange.conversation.requests_held = False  # nothing waits, or this would not be in bulk
        taken = slice(begin, begin + stop)
        for k in (0, 1):
            theirs = (rows.side[taken] != k) & (rows.flags[taken] & ACK != 0)
            if theirs.any():
                ahead = np.cumsum(rows.length[taken] * (rows.side[taken] == k))
                self.streams[k].acknowledge_all(rows.ack[taken][theirs], ahead[theirs])
        for k, run in enumerate(runs):
            if run is not None:
                self.streams[k].deliver_in_order(run.data)
        self.exchange.deliver_both(runs)

    # One segment

    def _is_new_connection(self, rows: Rows, row: int) -> bool:
        if self.packets == [0, 0]:
            return False
        if rows.time[row] - self.last_time > self._patience():
            return True
        k, isn = int(rows.side[row]), int(rows.seq[row])
        if not rows.flags[row] & SYN:
            return (
                bool(rows.length[row])
                and self._over(rows.time[row])
                and self.exchange.goes_on(k, rows.payload(row))
            )
        if self._is_stray_syn(k, isn):
            return False
        if self.isn[k] is not None:
            return self.isn[k] != isn
        stream = self.streams[k]
        over = self.closed or self.reset is not None
        if stream.next_seq < 0:
            return over
        return over or (stream.next_seq - stream.offset - isn - 1) & _MASK != 0

    def _over(self, now: int) -> bool:
        return self.closed or (
            self.reset is not None and bool(now > self.reset[0] + self.config.reorder_time * SECOND)
        )

    def _is_stray_syn(self, k: int, seq: int) -> bool:
        """Whether a SYN stands in the middle of a stream, where there can be none."""
        stream = self.streams[k]
        if self.closed or self.reset is not None or stream.next_seq < 0 or self.isn[k] == seq:
            return False
        if (
            not (stream.offset or stream.from_start)
            or (stream.next_seq - stream.offset - seq - 1) & _MASK == 0
        ):
            return False
        return abs(((seq - stream.next_seq + 0x80000000) & _MASK) - 0x80000000) <= STRAY_SYN

    def _patience(self) -> float:
        over = self.closed or self.reset is not None
        return min(LINGER, self.config.idle_timeout * 1e9) if over else self.config.idle_timeout * 1e9

    def _step(self, rows: Rows, row: int) -> None:
        k, flags = int(rows.side[row]), int(rows.flags[row])
        time, packet, order = int(rows.time[row]), int(rows.packet[row]), int(rows.order[row])
        length, seq = int(rows.length[row]), int(rows.seq[row])
        self.close_if_reset(time)
        if time < self.last_time - SECOND and not self.backwards:
            self.backwards = True
            backwards = f"by {(self.last_time - time) / 1e9:.3f} s"
            self.note("time_backwards", backwards, packet)
        self.packets[k] += 1
        self.bytes[k] += length
        self.last_time = max(self.last_time, time)
        self.last_packet, self.last_order = packet, order
        if flags & SYN and self._is_stray_syn(k, seq):
            flags &= ~SYN
        if flags & SYN:
            self._synchronise(k, flags, seq, int(rows.ack[row]), time)
            seq = (seq + 1) & _MASK
        elif self.syn_ack and flags & ACK and self.handshake < 0 and k == self.exchange.client:
            self.handshake = time - self.syn_time
        if self.closed or self.exchange.ignored:
            return
        count = self.packets[0] + self.packets[1]
        if flags & ACK and not flags & SYN:
            self.streams[1 - k].acknowledge(int(rows.ack[row]))
        if self.exchange.client >= 0 and self.exchange.is_kafka:
            held = bool(self.streams[self.exchange.client].waiting)
            self.exchange.conversation.requests_held = held
        for j in (1 - k, k):
            if self.streams[j].waiting:
                self.exchange.deliver(j, self.streams[j].give_up_holes(count, time))
        if length:
            self._take(k, seq, length, Run(rows.payload(row), [0], [packet], [time], [order]), count)
        self._close_on_flags(k, flags, (seq + length) & _MASK, order)
        if self.untold and self.exchange.probe is None:
            self._tell()

    def _take(self, k: int, seq: int, length: int, run: Run, count: int) -> None:
        """Take the payload of a segment, and what it sets free of that which waits."""
        stream = self.streams[k]
        if stream.astray(seq, run.data) and self.exchange.begins_anew(k, run.data, seq == stream.stray_end):
            self._take_stray(k, seq, run)
        else:
            if len(run) < length:
                stream.stray_end = (
                    seq + len(run)
                ) & _MASK  # unless the capture cuts segments: a wrong length
            packet, time, order = run.packets[0], run.times[0], run.orders[0]
            self.exchange.deliver(k, stream.feed(seq, length, run.data, packet, time, order, count))
        self._report_stream(stream)

    def _take_stray(self, k: int, seq: int, run: Run) -> None:
        """Take a segment that belongs to the conversation by what it says, not by its sequence number: for
        itself; or, if it follows another such segment or nothing is known yet, the stream goes on here."""
        stream = self.streams[k]
        self.note("segment_misplaced", f"{len(run)} bytes at an unlikely sequence number", run.packets[0])
        if self.exchange.probe is None and stream.stray_end != seq:
            self.exchange.deliver_aside(k, run)
        else:
            self.exchange.deliver(k, stream.move(seq))
            stream.deliver_in_order(run.data)
            self.exchange.deliver(k, [run])
        stream.stray_end = (seq + len(run)) & _MASK

    def _synchronise(self, k: int, flags: int, seq: int, ack: int, time: int) -> None:
        """Note a SYN or SYN-ACK: where streams begin and who is the client."""
        self.syn = True
        self.isn[k] = seq
        client = 1 - k if flags & ACK else k
        self.streams[k].synchronise(seq) if self.streams[k].next_seq < 0 else None
        if not flags & ACK:
            if self.syn_time < 0:
                self.syn_time = time
        else:
            self.syn_ack = self.syn_time >= 0
            if self.streams[client].next_seq < 0:
                self.streams[client].synchronise((ack - 1) & _MASK)
        self.exchange.begins(client, [stream.from_start for stream in self.streams])

    def _close_on_flags(self, k: int, flags: int, end_seq: int, order: int) -> None:
        if flags & RST:
            self.rst = True
            self.reset = self.reset or (self.last_time, order)
            return
        if flags & FIN and self.streams[k].next_seq >= 0:
            stream = self.streams[k]
            self.fin[k] = stream.offset + (((end_seq - stream.next_seq + 0x80000000) & _MASK) - 0x80000000)
        elif flags & FIN:
            self.fin[k] = 0
        ended = [
            fin is not None and stream.offset >= fin
            for fin, stream in zip(self.fin, self.streams, strict=True)
        ]
        if all(ended):
            self._close("connection_closed", order)

    # The end

    def close_if_reset(self, now: int) -> None:
        """Close after an RST, once segments that it overtook on the way to the capture had time to come."""
        if self.reset is not None and now > self.reset[0] + self.config.reorder_time * SECOND:
            self._close("connection_reset", self.reset[1])

    def expired(self, now: int) -> bool:
        """Whether the connection has been silent for so long that its next segment would begin a new one."""
        return now - self.last_time > self._patience()

    def finish(self, reason: str) -> ConnectionEnd | None:
        """Flush everything; return the connection's row, or None if it is no business of ours."""
        if self.reset is not None:
            self._close("connection_reset", self.reset[1])
        elif not self.closed:
            finished = any(fin is not None for fin in self.fin)
            self._close("connection_closed" if finished else reason, self.last_order)
        exchange = self.exchange
        exchange.settle()
        self._tell()
        if exchange.stage in (OTHER, WAIT) and not exchange.kafka_port:
            return None
        client = max(exchange.client, 0)
        streams = self.streams
        security = {KAFKA: "plaintext", TOKENS: "plaintext", TLS: "tls"}.get(exchange.stage, "unknown")
        return ConnectionEnd(
            self.last_order, self.number, self.first_time, self.last_time,
            self.packets[client], self.packets[1 - client], self.bytes[client], self.bytes[1 - client],
            streams[client].missing, streams[1 - client].missing,
            self.syn, any(fin is not None for fin in self.fin), self.rst,
            self.handshake / 1e3 if self.handshake >= 0 else None, security,
            exchange.conversation.mechanism, exchange.conversation.user,
            sum(framer.counters.resynchronisations for framer in exchange.framers),
            sum(framer.counters.skipped for framer in exchange.framers),
            sum(framer.counters.frames for framer in exchange.framers), exchange.conversation.undecoded,
        )  # fmt: skip

    def _close(self, reason: str, order: int) -> None:
        """Deliver what still waits and end the conversation; segments that follow are only counted."""
        self.closed, self.reset = True, None
        for k in (0, 1):
            self.exchange.deliver(k, self.streams[k].flush())
            if self.streams[k].lose_tail(self.fin[k] is not None):
                self.exchange.lost_tail(k)
        self.exchange.close(reason, order)

    def tick(self, now: int) -> None:
        """No segment up to `now` (nanoseconds since 1970) is still to come: do what waited for the time."""
        self.close_if_reset(now)
        if self.closed or self.exchange.ignored:
            return
        count = self.packets[0] + self.packets[1]
        for k in (0, 1):
            if self.streams[k].waiting:
                self.exchange.deliver(k, self.streams[k].give_up_holes(count, now))
        if self.exchange.is_kafka:
            self.exchange.conversation.tick(now, self.last_order)

    @property
    def buffered(self) -> int:
        """Bytes held for this connection."""
        return self.exchange.buffered + sum(stream.waiting_bytes for stream in self.streams)

    @property
    def load(self) -> int:
        """Requests that wait for a response, and the topics and partitions they name."""
        return self.exchange.load

    def drop_outstanding(self) -> None:
        """Give up the requests that wait, to keep within the limit of all connections."""
        self.note("outstanding_limit", f"{self.load} requests, topics and partitions in all were given up")
        self.exchange.conversation.give_up(self.last_order)

    def drop_buffers(self) -> None:
        """Give up holes and the bytes of frames in progress, to keep within the limit of all connections."""
        self.note("buffer_limit", f"{self.buffered} bytes let go")
        for k in (0, 1):
            self.exchange.deliver(k, self.streams[k].flush())
        self.exchange.drop_buffers()

    # What is said of the connection

    def release(self) -> None:
        """After the end: keep only what events still to be written ask for (`id`, `ends`, `capture`)."""
        self.exchange.release()
        self.streams = ()

    @property
    def id(self) -> str:
        """Stable identification: both ends and the time of the first packet, hashed."""
        if self._id is None:
            said = f"{self.endpoints} {self.first_time}"
            self._id = blake2b(said.encode(), digest_size=8).hexdigest()
        return self._id

    def ends(self) -> tuple[str, int, str, int]:
        """Client address and port, broker address and port."""
        e = self.endpoints
        a, b = (text(e.a_hi, e.a_lo), e.a_port), (text(e.b_hi, e.b_lo), e.b_port)
        client, broker = (b, a) if self.exchange.client == 1 else (a, b)
        return *client, *broker

    def note(self, code: str, detail: str, packet: int | None = None) -> None:
        """Add an anomaly of the connection, at its latest packet if no other is given."""
        packet = self.last_packet if packet is None else packet
        found = Anomaly(self.last_order, self.number, code, detail, packet, self.last_time)
        if self.exchange.probe is not None and len(self.untold) < MAX_UNTOLD:
            self.untold.append(found)
        else:
            self._tell()
            self.anomalies.append(found)

    def _tell(self) -> None:
        if self.untold:
            self.anomalies += self.untold
            self.untold.clear()

    def _report_stream(self, stream: Stream) -> None:
        if stream.overlaps:
            for packet in stream.overlaps:
                self.note("overlap_differs", "a retransmission differs from the first copy", packet)
            stream.overlaps.clear()
        if stream.limit_hit:
            stream.limit_hit = False
            self.note("reorder_limit", f"more than {self.config.max_reorder_bytes} bytes")
