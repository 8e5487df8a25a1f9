"""The end of a connection: what waits is delivered, and its row is told.

Theory of operation. Closing goes through the steps of `kwsniff.kernel.states`. A table may be full in each of
them; then the step is entered again. A connection that was closed stays for a while, for the stray segments
that belong to it, and then ends: its row is told and given back.
"""

from __future__ import annotations

from typing import Any

from kwsniff.kernel.arena import WANT_ENDS, lacks
from kwsniff.kernel.buffer import empty_buffer
from kwsniff.kernel.connections import remove, spoke
from kwsniff.kernel.conversation import give_up_all
from kwsniff.kernel.frames import finish_frame
from kwsniff.kernel.leaving import close_left, lacks_responses
from kwsniff.kernel.notes import note_now, room_for_notes
from kwsniff.kernel.numbers import FRAME_INCOMPLETE, FULL, NOT_KAFKA, OK
from kwsniff.kernel.responses import pair_pending
from kwsniff.kernel.roles import judge
from kwsniff.kernel.states import CLOSED_, FINISHING, FLUSHING, GIVING_UP, JUDGING, OPEN, advance_to, become
from kwsniff.kernel.streams import FAR, flush, replay
from kwsniff.kernel.tables import CLOSED_REASON, GAP_REASON, KAFKA, KNOWN, OTHER, PROBING, RESET_REASON, TLS
from kwsniff.kernel.trace import CLOSING, decided, room_for_decisions
from kwsniff.native.mode import kernel


@kernel
def close(t: Any, c: int, reason: int) -> int:
    """Deliver what still waits and end the conversation; segments that follow are only counted."""
    conn = t.conns[c]
    run = t.run[0]
    if conn.step == OPEN:
        if room_for_decisions(t) != OK:
            return FULL
        conn.ending = reason
        advance_to(t, c, FLUSHING)
        decided(t, c, CLOSING, 0, reason, 0)
    if conn.step == FLUSHING:
        for k in range(2):
            code = flush(t, c, k)
            if code != OK:
                return code
        advance_to(t, c, JUDGING)
    if conn.step == JUDGING:
        if conn.state == PROBING:
            code = judge(t, c, True)
            if code != OK:
                return code
        code = replay(t, c)
        if code != OK:
            return code
        lose_tails(t, c)
        advance_to(t, c, FINISHING)
    if conn.step == FINISHING:
        code = finish_frames(t, c)
        if code != OK:
            return code
        advance_to(t, c, GIVING_UP)
    if conn.step == GIVING_UP:
        because = conn.ending
        if because != RESET_REASON and conn.in_flight and lacks_responses(t, c):
            because = GAP_REASON
        code = give_up_all(t, c, because)
        if code == OK:
            code = room_for_notes(t, 1)
        if code != OK:
            return code
        settle(t, c)
        advance_to(t, c, CLOSED_)
        conn.reset_time = -1
        spoke(t, c)
    run.cursor = 0
    return OK


@kernel
def lose_tails(t: Any, c: int) -> None:
    """Count as missing what an end acknowledged, or what lay before its FIN, but the capture never held."""
    conn = t.conns[c]
    for k in range(2):
        s = t.sides[2 * c + k]
        if is_tail_missing(s):
            s.missing += max(acknowledged_tail(s), ended_tail(s))
            if k != conn.client:
                conn.response_gap = 1


@kernel
def is_tail_missing(s: Any) -> bool:
    """Whether there were bytes behind the last that was captured."""
    return acknowledged_tail(s) > 1 or ended_tail(s) > 0  # one byte may be a FIN that was not captured


@kernel
def acknowledged_tail(s: Any) -> int:
    """Bytes behind the last that was captured that the other end acknowledged."""
    return s.acked - s.offset - (1 if s.fin_at >= 0 else 0) if s.acked >= 0 else 0


@kernel
def ended_tail(s: Any) -> int:
    """Bytes between the last that was captured and the FIN, unless that is too far off to be believed."""
    tail = s.fin_at - s.offset
    return tail if s.fin_at >= 0 and 0 < tail <= FAR else 0


