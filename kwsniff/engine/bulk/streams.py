"""From segments to paired frames, compiled: the plain stretch of many connections in one pass.

Theory of operation. Each connection's segments are taken one after the other. Payloads are joined in one
buffer, a region for each side; what comes out of order waits until the hole is filled, or given up by the
rules of `kwsniff.net.reassembly`. Frames are cut as soon as they are complete, requests wait in a queue, and
a response takes its request from there; after a gap, framing must be found at once and the requests that the
gap left unanswered are known as soon as a later one is answered.

At the first segment that asks for anything else (control flags, bytes cut off, an unknown API version, a
retransmission, a gap inside a frame, a correlation id that is not expected, …) the connection is put back to
what it was before that segment, and the rest is left to the exact path.

Invariant: what was taken is what `Connection._step` would have done, segment by segment.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from kwsniff.engine.bulk import columns as c
from kwsniff.engine.bulk.bodies import Codes
from kwsniff.engine.bulk.headers import begins_request, may_follow
from kwsniff.engine.bulk.kernel import kernel
from kwsniff.engine.bulk.numbers import Bytes, int32
from kwsniff.engine.bulk.pairing import (
    ANSWERED,
    DEEDS,
    EARLY,
    FIRST,
    FRAMES,
    GAPPED,
    HOLE_TIME,
    LAST,
    MAX_EARLY,
    MAX_FRAME,
    MAX_KEPT,
    MAX_REORDER,
    ORPHAN_TIME,
    PATIENCE,
    REORDER_SEGMENTS,
    REORDER_TIME,
    SEEN,
    STATE,
    deed,
    expire_early,
    place_in_queue,
    take_request,
    take_response,
)  # fmt: skip
from kwsniff.engine.bulk.texts import Ints
from kwsniff.net.reassembly import FAR, WAITING_COST
from kwsniff.wire.plausible import REQUEST_HEADER, RESPONSE_HEADER

SECOND = 1_000_000_000
MASK = 0xFFFFFFFF
Flags = NDArray[np.bool_]


def scratch() -> tuple[Ints, ...]:
    """What `follow` works with: compiled code that allocates counts references, which would take longer than
    all else that it does."""
    sides = np.zeros((2, c.SIDE_COLUMNS), np.int64)
    holes = np.zeros((2, c.MAX_WAITING, 3), np.int64)
    early, was_early = np.zeros(MAX_EARLY + 1, np.int64), np.zeros(MAX_EARLY + 1, np.int64)
    return np.zeros(STATE, np.int64), np.zeros(STATE, np.int64), sides, holes, early, was_early


@kernel
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


# Frames


@kernel
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


@kernel
def cut(
    index: int, k: int, held: bool, link: Ints, side: Ints, buf: Bytes, chunks: Ints, frames: Ints,
    queue: Ints, old: Ints, early: Ints, old_early: Ints, deeds: Ints, programs: Codes, versions: Ints,
    state: Ints, limits: Ints, fresh: int,
) -> bool:  # fmt: skip
    """Cut the frames that are complete and take them; False if one is not plain. `held` says that requests
    wait behind a hole; from the chunk `fresh` on, none was looked at before."""
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
        if is_client and hides_request(pos, end, fresh, side, buf, chunks, versions, limits):
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
            plain = take_response(index, link, frame, buf, programs, frames, queue, old, early, deeds, state)
        if not plain:
            return False
        if is_client:
            side[c.LATEST] = frame[c.CORRELATION_ID]
        state[FRAMES] += 1
        side[c.CUT] += 1
        side[c.READ] = end
        side[c.CHUNK] = last
    return True


@kernel
def hides_request(
    pos: int, end: int, fresh: int, side: Ints, buf: Bytes, chunks: Ints, versions: Ints, limits: Ints
) -> bool:  # fmt: skip
    """Whether a fresh chunk might begin with another request inside the one from `pos` to `end`."""
    for at in range(fresh, side[c.CHUNK_END]):
        start = chunks[at, c.CHUNK_START]
        if start >= end:
            return False
        if start - pos >= REQUEST_HEADER and may_follow(
            buf, start, side[c.WRITE], side[c.LATEST], int32(buf, pos + 8), versions, limits[MAX_FRAME]
        ):
            return True
    return False


# Streams


@kernel
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


@kernel
def copy(to: NDArray[Any], at: int, of: NDArray[Any], begin: int, size: int) -> None:
    """As a slice would, which numba makes slower because the two could overlap."""
    first, second = types.uintp(at), types.uintp(begin)
    for index in range(types.uintp(size)):
        to[first + index] = of[second + index]


@kernel
def keep(
    state: Ints,
    both: Ints,
    hole: Ints,
    early: Ints,
    of_state: Ints,
    of_both: Ints,
    of_hole: Ints,
    of_early: Ints,
) -> None:
    """Copy all that a segment can change of a connection."""
    copy(state, 0, of_state, 0, STATE)
    for k in range(2):
        copy(both[k], 0, of_both[k], 0, c.SIDE_COLUMNS)
        for at in range(of_both[k, c.HOLES]):
            copy(hole[k, at], 0, of_hole[k, at], 0, 3)
    if of_state[EARLY]:
        copy(early, 0, of_early, 0, of_state[EARLY])


@kernel
def acknowledge(side: Ints, waiting: Ints, ack: int) -> None:
    """Note an acknowledgement number that the other end sent, unless it is far beyond all that was seen."""
    offset = side[c.OFFSET] + ((ack - side[c.WANTED] + 0x80000000) & MASK) - 0x80000000
    seen = waiting[side[c.HOLES] - 1, c.WAIT_TO] if side[c.HOLES] else side[c.OFFSET]
    if offset <= seen + FAR:
        side[c.ACKED] = max(side[c.ACKED], offset)


@kernel
def hopeless(side: Ints, waiting: Ints, seen: int, now: int, limits: Ints) -> bool:
    """Whether the capture can no longer be expected to fill the first hole."""
    waited = now - side[c.HOLE_TIME]
    if side[c.ACKED] >= waiting[0, c.WAIT_FROM]:
        return seen - side[c.HOLE_SEGMENTS] > limits[REORDER_SEGMENTS] or waited > limits[REORDER_TIME]
    return waited > limits[HOLE_TIME]


@kernel
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
    side[c.HOLE_BYTES] += end - begin + WAITING_COST
    return True


@kernel
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


@kernel
def follow(
    seg_side: Flags, seq: Ints, ack: Ints, acks: Flags, special: Flags, captured: Ints, time: Ints,
    packet: Ints, order: Ints, buffer: Codes, start: Ints, inline: Bytes, block: Bytes, links: Ints,
    sides: Ints, held_bytes: Bytes, held_chunks: Ints, all_old: Ints, all_early: Ints, programs: Codes,
    versions: Ints, limits: Ints, buf: Bytes, chunks: Ints, frames: Ints, queue: Ints, deeds: Ints,
    holes: Ints, state: Ints, was: Ints, was_sides: Ints, was_holes: Ints, early: Ints, was_early: Ints,
) -> tuple[int, int]:  # fmt: skip
    """Follow every connection of `links` as far as it is plain; returns the number of frames and of deeds."""
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
                    acknowledge(other, hole[1 - k], ack[row])
                row += 1
                continue
            # Room for what this segment and the few that it may set free can bring.
            if (
                state[FRAMES] + size // 8 + side[c.HOLE_BYTES] // 8 + other[c.HOLE_BYTES] // 8 + 4
                > len(frames)
                or state[LAST] + size // 8 + side[c.HOLE_BYTES] // 8 + other[c.HOLE_BYTES] // 8 + 4
                > len(queue)
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
                acknowledge(other, hole[1 - k], ack[row])
            held = both[client, c.HOLES] > 0
            plain = True
            # Holes that are given up by now, the other side's first.
            for turn in range(2):
                j = 1 - k if turn == 0 else k
                of = both[j]
                while plain and of[c.HOLES] > 0 and hopeless(of, hole[j], state[SEEN], moment, limits):
                    lacking = hole[j, 0, c.WAIT_FROM] - of[c.OFFSET]
                    deed(
                        deeds, state, c.GAP_FOUND, index, 2 * state[FRAMES] - 1, order[row], packet[row],
                        clock, lacking, j,
                    )  # fmt: skip
                    if not lose_framing(j, link, of, state):
                        plain = False
                        break
                    of[c.MISSING] += lacking
                    of[c.OFFSET] += lacking
                    of[c.WANTED] = (of[c.WANTED] + lacking) & MASK
                    of[c.HISTORY_FROM] = of[c.WRITE]
                    plain = fill(
                        index, j, held, link, of, hole[j], captured, time, packet, order, buffer, start,
                        inline, block, buf, chunks, frames, queue, old, early, old_early, deeds, programs,
                        versions, state, limits, order[row], clock,
                    )  # fmt: skip
                    of[c.HOLE_SEGMENTS], of[c.HOLE_TIME] = state[SEEN], moment
                if not plain:
                    break
            if plain and size > 0:
                away = ((seq[row] - side[c.WANTED] + 0x80000000) & MASK) - 0x80000000
                if not side[c.WARM] or side[c.WANTED] < 0 or away < 0 or away > FAR:
                    plain = False
                elif away == 0 and side[c.HOLES] == 0:
                    append(
                        row, side, captured, time, packet, order, buffer, start, inline, block, buf, chunks
                    )
                    plain = cut(
                        index, k, held, link, side, buf, chunks, frames, queue, old, early, old_early, deeds,
                        programs, versions, state, limits, side[c.CHUNK_END] - 1,
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
        link[c.TAKEN], link[c.CLOCK], link[c.GAP], link[c.ANSWERED] = (
            row,
            clock,
            state[GAPPED],
            state[ANSWERED],
        )
        link[c.SEGMENTS] = state[SEEN]
        for k in range(2):
            side = both[k]
            while (
                side[c.CHUNK] + 1 < side[c.CHUNK_END]
                and chunks[side[c.CHUNK] + 1, c.CHUNK_START] <= side[c.READ]
            ):
                side[c.CHUNK] += 1
    return state[FRAMES], state[DEEDS]


@kernel
def tell(index: int, k: int, side: Ints, deeds: Ints, state: Ints, order: int, clock: int) -> None:
    """Report that framing was found again, once the frames found are taken."""
    deed(
        deeds, state, c.RESYNCHRONISATION, index, 2 * state[FRAMES] - 1, order, side[c.NEWS_PACKET], clock,
        side[c.NEWS], k,
    )  # fmt: skip
    side[c.NEWS] = -1


@kernel
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
            waiting[taken, c.WAIT_ROW], side, captured, time, packet, order, buffer, start, inline, block,
            buf, chunks,
        )  # fmt: skip
        side[c.HOLE_BYTES] -= waiting[taken, c.WAIT_TO] - waiting[taken, c.WAIT_FROM] + WAITING_COST
        taken += 1
    for at in range(taken, side[c.HOLES]):
        copy(waiting[at - taken], 0, waiting[at], 0, 3)
    side[c.HOLES] -= taken
    plain = cut(
        index, k, held, link, side, buf, chunks, frames, queue, old, early, old_early, deeds, programs,
        versions, state, limits, side[c.CHUNK_END] - taken,
    )  # fmt: skip
    if side[c.NEWS] >= 0:
        tell(index, k, side, deeds, state, now_order, clock)
    return plain


@kernel
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
