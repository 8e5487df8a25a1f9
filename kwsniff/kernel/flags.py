"""What the TCP header of a segment says of its connection: SYN, FIN, RST, times and counts."""

from __future__ import annotations

from typing import Any

from kwsniff.kernel.clocks import compare
from kwsniff.kernel.codes import TIME_BACKWARDS
from kwsniff.kernel.headers import MAX_ALERT, TLS_ALERT, alert_of
from kwsniff.kernel.history import COPY
from kwsniff.kernel.mode import kernel
from kwsniff.kernel.notes import note
from kwsniff.kernel.numbers import SECOND, distance
from kwsniff.kernel.silence import spoke
from kwsniff.kernel.states import OPEN
from kwsniff.kernel.streams import MASK, acknowledge
from kwsniff.kernel.tables import KAFKA, PROBING

FIN, SYN, RST, ACK = 1, 2, 4, 16
ZERO_WINDOW = 256
"""Of `flags`, see `kwsniff.net.columns`."""
STRAY_SYN = 1 << 16
"""A SYN so near to where a stream stands is no new connection: the flag was damaged."""


@kernel
def is_from_a(conn: Any, seg: Any) -> bool:
    """Whether a segment comes from end a."""
    return conn.a_port == seg.src_port and conn.a_lo == seg.src_lo and conn.a_hi == seg.src_hi


@kernel
def begins_anew(t: Any, c: int, k: int, seg: Any) -> bool:
    """Whether a SYN is that of another connection."""
    conn, s = t.conns[c], t.sides[2 * c + k]
    if is_stray_syn(t, c, k, seg.seq):
        return False
    if s.isn >= 0:
        return s.isn != seg.seq
    over = conn.step != OPEN or conn.reset_time >= 0
    if s.next_seq < 0:
        return over
    return over or (s.next_seq - s.offset - seg.seq - 1) & MASK != 0


@kernel
def is_stray_syn(t: Any, c: int, k: int, seq: int) -> bool:
    """Whether a SYN stands in the middle of a stream, where there can be none."""
    conn, s = t.conns[c], t.sides[2 * c + k]
    if conn.step != OPEN or conn.reset_time >= 0 or s.next_seq < 0 or s.isn == seq:
        return False
    if not (s.offset > 0 or s.from_start) or (s.next_seq - s.offset - seq - 1) & MASK == 0:
        return False
    return -STRAY_SYN <= distance(seq, s.next_seq) <= STRAY_SYN


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
    if conn.alert < 0 and TLS_ALERT <= seg.length <= MAX_ALERT and seg.captured >= TLS_ALERT:
        note_alert(t, conn, k, seg)
    moment = run.moment
    if moment > conn.last_time:
        conn.last_time = moment
    conn.last_packet, conn.last_order = seg.packet, run.order
    spoke(t, c)
    if seg.flags & SYN and not is_stray_syn(t, c, k, seg.seq):
        note_syn(t, c, k, seg)
    elif seg.flags & ACK and conn.handshake < 0 and conn.syn_time >= 0 and k == conn.client:
        if conn.syn_ack_time >= 0:
            conn.handshake = seg.time - conn.syn_time
        elif conn.client_time < 0:
            conn.client_time = seg.time
    followed = conn.state == KAFKA or conn.state == PROBING
    if seg.flags & ACK and not seg.flags & SYN and conn.step == OPEN and followed:
        acknowledge(t, other, seg.ack)


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
    client = 1 - k if seg.flags & ACK else k
    if s.next_seq < 0:
        s.next_seq = (seg.seq + 1) & MASK
        s.from_start = 1
    if not seg.flags & ACK:
        if conn.syn_time < 0:
            conn.syn_time = seg.time
            if conn.early_syn_ack >= 0:
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
            first.next_seq = seg.ack
            first.from_start = 1
    if conn.state == PROBING:
        conn.client = client


@kernel
def take_flags(t: Any, c: int, k: int, seg: Any) -> None:
    """Note an RST or a FIN."""
    conn, s = t.conns[c], t.sides[2 * c + k]
    who = 1 if k == conn.client else 2
    if seg.flags & RST:
        conn.rst = 1
        if conn.reset_time < 0:
            conn.reset_time, conn.reset_order = conn.last_time, t.run[0].order
            spoke(t, c)
        closed_first(conn, who | 4, seg.time)
        return
    if seg.flags & FIN:
        conn.fin = 1
        closed_first(conn, who | 8, seg.time)
        s.fin_at = s.offset + distance((seg.seq + seg.length) & MASK, s.next_seq) if s.next_seq >= 0 else 0


@kernel
def closed_first(conn: Any, how: int, time: int) -> None:
    """Note who ended a connection first, by packet time: an RST may overtake a FIN on its way."""
    if conn.closed_by == 0 or time < conn.closed_time:
        conn.closed_by, conn.closed_time = how, time
