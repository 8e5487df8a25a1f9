"""What is said of single frames: what is wrong with them, and when they came."""

from __future__ import annotations

from typing import Any

from kwsniff.kernel.arena import WANT_CALLS, WANT_KEEP, lacks
from kwsniff.kernel.keeping import room_for_body
from kwsniff.kernel.mode import kernel
from kwsniff.kernel.notes import KINDS, note, room_for_notes
from kwsniff.kernel.numbers import BAD_BODY, FULL, HEADER_MALFORMED, OK

NOTES = 8
"""Anomalies that one frame may bring, at the most."""
MAX_EXPLAINED = 65_536
"""Bytes of a body that are looked at again to say what is wrong with it."""


@kernel
def time_of(f: Any) -> int:
    """Packet time of the end of a frame, or else of its beginning."""
    return f.last_time if f.last_time >= 0 else f.first_time


@kernel
def room_for_frame(t: Any) -> int:
    """OK if there is room for what the frame at hand may bring, else FULL."""
    f = t.frame[0]
    if t.run[0].calls + 2 > len(t.calls):
        return lacks(t, WANT_CALLS, 2)
    if room_for_notes(t, NOTES) != OK:
        return FULL
    if t.run[0].kept + min(f.end - f.start, MAX_EXPLAINED) > len(t.keep):
        return lacks(t, WANT_KEEP, MAX_EXPLAINED)
    return room_for_body(t)


@kernel
def room_for_damage(t: Any, direction: int) -> int:
    """OK if what is wrong with the record data of a body can be told, else FULL."""
    damaged = t.facts[direction].damaged
    return room_for_notes(t, NOTES + KINDS * damaged) if damaged else OK


@kernel
def note_body(t: Any, row: int, direction: int, data: Any) -> None:
    """Tell that a body could not be read; the words are found later, from its bytes."""
    f, request = t.frame[0], t.requests[row]
    facts = t.facts[direction]
    note(t, f.conn, BAD_BODY + facts.code, f.packet, time_of(f), direction, facts.offset)
    emitted = t.notes[t.run[0].notes - 1]
    emitted.c = request.key * 65536 + request.version
    emitted.at, emitted.size = t.run[0].kept, min(max(f.end - f.body, 0), MAX_EXPLAINED)
    for at in range(emitted.size):
        t.keep[emitted.at + at] = data[f.body + at]
    t.run[0].kept += emitted.size


@kernel
def unreadable(t: Any, direction: int) -> None:
    """A frame too short for its header; or no more of it was captured, which is told elsewhere."""
    f = t.frame[0]
    conn = t.conns[f.conn]
    conn.undecoded += 1
    conn.frames += 1
    if f.whole:
        note(t, f.conn, HEADER_MALFORMED, f.packet, time_of(f), direction, f.size)
        t.notes[t.run[0].notes - 1].c = f.end - f.start
