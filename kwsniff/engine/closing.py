"""The end of a connection: what waits is delivered, and its row is told.

Theory of operation. Closing goes through STEPS (`kwsniff.engine.connections`). A table may be full in each of
them; then the step is entered again. A connection that was closed stays for a while, for the stray segments
that belong to it, and then ends: its row is told and given back.
"""

from __future__ import annotations

from typing import Any

from kwsniff.engine.arena import WANT_ENDS, empty_buffer, lacks
from kwsniff.engine.connections import (
    CLOSED_,
    ENDED,
    FINISHING,
    FLUSHING,
    GIVING_UP,
    JUDGING,
    OPEN,
    RESET,
    TALKING,
    UNSORTED,
    advance_to,
    become,
    is_left_alone,
    is_reset,
    patience,
    remove,
    spoke,
)
from kwsniff.engine.exchanges import finish_exchanges, settle_exchange
from kwsniff.engine.frames import finish_frame
from kwsniff.engine.leaving import close_left, lacks_responses
from kwsniff.engine.notes import (
    CLOSING,
    CONNECTION_LIMIT,
    FRAME_INCOMPLETE,
    NOT_KAFKA,
    decided,
    note_now,
    room_for_decisions,
    room_for_notes,
)
from kwsniff.engine.outcomes import give_up
from kwsniff.engine.responses import expire_early, orphan, pair_pending
from kwsniff.engine.roles import judge
from kwsniff.engine.row_tables import CONNECTIONS
from kwsniff.engine.streams import FAR, flush, replay, set_free
from kwsniff.engine.tables import (
    CAPTURE_REASON,
    CLOSED_REASON,
    COUNTED_OF_ENDS,
    GAP_REASON,
    KAFKA,
    KNOWN,
    LIMIT_REASON,
    OTHER,
    OWN,
    PROBING,
    RESET_REASON,
    SPEC_OF,
    TIMEOUT_REASON,
    TLS,
)
from kwsniff.engine.waiting import release
from kwsniff.native.mode import kernel, made


@kernel
def close(t: Any, c: int, reason: int) -> None:
    """Deliver what still waits and end the conversation; segments that follow are only counted."""
    conn = t.conns[c]
    run = t.run[0]
    if conn.step == OPEN:
        room_for_decisions(t)
        conn.ending = reason
        advance_to(t, c, FLUSHING)
        decided(t, c, CLOSING, 0, reason, 0)
    if conn.step == FLUSHING:
        for k in range(2):
            flush(t, c, k)
        advance_to(t, c, JUDGING)
    if conn.step == JUDGING:
        if conn.state == PROBING:
            judge(t, c, True)
        replay(t, c)
        lose_tails(t, c)
        advance_to(t, c, FINISHING)
    if conn.step == FINISHING:
        finish_frames(t, c)
        advance_to(t, c, GIVING_UP)
    if conn.step == GIVING_UP:
        because = conn.ending
        if because != RESET_REASON and conn.in_flight and lacks_responses(t, c):
            because = GAP_REASON
        give_up_all(t, c, because)
        room_for_notes(t, 1)
        settle(t, c)
        advance_to(t, c, CLOSED_)
        conn.reset_time = -1
        spoke(t, c)
    run.cursor = 0


@kernel
def give_up_all(t: Any, c: int, because: int) -> None:
    """Report every request of a connection that waits as unanswered, and every response that does."""
    conn = t.conns[c]
    while conn.first_early >= 0:
        orphan(t, c, conn.first_early)
    while conn.first_request >= 0:
        give_up(t, c, conn.first_request, because)
    while conn.first_unasked >= 0:
        release(t, conn.first_unasked)


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
def finish_frames(t: Any, c: int) -> None:
    """Take what is there of the frames that are not whole."""
    conn = t.conns[c]
    if conn.state == TLS:
        finish_exchanges(t, c)
    if conn.state != KAFKA:
        return
    if t.run[0].pairing >= 0:
        pair_pending(t)
    for k in range(2):
        s = t.sides[2 * c + k]
        if s.size > 0:
            room_for_notes(t, 12)
            if s.got < s.size:
                note_now(t, c, FRAME_INCOMPLETE, (0 if k == conn.client else 1) | (s.size << 1), s.have)
                if not s.broken and s.have == s.got and not is_tail_missing(s):
                    conn.ended_inside |= 1 if k == conn.client else 2
                    t.notes[t.run[0].notes - 1].c = conn.closed_by
                s.broken, s.frame_time, s.got = 1, -1, s.size
            finish_frame(t, c, k)
            if t.run[0].pairing >= 0:
                pair_pending(t)
        elif s.have:
            s.skipped += s.have
            empty_buffer(t, s)


