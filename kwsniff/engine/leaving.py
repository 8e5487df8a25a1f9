"""What a part of the input notes of connections that it did not see begin.

Theory of operation. A *part* is a run that begins in the middle of the input (`limits.part`). A connection
whose first segment in it is no SYN may have begun before: what it tells is a hypothesis at first. Its
segments are marked, they are its *head*, and its rows are marked too, nobody believes them. When nothing
that lies before can matter any more it is *known*: both directions are cut into frames, and a request of
the part was answered, so that all earlier ones are settled, since brokers answer in order. A row of `lefts`
then keeps a digest of its state. How many requests were in flight when those that wait were sent is a term
that is filled in later.

A client whose requests want no reply may hear nothing from its broker for long. Its connection is *quiet*:
known too, if no request of the part waits, and the broker is taken to stand between two frames. If it says
something, that must be in place and answer a request of the part; else the connection is decoded again.

Whether responses were lost before a connection was known decides why requests go unanswered, until none is in
flight. The part assumes that none were (`conns.unsure`), and notes in `lefts.gap` when it asked for it.

What joins the parts (`kwsniff.engine.resumed`) feeds the head to the connection as it was before, and
compares. Counters go on as they are; what they were is in `lefts`, so the difference can be added.
"""

from __future__ import annotations

from typing import Any

from kwsniff.engine.row_tables import COUNTED, COUNTED_OF_SIDES, UNKNOWN
from kwsniff.engine.tables import (
    ANSWERING,
    HEAD,
    HEAD_,
    HEARD,
    KAFKA,
    KNOWN,
    OPENED,
    OTHER,
    QUIET,
    SPARE_,
    SPOILT,
)
from kwsniff.native.mode import kernel, made

SYN, ACK, FLAGS = 2, 16, 23
COST = 128
"""Bytes charged for a segment of a head, besides its payload."""
SPARE = 8
"""Packets that are waited for beyond those after which a hole is given up."""
UNASKED = 4
"""Requests in a row that want no reply, after which none is expected."""
MASK = 0xFFFFFFFF


@kernel
def mark(t: Any, kind: int, c: int, time: int) -> None:
    """Note something of the segment at hand; the driver saw to it that there is room."""
    run = t.run[0]
    row = t.marks[run.marks]
    run.marks += 1
    row.kind, row.row, row.conn, row.order, row.time = kind, run.row, c, run.order, time
    row.number = t.conns[c].number if c >= 0 else 0


@kernel
def note_opened(t: Any, c: int, seg: Any) -> None:
    """A connection opened in a part; it may have begun before unless its first segment is a SYN."""
    if not seg.flags & SYN or seg.flags & ACK:
        t.conns[c].left = HEAD
    mark(t, OPENED, c, seg.time)


@kernel
def note_segment(t: Any, c: int, seg: Any) -> None:
    """A segment of a part was taken."""
    conn = t.conns[c]
    if conn.left == KNOWN:
        listen(t, c, seg)
    if conn.left != HEAD:
        return
    conn.head_bytes += COST + seg.captured
    mark(t, HEAD_, c, seg.time)
    if conn.known_since < 0 and conn.answered != UNKNOWN:
        conn.known_since = t.run[0].order
    if t.sides[2 * c].missing or t.sides[2 * c + 1].missing:
        t.run[0].lossy = 1
    if is_known(t, c, seg) and (not t.run[0].lossy or is_settled(t, c)):
        begin_known(t, c, seg)
    elif conn.head_bytes > t.limits[0].max_head_bytes and conn.state != 0:
        begin_known(t, c, seg)
        t.lefts[conn.left_row].digest = -1  # whoever knows its state has to go on


@kernel
def is_known(t: Any, c: int, seg: Any) -> bool:
    """Whether nothing before the part can matter any more for a connection, after this segment."""
    conn = t.conns[c]
    if conn.step != 0 or conn.reset_time >= 0:
        return False
    if conn.state == OTHER:
        return True
    if conn.state != KAFKA or not conn.proven or conn.held_first >= 0:
        return False
    if conn.early or conn.raw_waiting:
        return False
    if is_quiet(t, c, seg):
        return True
    return t.sides[2 * c].synchronised and t.sides[2 * c + 1].synchronised and conn.known_since >= 0


@kernel
def is_quiet(t: Any, c: int, seg: Any) -> bool:
    """Whether a client asked for no reply and got none. A broker that says nothing at all shows by an ACK
    where its stream stands."""
    conn = t.conns[c]
    if conn.client < 0 or conn.answered != UNKNOWN or conn.unasked < UNASKED or conn.in_flight:
        return False
    client, broker = t.sides[2 * c + conn.client], t.sides[2 * c + 1 - conn.client]
    if not client.synchronised or broker.wait_first >= 0:
        return False
    if broker.spoken:
        return broker.synchronised != 0
    own = conn.a_port == seg.src_port and conn.a_lo == seg.src_lo and conn.a_hi == seg.src_hi
    return own == (conn.client == 1) and seg.length == 0 and seg.flags & FLAGS == ACK


