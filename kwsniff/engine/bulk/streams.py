"""From segments to paired frames, compiled: the plain stretch of many connections in one pass.

Theory of operation. Each connection's segments are taken one after the other. Payloads are joined in one
buffer, a region for each side; what comes out of order waits until the hole is filled, or given up by the
rules of `kwsniff.net.reassembly`. Frames are cut as soon as they are complete, requests wait in a queue, and a
response takes its request from there; after a gap, framing must be found at once and the requests that the gap
left unanswered are known as soon as a later one is answered.

At the first segment that asks for anything else (control flags, bytes cut off, an unknown API version, a
retransmission, a gap inside a frame, a correlation id that is not expected, …) the connection is put back to
what it was before that segment, and the rest is left to the exact path.

Invariant: what was taken is what `Connection._step` would have done, segment by segment.
"""

from __future__ import annotations

from typing import Any

from numba import njit
from numpy.typing import NDArray

from kwsniff.engine.bulk import columns as c
from kwsniff.engine.bulk.bodies import Codes
from kwsniff.engine.bulk.numbers import Bytes, int16, int32, is_ascii, uvarint
from kwsniff.engine.bulk.texts import Ints
from kwsniff.wire.plausible import MAX_CLIENT_ID, REQUEST_HEADER, RESPONSE_HEADER

import numpy as np  # isort: skip

SECOND = 1_000_000_000
MASK = 0xFFFFFFFF
NAMES_CLIENT, FLEXIBLE_REQUEST, FLEXIBLE_RESPONSE, PRODUCES = 1, 2, 4, 8
"""Flags of an API version, in column 2 of its entry for requests."""
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

Flags = NDArray[np.bool_]


def scratch() -> tuple[Ints, ...]:
    """What `follow` works with: compiled code that allocates counts references, which would take longer than
    all else that it does."""
    sides = np.zeros((2, c.SIDE_COLUMNS), np.int64)
    holes = np.zeros((2, c.MAX_WAITING, 3), np.int64)
    early, was_early = np.zeros(MAX_EARLY + 1, np.int64), np.zeros(MAX_EARLY + 1, np.int64)
    return np.zeros(STATE, np.int64), np.zeros(STATE, np.int64), sides, holes, early, was_early


@njit(cache=True, nogil=True, _nrt=False)
def regions(side: Flags, captured: Ints, links: Ints, sides: Ints) -> tuple[int, int]:
    """Give each connection its regions of the buffer and of the chunk table; returns the sizes of both."""
    bytes_at = chunks_at = 0
    for index in range(len(links)):
        a, b = sides[index, 0], sides[index, 1]
        size_a, size_b = a[c.HELD_BYTES], b[c.HELD_BYTES]
        chunks_a, chunks_b = a[c.HELD_CHUNKS], b[c.HELD_CHUNKS]
        for row in range(links[index, c.BEGIN], links[index, c.END]):
            if captured[row] > 0:
                if side[row]:
                    size_b += captured[row]
                    chunks_b += 1
                else:
                    size_a += captured[row]
                    chunks_a += 1
        a[c.REGION], b[c.REGION] = bytes_at, bytes_at + size_a
        bytes_at += size_a + size_b
        a[c.TABLE], b[c.TABLE] = chunks_at, chunks_at + chunks_a
        chunks_at += chunks_a + chunks_b
    return bytes_at, chunks_at


# Headers


@njit(cache=True, _nrt=False)
def acks_none(buf: Bytes, pos: int, end: int, version: int) -> int:
    """1 if a Produce body says acks=0, 0 if not, -1 if that is not certain."""
    if version >= 9:
        size, pos = uvarint(buf, pos, end)
        if pos < 0:
            return -1
        pos += max(size - 1, 0)
    elif version >= 3:
        if end - pos < 2:
            return -1
        pos += 2 + max(int16(buf, pos), 0)
    if end - pos < 2:
        return -1
    return 1 if int16(buf, pos) == 0 else 0


