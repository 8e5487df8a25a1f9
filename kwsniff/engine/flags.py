"""What the TCP header of a segment says of its connection: SYN, FIN, RST, times and counts."""

from __future__ import annotations

from typing import Any

from kwsniff.engine.connections import CLOSED_, OPEN, is_from_a, is_left_alone, spoke
from kwsniff.engine.headers import MAX_ALERT, TLS_ALERT, alert_of
from kwsniff.engine.notes import IGNORED, TIME_BACKWARDS, compare, decided, note
from kwsniff.engine.streams import COPY, FAR, MASK, acknowledge, last_seen
from kwsniff.engine.tables import KAFKA, PROBING, SECOND
from kwsniff.native.mode import distance, kernel

FIN, SYN, RST, ACK = 1, 2, 4, 16
LATE = 1024
"""Of `flags`: bytes that earlier segments brought, or that are given up if none is at hand; they stand before
the segment that follows, and were not known until then. They count for nothing but their bytes."""
ZERO_WINDOW = 256
"""Of `flags`, see `kwsniff.net.segments`."""
STAMPED = 600 * SECOND
"""For so long timestamps tell segments of an earlier connection: none lives longer (RFC 9293, 3.4.1), and
those that count microseconds come round after 71 minutes."""


@kernel
def is_own_syn(t: Any, c: int, k: int, seg: Any) -> bool:
    """Whether a SYN is that of this connection, perhaps once more. The answer to a SYN acknowledges it, or it
    is dropped (RFC 9293, 3.10.7.3)."""
    s, other = t.sides[2 * c + k], t.sides[2 * c + 1 - k]
    if s.isn >= 0:
        return s.isn == seg.seq
    if seg.flags & ACK and other.isn >= 0 and not 0 <= distance(seg.ack, other.isn + 1) <= other.offset:
        return False
    return s.next_seq < 0 or (s.next_seq - s.offset - seg.seq - 1) & MASK == 0


@kernel
def keep_syn(t: Any, c: int, k: int, seg: Any) -> None:
    """Remember a SYN that is not this connection's. An end that has the connection open answers it with an
    ACK of what it expects, and that is all (RFC 5961, 4.2): only a handshake shows that it was over."""
    s = t.sides[2 * c + k]
    s.syn_next = (seg.seq + 1) & MASK
    s.syn_ack, s.syn_time, s.syn_tsval = seg.ack if seg.flags & ACK else -1, seg.time, seg.tsval
    t.conns[c].syns += 1
    if s.next_seq >= 0:
        decided(t, c, IGNORED, k, SYN, distance(seg.seq, s.next_seq))


@kernel
def begins_anew(t: Any, c: int, k: int, seg: Any) -> bool:
    """Whether a segment is of another connection with the same ends: a SYN after the end, or what goes on
    with the handshake of a SYN that this one did not take; `run.begun` is the end that began it then, unless
    the segment itself says so, `run.syn_time` when the SYN came, and `run.a_born` its timestamp."""
    run, conn, s, other = t.run[0], t.conns[c], t.sides[2 * c + k], t.sides[2 * c + 1 - k]
    run.begun = run.syn_time = run.a_born = run.b_born = -1
    if seg.flags & SYN:
        if (s.next_seq < 0 and conn.step == OPEN and not conn.rst) or is_own_syn(t, c, k, seg):
            return False
        answers = seg.flags & ACK != 0 and seg.ack == other.syn_next
        if answers:
            run.syn_time = other.syn_time
            keep_born(run, 1 - k, other)
        return answers or conn.rst == 1 or is_left_alone(conn) or is_over(s, other, seg)
    answers = seg.flags & ACK and seg.ack == other.syn_next and seg.seq == other.syn_ack
    if answers or (seg.length and seg.seq == s.syn_next and s.syn_ack < 0 and not is_near(s, seg.seq)):
        run.begun = k
        keep_born(run, k, s)
        if answers:
            keep_born(run, 1 - k, other)
        return True
    if conn.rst and s.rst_at < 0:
        return False  # it was sent before the other end's RST came
    return conn.step == CLOSED_ and not is_left_alone(conn) and goes_on(s, seg)