@kernel
def settle(t: Any, c: int) -> None:
    """What was taken for Kafka because of its port, but proved nothing or held no frame, was none."""
    conn = t.conns[c]
    if conn.state == KAFKA and (not conn.proven or t.sides[2 * c].frames + t.sides[2 * c + 1].frames == 0):
        become(t, c, OTHER)
        if conn.ports and (t.sides[2 * c].spoken or t.sides[2 * c + 1].spoken):
            note_now(t, c, NOT_KAFKA, 1, 0)


@kernel
def end(t: Any, c: int, reason: int) -> None:
    """The connection is over: tell its row, and give it back."""
    run, conn = t.run[0], t.conns[c]
    if conn.step != CLOSED_:
        if conn.step == OPEN:
            if conn.rst or t.sides[2 * c].rst_at >= 0 or t.sides[2 * c + 1].rst_at >= 0:
                reason = RESET_REASON
            elif conn.fin:
                reason = CLOSED_REASON
        close(t, c, reason)
    if run.ends + 1 > len(t.ends):
        lacks(t, WANT_ENDS, 1)
    emit_end(t, c)
    remove(t, c)


_ENDS = SPEC_OF["ends"].names
_copy_conn = made(
    "copy_conn", "row, conn", [f"row.{name} = conn.{name}" for name in _ENDS if name in CONNECTIONS.names]
)
_copy_sides = made(
    "copy_sides",
    "row, client, broker",
    [f"row.{who}_{name} = {who}.{name}" for who in ("client", "broker") for name in COUNTED_OF_ENDS],
)


@kernel
def emit_end(t: Any, c: int) -> None:
    """Add the row of a connection."""
    run, conn = t.run[0], t.conns[c]
    row = t.ends[run.ends]
    run.ends += 1
    client = max(conn.client, 0)
    s, o = t.sides[2 * c + client], t.sides[2 * c + 1 - client]
    _copy_conn(row, conn)
    _copy_sides(row, s, o)
    row.order, row.conn, row.rank = run.order, c, run.rank
    row.known = 1 if conn.state == KAFKA or conn.state == TLS or conn.ports else 0
    row.alert_side = 0 if conn.alert_side == client else 1
    row.resynchronised = s.resynchronised + o.resynchronised
    row.client_last_record, row.broker_last_record = s.last_record, o.last_record
    row.skipped = s.skipped + o.skipped if conn.state == KAFKA else 0
    row.frames = s.frames + o.frames
    if conn.left == KNOWN:
        close_left(t, c, True)


# What time and limits end: silent connections, reset ones, holes and requests that waited too long.


@kernel
def sweep(t: Any, now: int) -> None:
    """End the connections that were silent for too long, and close those that were reset: what they hold is
    given up at once. Only those that are due are looked at, and those that stand among them: a connection
    that was reset comes into its list later than it was last heard of."""
    run = t.run[0]
    close_reset(t, now)
    for which in range(2):
        c = t.lists[TALKING if which == 0 else ENDED].first
        while c >= 0:
            left = patience(t, c) - (now - t.conns[c].last_time)
            following = t.conns[c].silent_after
            if left < 0:
                run.steps += 1
                run.rank = rank_of(t, c)
                end(t, c, CLOSED_REASON)
            elif left > t.limits[0].reorder_time + UNSORTED:
                break
            c = following
    run.rank = OWN