@kernel
def finish_frames(t: Any, c: int) -> int:
    """Take what is there of the frames that are not whole."""
    conn = t.conns[c]
    if conn.state != KAFKA:
        return OK
    if t.run[0].pairing >= 0:
        code = pair_pending(t)
        if code != OK:
            return code
    for k in range(2):
        s = t.sides[2 * c + k]
        if s.size > 0:
            if room_for_notes(t, 12) != OK:
                return FULL
            if s.got < s.size:
                note_now(t, c, FRAME_INCOMPLETE, (0 if k == conn.client else 1) | (s.size << 1), s.have)
                if not s.broken and s.have == s.got and not is_tail_missing(s):
                    conn.ended_inside |= 1 if k == conn.client else 2
                    t.notes[t.run[0].notes - 1].c = conn.closed_by
                s.broken, s.frame_time, s.got = 1, -1, s.size
            code = finish_frame(t, c, k)
            if code == OK and t.run[0].pairing >= 0:
                code = pair_pending(t)
            if code != OK:
                return code
        elif s.have:
            s.skipped += s.have
            empty_buffer(t, s)
    return OK


@kernel
def settle(t: Any, c: int) -> None:
    """What was taken for Kafka because of its port, but proved nothing or held no frame, was none."""
    conn = t.conns[c]
    if conn.state == KAFKA and (not conn.proven or t.sides[2 * c].frames + t.sides[2 * c + 1].frames == 0):
        become(t, c, OTHER)
        if conn.ports and (t.sides[2 * c].spoken or t.sides[2 * c + 1].spoken):
            note_now(t, c, NOT_KAFKA, 1, 0)


@kernel
def end(t: Any, c: int, reason: int) -> int:
    """The connection is over: tell its row, and give it back."""
    run, conn = t.run[0], t.conns[c]
    if conn.step != CLOSED_:
        if conn.step == OPEN:
            if conn.rst or t.sides[2 * c].rst_at >= 0 or t.sides[2 * c + 1].rst_at >= 0:
                reason = RESET_REASON
            elif conn.fin:
                reason = CLOSED_REASON
        code = close(t, c, reason)
        if code != OK:
            return code
    if run.ends + 1 > len(t.ends):
        return lacks(t, WANT_ENDS, 1)
    emit_end(t, c)
    remove(t, c)
    return OK


@kernel
def emit_end(t: Any, c: int) -> None:
    """Add the row of a connection."""
    run, conn = t.run[0], t.conns[c]
    row = t.ends[run.ends]
    run.ends += 1
    client = max(conn.client, 0)
    s, o = t.sides[2 * c + client], t.sides[2 * c + 1 - client]
    row.order, row.conn, row.number, row.capture = run.order, c, conn.number, conn.capture
    row.client = conn.client
    row.known = 1 if conn.state == KAFKA or conn.state == TLS or conn.ports else 0
    row.a_hi, row.a_lo, row.b_hi, row.b_lo = conn.a_hi, conn.a_lo, conn.b_hi, conn.b_lo
    row.a_port, row.b_port, row.state = conn.a_port, conn.b_port, conn.state
    row.first_time, row.last_time = conn.first_time, conn.last_time
    row.client_packets, row.broker_packets, row.client_bytes, row.broker_bytes = (
        s.packets,
        o.packets,
        s.bytes,
        o.bytes,
    )
    row.client_missing, row.broker_missing = s.missing, o.missing
    row.client_retransmitted, row.broker_retransmitted = s.retransmitted, o.retransmitted
    row.client_again, row.broker_again = s.again, o.again
    row.client_shut, row.broker_shut = s.zero_windows, o.zero_windows
    row.copies, row.alert, row.alert_side = conn.copies, conn.alert, 0 if conn.alert_side == client else 1
    row.client_id, row.first_packet, row.last_packet = conn.client_id, conn.first_packet, conn.last_packet
    row.syn, row.fin, row.rst, row.handshake = conn.syn, conn.fin, conn.rst, conn.handshake
    row.closed_by, row.mechanism, row.user = conn.closed_by, conn.mechanism, conn.user
    row.resynchronised = s.resynchronised + o.resynchronised
    row.skipped = s.skipped + o.skipped if conn.state == KAFKA else 0
    row.frames, row.undecoded = s.frames + o.frames, conn.undecoded
    row.rank, row.left, row.left_row = run.rank, conn.left, conn.left_row
    if conn.left == KNOWN:
        close_left(t, c, True)