@njit(cache=True, _nrt=False)
def read_request(frame: Ints, buf: Bytes, programs: Codes) -> bool:
    """Read a request's header into its frame; False if anything is unusual."""
    pos, end = frame[c.START] + 4, frame[c.STOP]
    key, version = int16(buf, pos), int16(buf, pos + 2)
    if not (0 <= key < programs.shape[0] and 0 <= version < programs.shape[1]):
        return False
    if programs[key, version, 0, 0] < 0:
        return False
    traits = programs[key, version, 0, 2]
    frame[c.KEY], frame[c.VERSION], frame[c.CORRELATION_ID] = key, version, int32(buf, pos + 4)
    pos += 8
    frame[c.CLIENT_ID], frame[c.CLIENT_ID_SIZE] = pos, -1
    if traits & NAMES_CLIENT:
        if end - pos < 2:
            return False
        size = int16(buf, pos)
        pos += 2
        if size >= 0:
            if size > end - pos or not is_ascii(buf, pos, pos + size):
                return False
            frame[c.CLIENT_ID], frame[c.CLIENT_ID_SIZE] = pos, size
            pos += size
    if traits & FLEXIBLE_REQUEST:
        if pos >= end or buf[pos]:
            return False
        pos += 1
    frame[c.BODY] = pos
    frame[c.PARTNER] = c.UNPAIRED
    if traits & PRODUCES:
        none = acks_none(buf, pos, end, version)
        if none < 0:
            return False
        if none:
            frame[c.PARTNER] = c.NO_REPLY
    return True


@njit(cache=True, _nrt=False)
def begins_request(buf: Bytes, pos: int, end: int, versions: Ints, max_frame: int) -> bool:
    """Whether a request surely begins here: `kwsniff.wire.plausible.is_request`, with a client id."""
    if end - pos < REQUEST_HEADER:
        return False
    size, key, version, length = int32(buf, pos), int16(buf, pos + 4), int16(buf, pos + 6), int16(buf, pos + 12)
    if not REQUEST_HEADER - 4 <= size <= max_frame or not 0 <= key < len(versions):
        return False
    if not versions[key, 0] <= version <= versions[key, 1]:
        return False
    if not 0 < length <= min(MAX_CLIENT_ID, size + 4 - REQUEST_HEADER):
        return False
    first = pos + REQUEST_HEADER
    if first + length > end:
        return False
    for at in range(first, first + length):
        if not 0x20 <= buf[at] <= 0x7E:
            return False
    return True


# Pairing


@njit(cache=True, _nrt=False)
def place_in_queue(
    queue: Ints, first: int, last: int, frames: Ints, old: Ints, correlation_id: int
) -> int:
    """Where in the queue the request with this correlation id waits; -1 if nowhere."""
    for at in range(first, last):
        entry = queue[at]
        known = frames[entry, c.CORRELATION_ID] if entry >= 0 else old[-1 - entry, 0]
        if known == correlation_id:
            return at
    return -1


@njit(cache=True, _nrt=False)
def deed(
    deeds: Ints, state: Ints, kind: int, link: int, place: int, order: int, packet: int, time: int, what: int,
    side: int,
) -> None:  # fmt: skip
    """Add a row to the deeds."""
    row = deeds[state[DEEDS]]
    state[DEEDS] += 1
    row[c.DEED], row[c.DEED_LINK], row[c.DEED_PLACE], row[c.DEED_ORDER] = kind, link, place, order
    row[c.DEED_PACKET], row[c.DEED_TIME], row[c.DEED_WHAT], row[c.DEED_SIDE] = packet, time, what, side


@njit(cache=True, _nrt=False)
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


@njit(cache=True, _nrt=False)
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


