"""The bytes of a frame in progress, or of what is searched, in the arena."""

from __future__ import annotations

from typing import Any

from kwsniff.kernel.arena import allocate, block_size, copy, release
from kwsniff.kernel.mode import kernel
from kwsniff.kernel.numbers import FULL, OK


@kernel
def empty_buffer(t: Any, s: Any) -> None:
    """Let go of the bytes of the frame in progress, or of what was searched."""
    if s.buf >= 0:
        release(t, s.block, s.block_room)
    s.buf, s.room, s.have, s.searched, s.hope = -1, 0, 0, 0, 0
    s.block_room = 0


@kernel
def append(t: Any, s: Any, data: Any, pos: int, size: int) -> int:
    """Add bytes to the buffer of a side; FULL if the arena is."""
    if s.have + size > s.room:
        # What is emptied at its front as it grows at its end is not moved each time.
        spare = s.have >> 1 if s.buf > s.block else 0
        room = block_size(s.have + size + spare)
        at = allocate(t, room)
        if at < 0:
            return FULL
        if s.buf >= 0:
            copy(t.arena, at, t.arena, s.buf, s.have)
            release(t, s.block, s.block_room)
        s.buf, s.room = at, room
        s.block, s.block_room = at, room
    copy(t.arena, s.buf + s.have, data, pos, size)
    s.have += size
    return OK


@kernel
def drop_front(t: Any, s: Any, count: int) -> None:
    """Forget the first bytes of the buffer."""
    if count >= s.have:
        empty_buffer(t, s)
    elif count > 0:
        s.buf += count
        s.room -= count
        s.have -= count
        s.searched = max(s.searched - count, 0)


@kernel
def came(t: Any, s: Any, time: int, packet: int, order: int, first: bool) -> None:
    """Note the packet that brought bytes of the frame in progress."""
    if first:
        s.first_time = time
        s.frame_order = -1
    if order >= s.frame_order:
        s.frame_order, s.frame_time, s.frame_packet = order, time, packet