@kernel
def keep_born(run: Any, k: int, s: Any) -> None:
    """Keep the timestamp of a SYN for the connection that it began."""
    if k == 0:
        run.a_born = s.syn_tsval
    else:
        run.b_born = s.syn_tsval


@kernel
def is_over(s: Any, other: Any, seg: Any) -> bool:
    """Whether a SYN comes when both ends acknowledged the other's FIN; or with data (RFC 7413), from an end
    that has sent all, and its FIN, or acknowledged the other's: its own may not be captured."""
    if has_ended(s) and has_ended(other):
        return True
    done = has_ended(other) or (s.fin_at >= 0 and s.offset >= s.fin_at)
    return done and seg.length > 0 and not seg.flags & ACK


@kernel
def has_ended(s: Any) -> bool:
    """Whether the other end acknowledged the FIN of a stream."""
    return s.fin_at >= 0 and s.acked > s.fin_at


@kernel
def is_near(s: Any, seq: int) -> bool:
    """Whether a sequence number may belong to a stream at present."""
    return s.next_seq >= 0 and -FAR <= distance(seq, s.next_seq) <= FAR


@kernel
def goes_on(s: Any, seg: Any) -> bool:
    """Whether a segment brings the next bytes of a stream that has ended: it was no end."""
    return (
        seg.length > 0 and s.next_seq >= 0 and 0 < distance((seg.seq + seg.length) & MASK, s.next_seq) <= FAR
    )


@kernel
def continues(t: Any, c: int, k: int, seg: Any) -> bool:
    """Whether a segment that comes after a long silence goes on where its connection stood, as its sequence
    number says, or what it acknowledges. No SYN is sent again so late (RFC 9293, 3.8.3)."""
    s, other = t.sides[2 * c + k], t.sides[2 * c + 1 - k]
    if is_left_alone(t.conns[c]) or seg.flags & SYN:
        return False
    return is_near(s, seg.seq) or (s.next_seq < 0 and seg.flags & ACK != 0 and is_near(other, seg.ack))


@kernel
def take_handshake(t: Any, c: int, k: int, seg: Any) -> None:
    """A connection begins with what followed a SYN of end `k`: both streams begin here."""
    conn, s, other = t.conns[c], t.sides[2 * c + k], t.sides[2 * c + 1 - k]
    conn.syn, conn.client = 1, k
    begin_stream(conn, s, seg.seq)
    if seg.flags & ACK:
        begin_stream(conn, other, seg.ack)