@njit(cache=True, _nrt=False)
def find_body(frame: Ints, asked: Ints, buf: Bytes, programs: Codes) -> bool:
    """Where the body of a response begins; False if its header has tagged fields."""
    frame[c.BODY] = frame[c.START] + RESPONSE_HEADER
    if programs[asked[c.KEY], asked[c.VERSION], 0, 2] & FLEXIBLE_RESPONSE:
        if frame[c.STOP] <= frame[c.BODY] or buf[frame[c.BODY]]:
            return False
        frame[c.BODY] += 1
    return True


@njit(cache=True, _nrt=False)
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
            deed(
                deeds, state, c.REQUEST_LOST, index, 2 * state[FRAMES] - 1, frame[c.ORDER], 0, 0, lost, 0
            )
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


# Frames


@njit(cache=True, _nrt=False)
def find_frame(
    k: int, link: Ints, side: Ints, buf: Bytes, chunks: Ints, frames: Ints, queue: Ints, old: Ints,
    versions: Ints, state: Ints, limits: Ints,
) -> bool:  # fmt: skip
    """Framing was lost: whether a frame surely begins right where the bytes go on."""
    pos, end = side[c.READ], side[c.WRITE]
    if k == link[c.CLIENT]:
        if not begins_request(buf, pos, end, versions, limits[MAX_FRAME]):
            return False
    else:
        if end - pos < RESPONSE_HEADER or not 4 <= int32(buf, pos) <= limits[MAX_FRAME]:
            return False
        if place_in_queue(queue, state[FIRST], state[LAST], frames, old, int32(buf, pos + 4)) < 0:
            return False
        state[GAPPED] = 1
    while side[c.CHUNK] + 1 < side[c.CHUNK_END] and chunks[side[c.CHUNK] + 1, c.CHUNK_START] <= pos:
        side[c.CHUNK] += 1
    side[c.NEWS], side[c.NEWS_PACKET] = side[c.UNTOLD], chunks[side[c.CHUNK], c.CHUNK_PACKET]
    side[c.UNTOLD] = 0
    side[c.SYNCHRONISED] = 1
    side[c.RESYNCHRONISED] += 1
    return True


@njit(cache=True, _nrt=False)
def cut(
    index: int, k: int, held: bool, link: Ints, side: Ints, buf: Bytes, chunks: Ints, frames: Ints,
    queue: Ints, old: Ints, early: Ints, old_early: Ints, deeds: Ints, programs: Codes, versions: Ints,
    state: Ints, limits: Ints,
) -> bool:  # fmt: skip
    """Cut the frames that are complete and take them; False if one is not plain. `held` says that requests
    wait behind a hole."""
    is_client = k == link[c.CLIENT]
    if not side[c.SYNCHRONISED] and not find_frame(
        k, link, side, buf, chunks, frames, queue, old, versions, state, limits
    ):
        return False
    while side[c.WRITE] - side[c.READ] >= 4:
        pos = side[c.READ]
        length = int32(buf, pos)
        end = pos + 4 + length
        if length < (8 if is_client else 4) or length > limits[MAX_FRAME]:
            return False
        if end > side[c.WRITE]:
            return length + 4 <= limits[MAX_KEPT]
        chunk = side[c.CHUNK]
        while chunk + 1 < side[c.CHUNK_END] and chunks[chunk + 1, c.CHUNK_START] <= pos:
            chunk += 1
        complete = last = chunk
        while last + 1 < side[c.CHUNK_END] and chunks[last + 1, c.CHUNK_START] < end:
            last += 1
            if chunks[last, c.CHUNK_ORDER] > chunks[complete, c.CHUNK_ORDER]:
                complete = last
        frame = frames[state[FRAMES]]
        frame[c.CONNECTION], frame[c.SIDE], frame[c.START], frame[c.STOP] = index, k, pos, end
        side[c.LAST_ORDER] = max(side[c.LAST_ORDER], chunks[complete, c.CHUNK_ORDER])
        frame[c.ORDER] = side[c.LAST_ORDER]
        frame[c.FIRST_TIME] = chunks[chunk, c.CHUNK_TIME]
        frame[c.LAST_TIME] = chunks[complete, c.CHUNK_TIME]
        frame[c.PACKET] = chunks[complete, c.CHUNK_PACKET]
        if state[EARLY] and not held:
            expire_early(
                index, frames, early, old_early, deeds, state, frame[c.LAST_TIME], limits[ORPHAN_TIME]
            )
        if is_client:
            plain = take_request(
                index, link, frame, buf, programs, frames, queue, old, early, old_early, deeds, state, limits
            )
        else:
            plain = take_response(
                index, link, frame, buf, programs, frames, queue, old, early, deeds, state
            )
        if not plain:
            return False
        state[FRAMES] += 1
        side[c.CUT] += 1
        side[c.READ] = end
        side[c.CHUNK] = last
    return True


