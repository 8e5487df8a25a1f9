"""Requests that wait and the responses that take them, compiled: `kwsniff.wire.conversation` for plain
ones."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kwsniff.engine.bulk import columns as c
from kwsniff.engine.bulk.bodies import Codes
from kwsniff.engine.bulk.headers import find_body, read_request
from kwsniff.engine.bulk.kernel import kernel
from kwsniff.engine.bulk.numbers import Bytes, int32

Ints = NDArray[np.int64]

MAX_EARLY = 64
"""Responses captured before their requests that a round follows."""

(FRAMES, FIRST, LAST, GAPPED, ANSWERED, EARLY, DEEDS, SEEN, STATE) = range(9)
"""State of the connection in hand: frames in all, the queue, whether responses were lost, old requests
answered, early responses, deeds, segments."""
(
    PATIENCE, MAX_FRAME, MAX_KEPT, MAX_QUEUE, REORDER_SEGMENTS, REORDER_TIME, HOLE_TIME, MAX_REORDER,
    ORPHAN_TIME, LIMITS,
) = range(10)  # fmt: skip
"""Limits of the run."""


@kernel
def place_in_queue(queue: Ints, first: int, last: int, frames: Ints, old: Ints, correlation_id: int) -> int:
    """Where in the queue the request with this correlation id waits; -1 if nowhere."""
    for at in range(first, last):
        entry = queue[at]
        known = frames[entry, c.CORRELATION_ID] if entry >= 0 else old[-1 - entry, 0]
        if known == correlation_id:
            return at
    return -1


@kernel
def deed(
    deeds: Ints, state: Ints, kind: int, link: int, place: int, order: int, packet: int, time: int, what: int,
    side: int,
) -> None:  # fmt: skip
    """Add a row to the deeds."""
    row = deeds[state[DEEDS]]
    state[DEEDS] += 1
    row[c.DEED], row[c.DEED_LINK], row[c.DEED_PLACE], row[c.DEED_ORDER] = kind, link, place, order
    row[c.DEED_PACKET], row[c.DEED_TIME], row[c.DEED_WHAT], row[c.DEED_SIDE] = packet, time, what, side


@kernel
def expire_early(
    index: int, frames: Ints, early: Ints, old_early: Ints, deeds: Ints, state: Ints, now: int, wait: int
) -> None:
    """Give up responses that waited too long for their requests; `now` is the time of the frame at hand."""
    gone = 0
    while gone < state[EARLY]:
        entry = early[gone]
        since = frames[entry, c.LAST_TIME] if entry >= 0 else old_early[-1 - entry, 1]
        if since >= now - wait:
            break
        if entry >= 0:
            frames[entry, c.PARTNER] = c.ORPHAN
        deed(deeds, state, c.RESPONSE_ORPHANED, index, 2 * state[FRAMES] - 1, 0, 0, 0, entry, 0)
        gone += 1
    if gone:
        for at in range(gone, state[EARLY]):
            early[at - gone] = early[at]
        state[EARLY] -= gone


@kernel
def take_request(
    index: int, link: Ints, frame: Ints, buf: Bytes, programs: Codes, frames: Ints, queue: Ints, old: Ints,
    early: Ints, old_early: Ints, deeds: Ints, state: Ints, limits: Ints,
) -> bool:  # fmt: skip
    """A request has come; False if that is not plain."""
    if not read_request(frame, buf, programs):
        return False
    correlation_id = frame[c.CORRELATION_ID]
    waiting = state[LAST] - state[FIRST]
    frame[c.IN_FLIGHT] = waiting
    mate = -1
    for at in range(state[EARLY]):
        entry = early[at]
        known = frames[entry, c.CORRELATION_ID] if entry >= 0 else old_early[-1 - entry, 0]
        if known == correlation_id:
            if entry < 0 or frame[c.PARTNER] == c.NO_REPLY:
                return False
            mate = at
            break
    if frame[c.PARTNER] == c.NO_REPLY:
        link[c.REPLIES_UNASKED] = 1
        return True
    if waiting >= limits[MAX_QUEUE]:
        return False
    if place_in_queue(queue, state[FIRST], state[LAST], frames, old, correlation_id) >= 0:
        return False
    if mate < 0:
        queue[state[LAST]] = state[FRAMES]
        state[LAST] += 1
        return True
    response = frames[early[mate]]
    if not find_body(response, frame, buf, programs):
        return False
    if response[c.FIRST_TIME] < frame[c.LAST_TIME]:
        deed(
            deeds, state, c.RESPONSE_FIRST, index, 2 * state[FRAMES] - 1, response[c.ORDER],
            response[c.PACKET], response[c.LAST_TIME], correlation_id, 0,
        )  # fmt: skip
    frame[c.PARTNER], response[c.PARTNER] = early[mate], state[FRAMES]
    for at in range(mate + 1, state[EARLY]):
        early[at - 1] = early[at]
    state[EARLY] -= 1
    if not waiting:
        state[GAPPED] = 0
    return True


@kernel
def take_response(
    index: int, link: Ints, frame: Ints, buf: Bytes, programs: Codes, frames: Ints, queue: Ints, old: Ints,
    early: Ints, deeds: Ints, state: Ints,
) -> bool:  # fmt: skip
    """A response has come; False if that is not plain."""
    correlation_id = int32(buf, frame[c.START] + 4)
    frame[c.KEY], frame[c.CORRELATION_ID], frame[c.PARTNER] = -1, correlation_id, c.UNPAIRED
    at = place_in_queue(queue, state[FIRST], state[LAST], frames, old, correlation_id)
    if at < 0:
        if correlation_id == 0 or link[c.REPLIES_UNASKED] or state[EARLY] >= MAX_EARLY:
            return False
        early[state[EARLY]] = state[FRAMES]
        state[EARLY] += 1
        return True
    asked = queue[at]
    if at > state[FIRST]:
        before = queue[at - 1]
        sent = frames[before, c.ORDER] if before >= 0 else old[-1 - before, 1]
        order = frames[asked, c.ORDER] if asked >= 0 else old[-1 - asked, 1]
        if not state[GAPPED] or sent >= order:
            return False
        for older in range(state[FIRST], at):
            lost = queue[older]
            if lost >= 0:
                frames[lost, c.PARTNER] = c.LOST
            deed(deeds, state, c.REQUEST_LOST, index, 2 * state[FRAMES] - 1, frame[c.ORDER], 0, 0, lost, 0)
    if asked >= 0:
        if not find_body(frame, frames[asked], buf, programs):
            return False
        frame[c.PARTNER] = asked
        frames[asked, c.PARTNER] = state[FRAMES]
    else:
        frame[c.PARTNER] = c.EARLIER + 1 + asked  # asked is -1 - i
        state[ANSWERED] += 1
    state[FIRST] = at + 1
    if state[FIRST] == state[LAST]:
        state[GAPPED] = 0
    return True