@kernel
def count(t: Any, c: int, seg: Any) -> None:
    """Note what every segment says of its connection, and what a SYN or an ACK does."""
    run, conn = t.run[0], t.conns[c]
    k = 0 if is_from_a(conn, seg) else 1
    s, other = t.sides[2 * c + k], t.sides[2 * c + 1 - k]
    run.steps += 1
    conn.capture = run.capture
    if seg.time < conn.last_time - SECOND and not conn.backwards:
        conn.backwards = 1
        note(t, c, TIME_BACKWARDS, seg.packet, conn.last_time, conn.last_time - seg.time, 0)
    s.packets += 1
    s.bytes += seg.length
    if seg.flags & COPY:
        conn.copies += 1
    if seg.flags & (SYN | FIN | RST) == 0:
        if seg.flags & ZERO_WINDOW == 0:
            s.shut = 0
        elif s.shut == 0:
            s.shut = 1
            s.zero_windows += 1
    run.refused = 1 if is_old(conn, s, seg) else 0
    if t.limits[0].part and seg.tsval >= 0 and (s.oldest < 0 or distance(seg.tsval, s.oldest) < 0):
        s.oldest = seg.tsval
    if conn.alert < 0 and TLS_ALERT <= seg.length <= MAX_ALERT and seg.captured >= TLS_ALERT:
        note_alert(t, conn, k, seg)
    moment = run.moment
    if moment > conn.last_time:
        conn.last_time = moment
    conn.last_packet, conn.last_order = seg.packet, run.order
    spoke(t, c)
    if seg.flags & SYN and is_own_syn(t, c, k, seg):
        note_syn(t, c, k, seg)
    elif seg.flags & SYN:
        keep_syn(t, c, k, seg)
    elif seg.flags & ACK and conn.handshake < 0 and conn.syn_time >= 0 and is_first(conn, s, k, seg):
        if conn.syn_ack_time >= 0:
            conn.handshake = seg.time - conn.syn_time
        elif conn.client_time < 0:
            conn.client_time = seg.time
    if seg.flags & ACK and not seg.flags & SYN and not is_left_alone(conn) and not run.refused:
        if acknowledge(t, other, seg.ack):
            s.doubted = -1
        elif other.packets and s.doubted != seg.seq and not seg.flags & RST:
            # What goes on from there is believed: that much of the other end may not have been captured.
            s.doubted, run.refused = (seg.seq + seg.length) & MASK, 1


@kernel
def is_old(conn: Any, s: Any, seg: Any) -> bool:
    """Whether a segment was sent before the SYN of its end, as its timestamp says: by an earlier connection
    of the same ends. A receiver drops it, unless it is an RST (RFC 7323, 5.2 and 5.3)."""
    if s.born < 0 or seg.tsval < 0 or seg.flags & RST or seg.time - conn.first_time > STAMPED:
        return False
    return distance(seg.tsval, s.born) < 0


@kernel
def is_first(conn: Any, s: Any, k: int, seg: Any) -> bool:
    """Whether a segment stands where the client's stream begins, as the ACK that ends a handshake does: one
    that was under way to an earlier connection does not."""
    return k == conn.client and seg.seq == (s.next_seq - s.offset) & MASK


@kernel
def begin_stream(conn: Any, s: Any, seq: int) -> None:
    """A stream begins at a sequence number; data in the SYN may have shown already that it is Kafka."""
    s.next_seq, s.from_start = seq, 1
    if conn.state == KAFKA:
        s.synchronised = 1


@kernel
def note_alert(t: Any, conn: Any, k: int, seg: Any) -> None:
    """Keep the first TLS alert that is not encrypted, whatever the connection is taken for."""
    if seg.buffer == 0:
        conn.alert = alert_of(t.inline, seg.start)
    elif seg.buffer == 1:
        conn.alert = alert_of(t.block, seg.start)
    else:
        conn.alert = alert_of(t.extra, seg.start)
    conn.alert_side = k


@kernel
def note_syn(t: Any, c: int, k: int, seg: Any) -> None:
    """A SYN or SYN-ACK says where streams begin and who is the client."""
    conn, s = t.conns[c], t.sides[2 * c + k]
    conn.syn = 1
    conn.syns += 1
    s.isn = seg.seq
    if s.born < 0:
        s.born = seg.tsval
    client = 1 - k if seg.flags & ACK else k
    if s.next_seq < 0:
        begin_stream(conn, s, (seg.seq + 1) & MASK)
    if not seg.flags & ACK:
        if conn.syn_time < 0:
            conn.syn_time = seg.time
            # A SYN that is sent again comes a second later (RFC 6298, 2.1): the first may not be there.
            if conn.early_syn_ack >= 0 and seg.time - conn.early_syn_ack < SECOND:
                compare(t, c, seg.time, conn.early_syn_ack, seg.packet, seg.time)
    elif conn.syn_time >= 0:
        if conn.syn_ack_time < 0:
            compare(t, c, conn.syn_time, seg.time, seg.packet, conn.last_time)
            compare(t, c, seg.time, conn.client_time, seg.packet, conn.last_time)
        conn.syn_ack_time = seg.time
    elif conn.early_syn_ack < 0:
        conn.early_syn_ack = seg.time
    if seg.flags & ACK:
        first = t.sides[2 * c + client]
        if first.next_seq < 0:
            begin_stream(conn, first, seg.ack)
    if conn.state == PROBING:
        conn.client = client