# Streams


@njit(cache=True, _nrt=False)
def append(
    row: int, side: Ints, captured: Ints, time: Ints, packet: Ints, order: Ints, buffer: Ints, start: Ints,
    inline: Bytes, block: Bytes, buf: Bytes, chunks: Ints,
) -> None:  # fmt: skip
    """Join the payload of a segment to its stream."""
    at, size, begin = side[c.WRITE], captured[row], start[row]
    if buffer[row] == 0:
        copy(buf, at, inline, begin, size)
    else:
        copy(buf, at, block, begin, size)
    side[c.WRITE] = at + size
    entry = chunks[side[c.CHUNK_END]]
    side[c.CHUNK_END] += 1
    entry[c.CHUNK_START], entry[c.CHUNK_PACKET] = at, packet[row]
    entry[c.CHUNK_TIME], entry[c.CHUNK_ORDER] = time[row], order[row]
    side[c.OFFSET] += size
    side[c.WANTED] = (side[c.WANTED] + size) & MASK


@njit(cache=True, _nrt=False)
def copy(to: NDArray[Any], at: int, of: NDArray[Any], begin: int, size: int) -> None:
    """As a slice would, which numba makes slower because the two could overlap."""
    for index in range(size):
        to[at + index] = of[begin + index]


@njit(cache=True, _nrt=False)
def keep(
    state: Ints, both: Ints, hole: Ints, early: Ints, of_state: Ints, of_both: Ints, of_hole: Ints, of_early: Ints
) -> None:
    """Copy all that a segment can change of a connection."""
    copy(state, 0, of_state, 0, STATE)
    for k in range(2):
        copy(both[k], 0, of_both[k], 0, c.SIDE_COLUMNS)
        for at in range(of_both[k, c.HOLES]):
            copy(hole[k, at], 0, of_hole[k, at], 0, 3)
    if of_state[EARLY]:
        copy(early, 0, of_early, 0, of_state[EARLY])


@njit(cache=True, _nrt=False)
def acknowledge(side: Ints, ack: int) -> None:
    """Note an acknowledgement number that the other end sent."""
    away = ((ack - side[c.WANTED] + 0x80000000) & MASK) - 0x80000000
    side[c.ACKED] = max(side[c.ACKED], side[c.OFFSET] + away)


@njit(cache=True, _nrt=False)
def hopeless(side: Ints, waiting: Ints, seen: int, now: int, limits: Ints) -> bool:
    """Whether the capture can no longer be expected to fill the first hole."""
    waited = now - side[c.HOLE_TIME]
    if side[c.ACKED] >= waiting[0, c.WAIT_FROM]:
        return seen - side[c.HOLE_SEGMENTS] > limits[REORDER_SEGMENTS] or waited > limits[REORDER_TIME]
    return waited > limits[HOLE_TIME]