@kernel
def rank_of(t: Any, c: int) -> int:
    """Where a connection stands among those that are looked at when silent ones are ended."""
    which = t.conns[c].list
    turn = 0 if which == RESET else 1 if which == TALKING else 2
    return (turn << 57) + t.conns[c].listed


@kernel
def close_reset(t: Any, now: int) -> None:
    """Close the connections that were reset."""
    c = t.lists[RESET].first
    while c >= 0:
        t.run[0].steps += 1
        following = t.conns[c].silent_after
        if t.conns[c].step != OPEN or is_reset(t, c, now):
            t.run[0].rank = rank_of(t, c)
            close(t, c, RESET_REASON)
        elif now <= t.conns[c].last_time + t.limits[0].reorder_time:
            break
        c = following


@kernel
def make_room(t: Any) -> None:
    """More connections than are followed at once: end a tenth, those that were silent longest, closed ones
    first."""
    run = t.run[0]
    if run.crowd == 0:
        run.crowd, run.limited = max(run.followed // 10, 1), 1
    while run.crowd > 0 and run.followed > 0:
        c = t.lists[ENDED].first
        if c < 0:
            c = t.lists[RESET].first if t.lists[RESET].first >= 0 else t.lists[TALKING].first
        if t.conns[c].step == OPEN:
            room_for_notes(t, 1)
            note_now(t, c, CONNECTION_LIMIT, run.clock - t.conns[c].last_time, 0)
        end(t, c, LIMIT_REASON)
        run.crowd -= 1
    run.crowd = 0


@kernel
def finish(t: Any) -> None:
    """The input is over: end all that is open, oldest connection first. Each has a place of its own behind
    the last segment, the same whatever other connections are followed in this run."""
    run = t.run[0]
    while run.followed > 0:
        oldest = run.oldest
        run.steps += 1
        run.order = run.finished + t.conns[oldest].number
        expired = run.clock - t.conns[oldest].last_time > patience(t, oldest)
        end(t, oldest, CLOSED_REASON if expired else CAPTURE_REASON)


@kernel
def tick(t: Any, now: int) -> None:
    """No segment before `now` is still to come: do what waited for the time."""
    run = t.run[0]
    if now > run.clock:
        run.clock = now
    c = run.oldest
    while c >= 0:
        following = t.conns[c].newer
        settle_in_time(t, c, now)
        c = following
    sweep(t, now)


@kernel
def settle_in_time(t: Any, c: int, now: int) -> None:
    """What the time alone settles of one connection: an RST, holes, responses and requests that wait."""
    conn = t.conns[c]
    if conn.step != OPEN and conn.step != CLOSED_:
        close(t, c, conn.ending)
        return
    if is_reset(t, c, now):
        close(t, c, RESET_REASON)
        return
    if conn.step != OPEN or is_left_alone(conn):
        return
    replay(t, c)
    for k in range(2):
        if t.sides[2 * c + k].wait_first >= 0:
            set_free(t, c, k, now, False)
    if conn.early:
        expire_early(t, c, now)
    if conn.state == TLS:
        settle_exchange(t, c, now)
    elif t.limits[0].request_timeout >= 0:
        time_out(t, c, now)


@kernel
def time_out(t: Any, c: int, now: int) -> None:
    """Report requests that have waited for too long: for longer than they let the broker wait, and more."""
    conn = t.conns[c]
    row = conn.first_request
    while row >= 0:
        request = t.requests[row]
        following = request.after
        allowed = t.limits[0].request_timeout + max(request.max_wait, 0) * 1_000_000
        if request.layout >= 0:
            allowed += t.layouts[request.layout].held
        # The end of a request that is not whole was not captured, so neither was when it came.
        if now - max(request.first_time, request.last_time) > allowed:
            give_up(t, c, row, GAP_REASON if lacks_responses(t, c) else TIMEOUT_REASON)
        row = following
