"""What was delivered last, kept to compare retransmissions with."""

from __future__ import annotations

from typing import Any

from kwsniff.kernel.arena import allocate, block_size, copy, release
from kwsniff.kernel.codes import OVERLAP_DIFFERS
from kwsniff.kernel.mode import kernel
from kwsniff.kernel.notes import note
from kwsniff.kernel.numbers import FULL, OK
from kwsniff.kernel.texts import same

COPY = 512
"""Of a segment's `flags`, see `kwsniff.net.columns`."""
HISTORY = 2048
"""Bytes of the latest segment kept to compare retransmissions with."""


@kernel
def room_for_history(t: Any, s: Any, size: int, length: int) -> int:
    """See that there is room for what `remember` keeps: OK or FULL."""
    if size < length or size == 0:
        return OK
    kept = block_size(min(size, HISTORY))
    if s.history_at >= 0 and s.history_room >= kept:
        return OK
    at = allocate(t, kept)
    if at < 0:
        return FULL
    if s.history_at >= 0:
        copy(t.arena, at, t.arena, s.history_at, s.history)
        release(t, s.history_at, s.history_room)
    s.history_at, s.history_room = at, kept
    return OK


@kernel
def remember(t: Any, s: Any, data: Any, pos: int, size: int, length: int) -> None:
    """Keep the end of the latest segment, to compare retransmissions with; that there is room was seen to."""
    if size < length or size == 0:
        s.history = 0
        return
    kept = min(size, HISTORY)
    copy(t.arena, s.history_at, data, pos + size - kept, kept)
    s.history = kept


@kernel
def forget_latest(t: Any, s: Any) -> None:
    """Keep nothing of the latest segment of a side: retransmissions of it are taken to be the same."""
    if s.history_at >= 0:
        release(t, s.history_at, s.history_room)
    s.history, s.history_at, s.history_room = 0, -1, 0


@kernel
def note_overlap(t: Any, c: int, packet: int) -> None:
    """A retransmission carries other bytes than the first copy; that there is room was seen to."""
    note(t, c, OVERLAP_DIFFERS, packet, t.conns[c].last_time, 0, 0)


@kernel
def seen_before(
    t: Any, c: int, k: int, start: int, end: int, data: Any, pos: int, size: int, seg: Any
) -> None:
    """Compare what was delivered already with the first copy, as far as that is kept."""
    s = t.sides[2 * c + k]
    s.retransmitted += min(end, s.offset) - start
    if end == s.offset and end - start == 1:
        return  # a keep-alive repeats the last byte, with whatever value (RFC 9293, 3.8.4)
    if seg.flags & COPY == 0:
        s.again += 1
    first = max(start, s.offset - s.history)
    last = min(start + size, s.offset)
    if first < last and not same(
        data, pos + first - start, t.arena, s.history_at + first - (s.offset - s.history), last - first
    ):
        note_overlap(t, c, seg.packet)