@njit(cache=True, _nrt=False)
def insert(side: Ints, waiting: Ints, begin: int, end: int, row: int) -> bool:
    """Let a segment wait behind a hole; False if it overlaps another or there is no room."""
    count = side[c.HOLES]
    if count >= c.MAX_WAITING:
        return False
    at = count
    while at > 0 and waiting[at - 1, c.WAIT_FROM] > begin:
        at -= 1
    if at > 0 and waiting[at - 1, c.WAIT_TO] > begin:
        return False
    if at < count and waiting[at, c.WAIT_FROM] < end:
        return False
    for other in range(count, at, -1):
        copy(waiting[other], 0, waiting[other - 1], 0, 3)
    waiting[at, c.WAIT_FROM], waiting[at, c.WAIT_TO], waiting[at, c.WAIT_ROW] = begin, end, row
    side[c.HOLES] += 1
    side[c.HOLE_BYTES] += end - begin
    return True


@njit(cache=True, _nrt=False)
def lose_framing(k: int, link: Ints, side: Ints, state: Ints) -> bool:
    """A hole was given up; False if it lies inside a frame, or if nothing is known of the framing yet."""
    if side[c.SYNCHRONISED] and side[c.WRITE] - side[c.READ] >= 4:
        return False
    if side[c.CUT_BEFORE] + side[c.CUT] == 0 or side[c.NEWS] >= 0:
        return False
    if k != link[c.CLIENT]:
        state[GAPPED] = 1
    left = side[c.WRITE] - side[c.READ]
    side[c.SKIPPED] += left
    side[c.UNTOLD] += left
    side[c.READ] = side[c.WRITE]
    side[c.SYNCHRONISED] = 0
    return True