@kernel
def listen(t: Any, c: int, seg: Any) -> None:
    """A segment of a known connection was taken: whether what its quiet broker said needs nothing from
    before. Until that is sure its segments are kept."""
    conn = t.conns[c]
    left = t.lefts[conn.left_row]
    if left.quiet == QUIET:
        left.quiet = heard(t, c, seg, left)
    if left.spare and (left.quiet == QUIET or left.quiet == SPOILT):
        conn.head_bytes += COST + seg.captured
        if conn.head_bytes > t.limits[0].max_head_bytes >> 1:
            left.spare = 0
        else:
            mark(t, SPARE_, c, conn.left_row)


_SPOILING = ("again", "retransmitted", "missing", "skipped")
_same_of_a, _same_of_b = (
    made(
        "same", "left, s", ["return " + " and ".join(f"s.{name} == left.{end}_{name}" for name in _SPOILING)]
    )
    for end in "ab"
)
"""Whether nothing was counted of a direction that shows that it isn't in place."""


@kernel
def heard(t: Any, c: int, seg: Any, left: Any) -> int:
    """What a quiet broker said so far, see QUIETS."""
    conn = t.conns[c]
    s = t.sides[2 * c + 1 - conn.client]
    in_place = _same_of_b(left, s) if conn.client == 0 else _same_of_a(left, s)
    if not in_place or not s.synchronised or s.wait_first >= 0 or conn.early or seg.time < left.time:
        return SPOILT
    if conn.answered == UNKNOWN:
        return QUIET
    return HEARD if conn.answered > left.latest else SPOILT


@kernel
def is_settled(t: Any, c: int) -> bool:
    """Whether holes that were open before the part are given up."""
    conn, a, b = t.conns[c], t.sides[2 * c], t.sides[2 * c + 1]
    if conn.state != KAFKA:
        return True
    if a.wait_first >= 0 or b.wait_first >= 0:
        return False
    return a.packets + b.packets > t.limits[0].reorder_packets + SPARE


_count_conn = made("count_conn", "left, conn", [f"left.{name} = conn.{name}" for name in COUNTED])
_count_sides = made(
    "count_sides",
    "left, a, b",
    [f"left.{end}_{name} = {end}.{name}" for end in "ab" for name in ("offset", *COUNTED_OF_SIDES)],
)


@kernel
def begin_known(t: Any, c: int, seg: Any) -> None:
    """From here on a connection tells what is believed, if its state is what it seems."""
    run, conn = t.run[0], t.conns[c]
    left = t.lefts[run.lefts]
    conn.left, conn.left_row = KNOWN, run.lefts
    run.lefts += 1
    left.conn, left.number, left.order = c, conn.number, run.order
    left.quiet, left.time, left.latest, left.spare = ANSWERING, conn.last_time, UNKNOWN, 1
    if conn.state == KAFKA and is_quiet(t, c, seg):
        left.quiet, left.latest = QUIET, t.sides[2 * c + conn.client].latest
        broker = t.sides[2 * c + 1 - conn.client]
        broker.synchronised = 1
        if broker.next_seq < 0:
            broker.next_seq = seg.seq
    conn.unsure = 1 if left.quiet == ANSWERING and not conn.response_gap else 0
    left.digest = (digest(t, c, 1, left.quiet, conn.unsure) << 31) ^ digest(t, c, 2, left.quiet, conn.unsure)
    left.verdict, left.before, left.over = 0, -1, 0
    left.software, left.software_version = print_of(t, conn.software), print_of(t, conn.software_version)
    left.user, left.mechanism = print_of(t, conn.user), print_of(t, conn.mechanism)
    left.backwards, left.skewed, left.throttled_until = conn.backwards, conn.skewed, conn.throttled_until
    _count_conn(left, conn)
    _count_sides(left, t.sides[2 * c], t.sides[2 * c + 1])
    left.by_end, left.by_seq, left.unsteady = -1, 0, 0
    left.gap = conn.unsure
    conn.syns = 0
    conn.stray_low, conn.stray_high = -UNKNOWN, UNKNOWN


@kernel
def lacks_responses(t: Any, c: int) -> int:
    """Whether responses of a connection were lost since it last had no request in flight: older requests get
    no answer then. A part that does not know it takes it that none were, and notes that it mattered."""
    conn = t.conns[c]
    if conn.unsure and not conn.response_gap:
        t.lefts[conn.left_row].gap = 2
    return conn.response_gap