@kernel
def take_flags(t: Any, c: int, k: int, seg: Any) -> None:
    """Note an RST or a FIN, and whether one that was noted holds."""
    s = t.sides[2 * c + k]
    if seg.flags & RST:
        take_rst(t, c, k, seg)
    else:
        if s.rst_at >= 0 and not t.conns[c].rst and seg.length == 0:
            s.rst_at = -1  # its sender goes on
        if seg.flags & FIN:
            take_fin(t, c, k, seg)
    for side in range(2):
        if t.sides[2 * c + side].rst_at >= 0:
            settle_rst(t, c, side)


@kernel
def take_rst(t: Any, c: int, k: int, seg: Any) -> None:
    """Note an RST, unless it can't stand where its receiver expects the next byte: only there it counts (RFC
    9293, 3.10.7.4; RFC 5961, 3.2). Behind all that was seen it waits for the bytes before it. Where a SYN was
    not answered yet, it has to acknowledge that SYN (RFC 9293, 3.10.7.3)."""
    s = t.sides[2 * c + k]
    at = 0
    if s.next_seq < 0 and t.sides[2 * c + 1 - k].from_start and not seg.flags & ACK:
        return
    if s.next_seq >= 0:
        at = s.offset + distance(seg.seq, s.next_seq)
        if at > last_seen(t, s) + FAR or (at < s.offset and at != s.acked):
            decided(t, c, IGNORED, k, RST, at - s.offset)
            return
    s.rst_at, s.rst_time = max(at, s.offset), seg.time


@kernel
def settle_rst(t: Any, c: int, k: int) -> None:
    """An RST ends the connection once the bytes before it are there, and none if its sender goes on."""
    conn, s = t.conns[c], t.sides[2 * c + k]
    end = last_seen(t, s)
    if s.offset > s.rst_at:
        s.rst_at = -1
        if conn.rst and t.sides[2 * c + 1 - k].rst_at < 0:
            conn.rst, conn.reset_time = 0, -1
            conn.closed_by = 0 if conn.closed_by & 4 else conn.closed_by
    elif s.rst_at in (s.offset, end, s.acked) or (s.fin_at >= 0 and s.rst_at == s.fin_at + 1):
        closed_first(conn, (1 if k == conn.client else 2) | 4, s.rst_time)
        if conn.reset_time < 0:
            conn.rst = 1
            conn.reset_time, conn.reset_order = conn.last_time, t.run[0].order
            spoke(t, c)


@kernel
def take_fin(t: Any, c: int, k: int, seg: Any) -> None:
    """Note a FIN, unless the receiver has more than what came before it, or it is far beyond all that was
    sent (RFC 9293, 3.10.7.4)."""
    conn, s = t.conns[c], t.sides[2 * c + k]
    at = 0
    if s.next_seq >= 0:
        at = s.offset + distance((seg.seq + seg.length) & MASK, s.next_seq)
        if at < s.offset or at > last_seen(t, s) + FAR:
            decided(t, c, IGNORED, k, FIN, at - s.offset)
            return
    conn.fin = 1
    closed_first(conn, (1 if k == conn.client else 2) | 8, seg.time)
    s.fin_at = at


@kernel
def closed_first(conn: Any, how: int, time: int) -> None:
    """Note who ended a connection first, by packet time: an RST may overtake a FIN on its way."""
    if conn.closed_by == 0 or time < conn.closed_time:
        conn.closed_by, conn.closed_time = how, time