@njit(cache=True, nogil=True, _nrt=False)
def follow(
    seg_side: Flags, seq: Ints, ack: Ints, acks: Flags, special: Flags, captured: Ints, time: Ints,
    packet: Ints, order: Ints, buffer: Ints, start: Ints, inline: Bytes, block: Bytes, links: Ints,
    sides: Ints, held_bytes: Bytes, held_chunks: Ints, all_old: Ints, all_early: Ints, programs: Codes,
    versions: Ints, limits: Ints, buf: Bytes, chunks: Ints, frames: Ints, queue: Ints, deeds: Ints,
    holes: Ints, state: Ints, was: Ints, was_sides: Ints, was_holes: Ints, early: Ints, was_early: Ints,
) -> tuple[int, int]:  # fmt: skip
    """Follow every connection of `links` as far as it is plain; returns how many frames and deeds there are."""
    state[FRAMES] = state[DEEDS] = 0
    for index in range(len(links)):
        link, both, hole = links[index], sides[index], holes[index]
        client, clock = link[c.CLIENT], link[c.CLOCK]
        old = all_old[link[c.WAITING_FIRST] : link[c.WAITING_FIRST] + link[c.WAITING]]
        old_early = all_early[link[c.EARLY_FIRST] : link[c.EARLY_FIRST] + link[c.EARLY]]
        for k in range(2):
            side = both[k]
            region, first, size = side[c.REGION], side[c.HELD], side[c.HELD_BYTES]
            side[c.READ], side[c.WRITE] = region, region + size
            copy(buf, region, held_bytes, first, size)
            side[c.CHUNK] = side[c.CHUNK_END] = side[c.TABLE]
            for at in range(side[c.HELD_CHUNK], side[c.HELD_CHUNK] + side[c.HELD_CHUNKS]):
                copy(chunks[side[c.CHUNK_END]], 0, held_chunks[at], 0, c.CHUNK_COLUMNS)
                chunks[side[c.CHUNK_END], c.CHUNK_START] += region
                side[c.CHUNK_END] += 1
            side[c.SYNCHRONISED] = side[c.WARM]
            side[c.HISTORY_FROM] = side[c.NEWS] = -1
        state[FIRST], state[LAST], state[GAPPED] = 0, link[c.WAITING], link[c.GAP]
        state[ANSWERED], state[EARLY], state[SEEN] = 0, link[c.EARLY], link[c.SEGMENTS]
        for at in range(link[c.WAITING]):
            queue[at] = -1 - at
        for at in range(link[c.EARLY]):
            early[at] = -1 - at
        row = link[c.BEGIN]
        while row < link[c.END]:
            moment, size = time[row], captured[row]
            k = 1 if seg_side[row] else 0
            side, other = both[k], both[1 - k]
            if special[row] or moment < clock - SECOND or moment > clock + limits[PATIENCE]:
                break
            if size == 0 and side[c.HOLES] == 0 and other[c.HOLES] == 0:
                # Nothing can come of it, so nothing has to be kept to go back to.
                clock = max(clock, moment)
                state[SEEN] += 1
                side[c.PACKETS] += 1
                if acks[row] and other[c.WANTED] >= 0:
                    acknowledge(other, ack[row])
                row += 1
                continue
            # Room for what this segment and the few that it may set free can bring.
            if (
                state[FRAMES] + size // 8 + side[c.HOLE_BYTES] // 8 + other[c.HOLE_BYTES] // 8 + 4 > len(frames)
                or state[LAST] + size // 8 + side[c.HOLE_BYTES] // 8 + other[c.HOLE_BYTES] // 8 + 4 > len(queue)
                or state[DEEDS] + 2 * (state[LAST] - state[FIRST]) + 4 * MAX_EARLY > len(deeds)
            ):
                break
            keep(was, was_sides, was_holes, was_early, state, both, hole, early)
            unasked = link[c.REPLIES_UNASKED]
            clock_was, clock = clock, max(clock, moment)
            state[SEEN] += 1
            side[c.PACKETS] += 1
            side[c.BYTES] += size
            if acks[row] and other[c.WANTED] >= 0:
                acknowledge(other, ack[row])
            held = both[client, c.HOLES] > 0
            plain = True
            # Holes that are given up by now, the other side's first.
            for turn in range(2):
                j = 1 - k if turn == 0 else k
                of = both[j]
                while plain and of[c.HOLES] > 0 and hopeless(of, hole[j], state[SEEN], moment, limits):
                    lacking = hole[j, 0, c.WAIT_FROM] - of[c.OFFSET]
                    deed(
                        deeds, state, c.GAP_FOUND, index, 2 * state[FRAMES] - 1, order[row], packet[row], clock,
                        lacking, j,
                    )  # fmt: skip
                    if not lose_framing(j, link, of, state):
                        plain = False
                        break
                    of[c.MISSING] += lacking
                    of[c.OFFSET] += lacking
                    of[c.WANTED] = (of[c.WANTED] + lacking) & MASK
                    of[c.HISTORY_FROM] = of[c.WRITE]
                    plain = fill(
                        index, j, held, link, of, hole[j], captured, time, packet, order, buffer, start, inline,
                        block, buf, chunks, frames, queue, old, early, old_early, deeds, programs, versions,
                        state, limits, order[row], clock,
                    )  # fmt: skip
                    of[c.HOLE_SEGMENTS], of[c.HOLE_TIME] = state[SEEN], moment
                if not plain:
                    break
            if plain and size > 0:
                away = ((seq[row] - side[c.WANTED] + 0x80000000) & MASK) - 0x80000000
                if not side[c.WARM] or side[c.WANTED] < 0 or away < 0:
                    plain = False
                elif away == 0 and side[c.HOLES] == 0:
                    append(
                        row, side, captured, time, packet, order, buffer, start, inline, block, buf, chunks
                    )
                    plain = cut(
                        index, k, held, link, side, buf, chunks, frames, queue, old, early, old_early, deeds,
                        programs, versions, state, limits,
                    )  # fmt: skip
                    if side[c.NEWS] >= 0:
                        tell(index, k, side, deeds, state, order[row], clock)
                elif side[c.HOLE_BYTES] + size > limits[MAX_REORDER]:
                    plain = False
                else:
                    if side[c.HOLES] == 0:
                        side[c.HOLE_SEGMENTS], side[c.HOLE_TIME] = state[SEEN], moment
                    begin = side[c.OFFSET] + away
                    plain = insert(side, hole[k], begin, begin + size, row)
                    if plain and away == 0:
                        plain = fill(
                            index, k, held, link, side, hole[k], captured, time, packet, order, buffer, start,
                            inline, block, buf, chunks, frames, queue, old, early, old_early, deeds, programs,
                            versions, state, limits, order[row], clock,
                        )  # fmt: skip
                        if side[c.HOLES]:
                            side[c.HOLE_SEGMENTS], side[c.HOLE_TIME] = state[SEEN], moment
            if not plain:
                undo(frames, deeds, state, was)
                keep(state, both, hole, early, was, was_sides, was_holes, was_early)
                link[c.REPLIES_UNASKED] = unasked
                clock = clock_was
                break
            row += 1
        link[c.TAKEN], link[c.CLOCK], link[c.GAP], link[c.ANSWERED] = row, clock, state[GAPPED], state[ANSWERED]
        link[c.SEGMENTS] = state[SEEN]
        for k in range(2):
            side = both[k]
            while side[c.CHUNK] + 1 < side[c.CHUNK_END] and chunks[side[c.CHUNK] + 1, c.CHUNK_START] <= side[c.READ]:
                side[c.CHUNK] += 1
    return state[FRAMES], state[DEEDS]