@kernel
def close_left(t: Any, c: int, over: bool) -> None:
    """Note how a known connection ended, or stands at the end of the part."""
    conn = t.conns[c]
    left, a, b = t.lefts[conn.left_row], t.sides[2 * c], t.sides[2 * c + 1]
    left.over = 1 if over else 0
    if conn.step != 0 and left.quiet == QUIET:
        left.quiet = HEARD  # what waits was given up: nothing may have waited since before the part, either
    left.last_software, left.last_version = print_of(t, conn.software), print_of(t, conn.software_version)
    left.last_user, left.last_mechanism = print_of(t, conn.user), print_of(t, conn.mechanism)
    left.last_backwards, left.last_skewed = conn.backwards, conn.skewed
    left.stray_low, left.stray_high, left.syns = conn.stray_low, conn.stray_high, conn.syns
    left.waiting, left.a_oldest, left.b_oldest = conn.in_flight, a.oldest, b.oldest
    left.unsteady = 0
    if a.resynchronised != left.a_resynchronised or a.skipped != left.a_skipped:
        left.unsteady += 1
    if b.resynchronised != left.b_resynchronised or b.skipped != left.b_skipped:
        left.unsteady += 2


# The state of a connection in a number


@kernel
def print_of(t: Any, number: int) -> int:
    """A text as a number that is the same in all runs of the same seed."""
    if number < 0:
        return number
    return (t.texts[number].hash << 20) + (t.texts[number].size & 0xFFFFF)


@kernel
def add(found: int, word: int) -> int:
    """One more word of a hash of 32 bits."""
    found = ((found ^ word) & MASK) * 0x9E3779B1 & 0xFFFFFFFFFFFFFFF
    found = (found ^ (found >> 17) ^ (word >> 32)) & MASK
    found = found * 0x85EBCA6B & 0xFFFFFFFFFFFFFFF
    return (found ^ (found >> 19)) & MASK


def _adding(names: tuple[str, ...]) -> Any:
    """A kernel that adds these fields of a row to a hash."""
    lines = [f"found = add(found, row.{name})" for name in names]
    return made("add_fields", "found, row", [*lines, "return found"], add=add)


_add_any = _adding(("state", "step", "client", "reset_time", "last_time", "fin", "rst", "closed_by"))
_add_kafka = _adding(("proven", "raw_tokens", "turned", "raw_waiting"))
_add_answers = _adding(("in_flight", "answered", "response_end"))
_add_request = _adding(
    ("correlation_id", "key", "version", "status", "packet", "size", "first_time", "last_time")
)
_add_early = _adding(("order", "correlation_id"))
_add_stream = _adding((
    "next_seq", "doubted", "synchronised", "assumed", "broken", "shut", "size", "got", "have", "block_room",
    "latest", "searched", "hope", "syn_next", "syn_ack",
))  # fmt: skip
_add_frame = _adding(("first_time", "frame_time", "frame_order"))
_add_heard = _adding(("history", "lost", "spoken"))
"""What decides of connections of any kind, of Kafka's, and of all that they hold."""


@kernel
def digest(t: Any, c: int, seed: int, quiet: int, unsure: int) -> int:
    """All of a connection's state that a part can know and that decides what it tells from here on; of one
    that is quiet the part does not know what was answered last, or still waits."""
    conn = t.conns[c]
    found = _add_any(seed, conn)
    if conn.state != KAFKA:
        return add(found, t.sides[2 * c].shut + 2 * t.sides[2 * c + 1].shut)
    found = add(_add_kafka(found, conn), 0 if unsure else conn.response_gap)
    if not quiet:
        found = _add_answers(found, conn)
    found = add(found, print_of(t, conn.client_id))
    row = conn.first_request if not quiet else -1
    while row >= 0:
        found = add(_add_request(found, t.requests[row]), print_of(t, t.requests[row].client_id))
        row = t.requests[row].after
    row = conn.first_early
    while row >= 0:
        found = _add_early(found, t.early[row])
        row = t.early[row].next
    for k in range(2):
        if quiet == ANSWERING or k == conn.client:
            found = _add_heard(found, t.sides[2 * c + k])
        found = add_side(t, c, k, found)
    return found


@kernel
def add_side(t: Any, c: int, k: int, found: int) -> int:
    """The same of one direction."""
    s = t.sides[2 * c + k]
    packets = t.sides[2 * c].packets + t.sides[2 * c + 1].packets
    found = add(_add_stream(found, s), max(s.acked - s.offset, 0))
    found = add(found, s.fin_at - s.offset if s.fin_at >= 0 else -1)
    found = add(found, s.skipped - s.skipped_before)
    if s.got or s.have:
        found = _add_frame(found, s)
    if s.rst_at >= 0:
        found = add(add(found, s.rst_at - s.offset), s.rst_time)
    if s.wait_first >= 0:
        found = add(add(found, s.hole_time), packets - s.hole_packets)
    row = s.wait_first
    while row >= 0:
        piece = t.pieces[row]
        found = add(add(found, piece.order), piece.size)
        found = add(add(found, piece.start - s.offset), piece.end - s.offset)
        found = add(found, packets - piece.packets)
        row = piece.next
    return found
