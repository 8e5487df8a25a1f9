"""What time and limits end: silent connections, reset ones, holes and requests that waited too long."""

from __future__ import annotations

from typing import Any

from kwsniff.kernel.closing import close, end
from kwsniff.kernel.connections import ENDED, RESET, TALKING, UNSORTED, is_reset, patience
from kwsniff.kernel.early import expire_early
from kwsniff.kernel.leaving import lacks_responses
from kwsniff.kernel.notes import note_now, room_for_notes
from kwsniff.kernel.numbers import CONNECTION_LIMIT, FULL, OK
from kwsniff.kernel.outcomes import give_up
from kwsniff.kernel.states import CLOSED_, OPEN
from kwsniff.kernel.streams import replay, set_free
from kwsniff.kernel.tables import (
    CAPTURE_REASON,
    CLOSED_REASON,
    GAP_REASON,
    LIMIT_REASON,
    OTHER,
    OWN,
    RESET_REASON,
    TIMEOUT_REASON,
    TLS,
)
from kwsniff.native.mode import kernel


@kernel
def sweep(t: Any, now: int) -> int:
    """End the connections that were silent for too long, and close those that were reset: what they hold is
    given up at once. Only those that are due are looked at, and those that stand among them: a connection
    that was reset comes into its list later than it was last heard of."""
    run = t.run[0]
    code = close_reset(t, now)
    for which in range(2):
        c = t.lists[TALKING if which == 0 else ENDED].first
        while code == OK and c >= 0:
            left = patience(t, c) - (now - t.conns[c].last_time)
            following = t.conns[c].silent_after
            if left < 0:
                run.steps += 1
                run.rank = rank_of(t, c)
                code = end(t, c, CLOSED_REASON)
            elif left > t.limits[0].reorder_time + UNSORTED:
                break
            c = following
    if code == OK:
        run.rank = OWN
    return code


@kernel
def rank_of(t: Any, c: int) -> int:
    """Where a connection stands among those that are looked at when silent ones are ended."""
    which = t.conns[c].list
    turn = 0 if which == RESET else 1 if which == TALKING else 2
    return (turn << 57) + t.conns[c].listed


@kernel
def close_reset(t: Any, now: int) -> int:
    """Close the connections that were reset."""
    c = t.lists[RESET].first
    while c >= 0:
        t.run[0].steps += 1
        following = t.conns[c].silent_after
        if t.conns[c].step != OPEN or is_reset(t, c, now):
            t.run[0].rank = rank_of(t, c)
            code = close(t, c, RESET_REASON)
            if code != OK:
                return code
        elif now <= t.conns[c].last_time + t.limits[0].reorder_time:
            break
        c = following
    return OK


@kernel
def make_room(t: Any) -> int:
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
            if room_for_notes(t, 1) != OK:
                return FULL
            note_now(t, c, CONNECTION_LIMIT, run.clock - t.conns[c].last_time, 0)
        code = end(t, c, LIMIT_REASON)
        if code != OK:
            return code
        run.crowd -= 1
    run.crowd = 0
    return OK


@kernel
def end_all(t: Any) -> int:
    """The input is over: end all that is open, oldest connection first. Each has a place of its own behind
    the last segment, the same whatever other connections are followed in this run."""
    run = t.run[0]
    while run.followed > 0:
        oldest = run.oldest
        run.steps += 1
        run.order = run.finished + t.conns[oldest].number
        expired = run.clock - t.conns[oldest].last_time > patience(t, oldest)
        code = end(t, oldest, CLOSED_REASON if expired else CAPTURE_REASON)
        if code != OK:
            return code
    return OK


@kernel
def finish(t: Any) -> int:
    """The input is over."""
    return end_all(t)


@kernel
def tick(t: Any, now: int) -> int:
    """No segment before `now` is still to come: do what waited for the time."""
    run = t.run[0]
    if now > run.clock:
        run.clock = now
    c = run.oldest
    while c >= 0:
        following = t.conns[c].newer
        code = settle_in_time(t, c, now)
        if code != OK:
            return code
        c = following
    return sweep(t, now)


@kernel
def settle_in_time(t: Any, c: int, now: int) -> int:
    """What the time alone settles of one connection: an RST, holes, responses and requests that wait."""
    conn = t.conns[c]
    if conn.step != OPEN and conn.step != CLOSED_:
        return close(t, c, conn.ending)
    if is_reset(t, c, now):
        return close(t, c, RESET_REASON)
    if conn.step != OPEN or conn.state == OTHER or conn.state == TLS:
        return OK
    code = replay(t, c)
    if code != OK:
        return code
    for k in range(2):
        if t.sides[2 * c + k].wait_first >= 0:
            code = set_free(t, c, k, now, False)
            if code != OK:
                return code
    code = expire_early(t, c, now) if conn.early else OK
    if code == OK and t.limits[0].request_timeout >= 0:
        code = time_out(t, c, now)
    return code


@kernel
def time_out(t: Any, c: int, now: int) -> int:
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
            code = give_up(t, c, row, GAP_REASON if lacks_responses(t, c) else TIMEOUT_REASON)
            if code != OK:
                return code
        row = following
    return OK
