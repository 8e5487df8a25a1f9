"""Cutting one direction's byte stream into length-prefixed frames.

Theory of operation. A Kafka message is a four-byte signed length and that many bytes (protocol guide,
"Common Request and Response Structure"). While the framer is *synchronised* it knows where each frame ends,
even across bytes that the capture lacks: a gap inside a known frame marks the frame as incomplete and costs
nothing else. A gap that swallows a length prefix, a late start, or an impossible length makes it lose
synchronisation; then it asks `finder` for the next plausible header, and counts what it skips.

A frame whose bytes are not all at hand, because some were lost, cut by the snap length or too many to keep,
still comes out when its end goes by, with the bytes before the first missing one.

A damaged length hides what follows. Requests are known by their look (`begins`), so a segment inside a
request that begins with the next one ends it there, whatever its length said (`kwsniff.wire.succession`).

Invariants: bytes in `parts` begin at a frame's length prefix when synchronised; `pending` is set exactly
while the end of an incompletely kept frame is awaited.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from struct import Struct
from typing import NamedTuple

from kwsniff.config import Config
from kwsniff.wire.chunks import Chunks, RunLike, latest_of, overhead
from kwsniff.wire.succession import UNKNOWN, Begins, another, correlation_id

MIN_FRAME = 4
"""The shortest frame holds a correlation id ..."""
TOKEN_FRAMES = 32
"""... but among the first frames of a connection there may be SASL tokens, which may be empty."""
KEPT_WHEN_DROPPED = 1024
"""Bytes of a frame kept for its header when the rest is let go."""
HEAD = 12
"""Bytes of a request up to behind its correlation id."""
MAX_BOUNDARIES = 4096
"""Segments of an unfinished frame that are looked at for the beginning of another."""
MAX_SEARCH = 256 * 1024
"""Bytes held while looking for a header that would need still more of them to be sure."""

_size = Struct(">i").unpack_from
_as_size = Struct(">i").pack


class Frame(NamedTuple):
    """One message as cut from the stream."""

    order: int
    """Place in the input of the packet that completed it, or an earlier frame that came later."""
    data: bytes
    """Buffer that holds the frame, among others."""
    start: int
    """Position of its length prefix."""
    end: int
    """One beyond its last byte at hand."""
    size: int
    """Bytes it has on the wire, with the 4 of the length."""
    first_time: int
    """Nanoseconds: packet time of its first byte."""
    last_time: int
    """Nanoseconds: packet time of its last byte; -1 if that packet was not captured."""
    packet: int
    """Packet that completed it."""


@dataclass(slots=True)
class Counters:
    """What happened to one direction's framing."""

    frames: int = 0
    resynchronisations: int = 0
    skipped: int = 0


@dataclass(slots=True)
class _Pending:
    """A frame of which some bytes are not kept."""

    data: bytes
    size: int
    left: int
    first_time: int
    last_time: int
    packet: int


Finder = Callable[[bytes, int, list[int]], tuple[int, int]]
"""Takes data, a position and the segment boundaries. Returns where a frame begins and 0; or, unsure, up to
where none does and how many bytes from there on it wants to see before it is asked again."""