@njit(cache=True, _nrt=False)
def tell(index: int, k: int, side: Ints, deeds: Ints, state: Ints, order: int, clock: int) -> None:
    """Report that framing was found again, once the frames found are taken."""
    deed(
        deeds, state, c.RESYNCHRONISATION, index, 2 * state[FRAMES] - 1, order, side[c.NEWS_PACKET], clock,
        side[c.NEWS], k,
    )  # fmt: skip
    side[c.NEWS] = -1


@njit(cache=True, _nrt=False)
def fill(
    index: int, k: int, held: bool, link: Ints, side: Ints, waiting: Ints, captured: Ints, time: Ints,
    packet: Ints, order: Ints, buffer: Ints, start: Ints, inline: Bytes, block: Bytes, buf: Bytes,
    chunks: Ints, frames: Ints, queue: Ints, old: Ints, early: Ints, old_early: Ints, deeds: Ints,
    programs: Codes, versions: Ints, state: Ints, limits: Ints, now_order: int, clock: int,
) -> bool:  # fmt: skip
    """Deliver the waiting segments that follow what was delivered; False if a frame is not plain."""
    taken = 0
    while taken < side[c.HOLES] and waiting[taken, c.WAIT_FROM] == side[c.OFFSET]:
        append(
            waiting[taken, c.WAIT_ROW], side, captured, time, packet, order, buffer, start, inline, block, buf,
            chunks,
        )  # fmt: skip
        side[c.HOLE_BYTES] -= waiting[taken, c.WAIT_TO] - waiting[taken, c.WAIT_FROM]
        taken += 1
    for at in range(taken, side[c.HOLES]):
        copy(waiting[at - taken], 0, waiting[at], 0, 3)
    side[c.HOLES] -= taken
    plain = cut(
        index, k, held, link, side, buf, chunks, frames, queue, old, early, old_early, deeds, programs, versions,
        state, limits,
    )  # fmt: skip
    if side[c.NEWS] >= 0:
        tell(index, k, side, deeds, state, now_order, clock)
    return plain


@njit(cache=True, _nrt=False)
def undo(frames: Ints, deeds: Ints, state: Ints, was: Ints) -> None:
    """Take back what frames and deeds since then did to earlier frames."""
    for at in range(was[FRAMES], min(state[FRAMES] + 1, len(frames))):
        partner = frames[at, c.PARTNER]
        if 0 <= partner < was[FRAMES] and frames[partner, c.PARTNER] == at:
            frames[partner, c.PARTNER] = c.UNPAIRED
    for at in range(was[DEEDS], state[DEEDS]):
        kind, what = deeds[at, c.DEED], deeds[at, c.DEED_WHAT]
        if kind >= c.REQUEST_LOST and 0 <= what < was[FRAMES]:
            frames[what, c.PARTNER] = c.UNPAIRED