@dataclass(slots=True)
class Framer:
    """State of one direction; see the module's head."""

    config: Config
    finder: Finder
    synchronised: bool = True
    begins: Begins | None = None
    """Knows a frame that begins with a segment, for lengths that are damaged; None if frames have no look."""
    latest: int = UNKNOWN
    """Correlation id of the latest request that was cut."""
    tokens: bool = False
    """The connection's beginning was seen, so the first frames may be SASL tokens."""
    parts: list[RunLike] = field(default_factory=list)
    have: int = 0
    need: int = 4
    pending: _Pending | None = None
    last_order: int = -1
    lost: bool = False
    """Synchronisation was lost, and not merely never had."""
    skipped_before: int = 0
    """Bytes that were skipped until framing was last found."""
    counters: Counters = field(default_factory=Counters)
    news: list[tuple[str, str, int]] = field(default_factory=list)
    """Anomalies as (code, detail, packet), until somebody takes them away."""

    def feed(self, run: RunLike) -> list[Frame]:
        """Take contiguous bytes; return the frames they complete."""
        if self.pending is not None:
            return self._feed_pending(run)
        short = self.have + len(run.data) < self.need
        if short and self.have >= 4 and self.synchronised:
            short = self._another(run, -self.have, self.need - self.have) < 0
        self.parts.append(run)
        self.have += len(run.data)
        return [] if short else self._cut()

    def aside(self, run: RunLike) -> list[Frame]:
        """Cut the frames of a segment that begins with one, but has no place in the stream."""
        data, pos, frames = run.data, 0, list[Frame]()
        order, time, packet = run.orders[0], run.times[0], run.packets[0]
        while len(data) - pos >= 4:
            size = _size(data, pos)[0]
            end = pos + 4 + size
            if self._not_plain(size, 0, TOKEN_FRAMES) or (frames and end > len(data)):
                break
            last_time = time if end <= len(data) else -1
            frames.append(
                Frame(order, data, pos, min(end, len(data)), size + 4, time, last_time, packet)
            )  # fmt: skip
            pos = end
        self.counters.frames += len(frames)
        self._cut_already(frames)
        return frames

    def trouble(self, run: RunLike) -> int:
        """Where in a run, fed now, a frame would begin that is not plain (an impossible length, or more bytes
        than are kept, or inside of another), or 0 if that is the frame in progress; -1 if there is none."""
        data, n = run.data, len(run.data)
        begin = end = 0
        before = self.latest
        if self.pending is not None:
            end = self.pending.left
        elif self.have:
            begin = -self.have
            head = self._head(data)
            if len(head) < 4:
                return -1
            end = begin + 4 + _size(head, 0)[0]
            if self.have < 4 and self._not_plain(end - begin - 4, n - end, 0):
                return 0
        if end > 0 and (at := self._another(run, begin, end)) >= 0:
            return at
        if begin < 0:
            before = correlation_id(head, 0, len(head))
        frames = 1
        while n - end >= 4:
            size = _size(data, end)[0]
            if self._not_plain(size, n - end - 4 - size, frames):
                return end
            begin, end = end, end + 4 + size
            frames += 1
            if self.begins is not None:
                now = correlation_id(data, begin, n)
                if (at := another(data, run.starts, begin, end, self.begins, before, now)) >= 0:
                    return at
                before = now
        return -1

    @property
    def newest(self) -> int:
        """Correlation id of the latest request, be it cut or in progress."""
        if self.pending is not None:
            head = self.pending.data[:HEAD]
        else:
            head = self._head(b"") if self.synchronised else b""
        return correlation_id(head, 0, len(head)) if len(head) == HEAD else self.latest

    def _another(self, run: RunLike, begin: int, end: int) -> int:
        """Where in a run a segment begins with another frame, inside the one in progress; -1 if nowhere."""
        if self.begins is None:
            return -1
        if self.pending is not None:
            begin, head = end - self.pending.size, self.pending.data[:HEAD]
        else:
            head = self._head(run.data)
        now = correlation_id(head, 0, len(head))
        return another(run.data, run.starts, begin, end, self.begins, self.latest, now)

    def _head(self, more: bytes) -> bytes:
        """The first bytes of the frame in progress, as far as they are here or in `more`."""
        if self.parts and len(self.parts[0].data) >= HEAD:
            return self.parts[0].data[:HEAD]
        return b"".join([*(part.data[:HEAD] for part in self.parts[:HEAD]), more[:HEAD]])[:HEAD]

    def _not_plain(self, size: int, beyond: int, frames: int) -> bool:
        least = 0 if self.tokens and self.counters.frames + frames < TOKEN_FRAMES else MIN_FRAME
        too_large = beyond < 0 and size + 4 > self.config.max_connection_bytes
        return too_large or not least <= size <= self.config.max_frame_bytes

    def gap(self, length: int, packet: int, time: int, order: int) -> list[Frame]:
        """Take missing bytes; `packet` is -1 unless a packet carried them that the snap length cut."""
        self.last_order = max(self.last_order, order)
        if self.pending is None and self.synchronised and self.have >= 4:
            self._suspend(self._join())
        if self.pending is None:
            if self.have or not self.synchronised:
                self._skip_all()
            self._lose()
            return []
        pending = self.pending
        if length <= pending.left:
            pending.left -= length
            pending.last_time = time
            if packet >= 0:
                pending.packet = packet
            return self._finish_pending() if not pending.left else []
        pending.last_time = -1
        frames = self._finish_pending()
        self._lose()
        return frames

    def flush(self) -> list[Frame]:
        """The frame left unfinished when the stream ends, if its header is at hand."""
        if self.pending is None and self.synchronised and self.have >= 4:
            chunks = self._join()
            if self.begins is not None and (found := self._swallowed(chunks, self.begins)):
                return [*self._rescued(chunks, found), *self.flush()]
            self._suspend(chunks)
        if self.pending is None:
            self.counters.skipped += self.have
            self.parts, self.have = [], 0
            return []
        self.pending.last_time = -1
        return self._finish_pending()

    def _swallowed(self, chunks: Chunks, begins: Begins) -> int:
        """Where another frame begins, together with a segment, inside an unfinished one; 0 if none."""
        for start, beyond in pairwise([*chunks.starts[: MAX_BOUNDARIES + 1], len(chunks.data)]):
            if start >= MIN_FRAME and begins(chunks.data, start, beyond):
                return start
        return 0

    def _rescued(self, chunks: Chunks, pos: int) -> list[Frame]:
        """The frames from `pos` on; what stands before them had a wrong length."""
        frames: list[Frame] = []
        self._cut_short(chunks, 0, 0, pos, frames)
        rest = chunks.tail(pos, max(bisect_right(chunks.starts, pos) - 1, 0))
        self.parts, self.have = [rest], len(rest.data)
        return frames + self._cut()

    def _cut_short(self, chunks: Chunks, chunk: int, pos: int, end: int, frames: list[Frame]) -> None:
        """The frame at `pos` ends where another begins; it counts if it looks right but for its length."""
        data = chunks.data
        length = _size(data, pos)[0]
        detail = f"length {length}, but another frame follows"
        self.news.append(("frame_size_invalid", detail, chunks.packets[chunk]))
        whole = _as_size(end - pos - 4) + data[pos + 4 : min(end, pos + KEPT_WHEN_DROPPED)]
        self.counters.resynchronisations += 1
        if self.begins is None or not self.begins(whole, 0, end - pos):
            self.counters.skipped += end - pos
            return
        last = chunk
        while last + 1 < len(chunks.starts) and chunks.starts[last + 1] < end:
            last += 1
        at = latest_of(chunks.orders, chunk, last)
        self.last_order = max(self.last_order, chunks.orders[at])
        frames.append(
            Frame(
                self.last_order, data, pos, end, end - pos, chunks.times[chunk], chunks.times[at],
                chunks.packets[at],
            )
        )  # fmt: skip
        self._cut_already(frames[-1:])

    def drop(self) -> None:
        """Let go of the bytes of the frame in progress; it will be reported as truncated."""
        if self.pending is None and self.synchronised and self.have >= 4:
            self._suspend(self._join())
        if self.pending is not None:
            self.pending.data = self.pending.data[:KEPT_WHEN_DROPPED]
        elif not self.synchronised:
            self._skip_all()

    @property
    def buffered(self) -> int:
        """Bytes that what is held takes."""
        if self.parts:
            return self.have + overhead(self.parts)
        return len(self.pending.data) if self.pending else 0

    def _join(self) -> Chunks:
        chunks = Chunks(self.parts)
        self.parts, self.have = [], 0
        return chunks

    def _cut(self) -> list[Frame]:
        chunks = self._join()
        frames: list[Frame] = []
        pos = chunk = 0
        while True:
            if not self.synchronised:
                pos = self._search(chunks, pos)
                if not self.synchronised:
                    break
            pos, chunk, lost = self._cut_frames(chunks, pos, frames)
            self._cut_already(frames[-1:])
            if not lost:
                break
        self._keep_rest(chunks, pos, chunk if self.synchronised else 0)
        self.counters.frames += len(frames)
        return frames

    def _cut_frames(self, chunks: Chunks, pos: int, frames: list[Frame]) -> tuple[int, int, bool]:
        """Cut frames from `pos` on; return where that ended, in which chunk, and if framing was lost."""
        data, starts, packets, times, orders = (
            chunks.data, chunks.starts, chunks.packets, chunks.times, chunks.orders
        )  # fmt: skip
        n, last_chunk = len(data), len(starts) - 1
        limit = self.config.max_frame_bytes
        least = 0 if self.tokens and self.counters.frames + len(frames) < TOKEN_FRAMES else MIN_FRAME
        chunk = 0
        order = self.last_order
        append, begins = frames.append, self.begins
        while n - pos >= 4:
            while chunk < last_chunk and starts[chunk + 1] <= pos:
                chunk += 1
            size = _size(data, pos)[0]
            if not least <= size <= limit:
                self.news.append(("frame_size_invalid", f"length {size}", packets[chunk]))
                self._lose()
                self.counters.skipped += 1
                self.last_order = order
                return pos + 1, chunk, True
            end = pos + 4 + size
            if begins is not None and chunk < last_chunk and starts[chunk + 1] < end:
                now = correlation_id(data, pos, n)
                before = (
                    correlation_id(frames[-1].data, frames[-1].start, frames[-1].end)
                    if frames
                    else self.latest
                )
                if (found := another(data, starts, pos, end, begins, before, now)) >= 0:
                    self.last_order = order
                    self._cut_short(chunks, chunk, pos, found, frames)
                    order, pos = self.last_order, found
                    continue
            if end > n:
                break
            last = chunk
            while last < last_chunk and starts[last + 1] < end:
                last += 1
            complete = last
            if last > chunk:
                complete = latest_of(orders, chunk, last)
            if orders[complete] > order:
                order = orders[complete]
            append(Frame(order, data, pos, end, size + 4, times[chunk], times[complete], packets[complete]))
            pos = end
            chunk = last
        self.last_order = order
        while chunk < last_chunk and starts[chunk + 1] <= pos:
            chunk += 1
        return pos, chunk, False

    def _search(self, chunks: Chunks, pos: int) -> int:
        """Look for a frame; returns where it begins, or where looking has to go on with more bytes."""
        while True:
            found, self.need = self.finder(chunks.data, pos, chunks.starts)
            self.counters.skipped += found - pos
            if not self.need:
                self._found(chunks, found)
                return found
            if self.need <= MAX_SEARCH or self.need <= len(chunks.data) - found:
                return found
            self.counters.skipped += 1
            pos = found + 1

    def _found(self, chunks: Chunks, pos: int) -> None:
        skipped = self.counters.skipped - self.skipped_before
        self.skipped_before = self.counters.skipped
        self.synchronised = True
        if self.lost or skipped:
            self.lost = False
            self.counters.resynchronisations += 1
            packet = chunks.packets[max(bisect_right(chunks.starts, pos) - 1, 0)]
            self.news.append(("resynchronised", f"{skipped} bytes skipped", packet))

    def _keep_rest(self, chunks: Chunks, pos: int, chunk: int) -> None:
        left = len(chunks.data) - pos
        self.have = left
        if not left:
            self.parts, self.need = [], 4 if self.synchronised else 1
            return
        rest = chunks.tail(pos, chunk)
        if not self.synchronised:
            self.parts, self.need = [rest.without_leading()], max(self.need, left + 1)
            return
        self.need = 4 + _size(rest.data, 0)[0] if left >= 4 else 4
        if self.need > self.config.max_connection_bytes:
            self.news.append(("frame_too_large", f"frame of {self.need} bytes", rest.packets[0]))
            self.have = 0
            self._suspend(rest)
        else:
            self.parts = [rest]

    def _suspend(self, chunks: Chunks) -> None:
        """Go on without keeping the bytes of the frame that `chunks` begin."""
        size = _size(chunks.data, 0)[0] + 4
        latest = latest_of(chunks.orders, 0, len(chunks.orders) - 1)
        self.last_order = max(self.last_order, chunks.orders[latest])
        left = size - len(chunks.data)
        times = chunks.times
        self.pending = _Pending(
            chunks.data, size, left, times[0], times[latest], chunks.packets[latest]
        )  # fmt: skip

    def _feed_pending(self, run: RunLike) -> list[Frame]:
        pending = self.pending
        assert pending is not None
        if (at := self._another(run, 0, pending.left)) >= 0:
            return self._cut_pending(Chunks([run]), at)
        taken = min(pending.left, len(run.data))
        last = 0
        while last + 1 < len(run.starts) and run.starts[last + 1] < taken:
            last += 1
        latest = latest_of(run.orders, 0, last)
        pending.left -= taken
        pending.last_time, pending.packet = run.times[latest], run.packets[latest]
        self.last_order = max(self.last_order, run.orders[latest])
        if pending.left:
            return []
        frames = self._finish_pending()
        if taken < len(run.data):
            frames += self.feed(Chunks([run]).tail(taken, last if run.starts[last] <= taken else 0))
        return frames

    def _cut_pending(self, chunks: Chunks, pos: int) -> list[Frame]:
        """The frame of which bytes lack is over where another begins at `pos`."""
        pending = self.pending
        assert pending is not None
        detail = f"length {pending.size - 4}, but another frame follows"
        chunk = bisect_right(chunks.starts, pos) - 1
        self.news.append(("frame_size_invalid", detail, chunks.packets[chunk]))
        self.counters.resynchronisations += 1
        pending.last_time = -1
        return self._finish_pending() + self.feed(chunks.tail(pos, chunk))

    def _cut_already(self, frames: list[Frame]) -> None:
        """Note the correlation id of the latest request."""
        if self.begins is not None and frames:
            frame = frames[-1]
            self.latest = correlation_id(frame.data, frame.start, frame.end)

    def _finish_pending(self) -> list[Frame]:
        pending = self.pending
        assert pending is not None
        self.pending = None
        self.need = 4
        self.counters.frames += 1
        data = pending.data
        frame = Frame(
            self.last_order, data, 0, len(data), pending.size,
            pending.first_time, pending.last_time, pending.packet,
        )  # fmt: skip
        self._cut_already([frame])
        return [frame]

    def _lose(self) -> None:
        self.lost = self.lost or self.synchronised
        self.synchronised = False
        self.need = 1

    def _skip_all(self) -> None:
        self.counters.skipped += self.have
        self.parts, self.have = [], 0
