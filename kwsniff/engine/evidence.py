"""What speaks for Kafka, and for an end as the client, in what a connection holds."""

from __future__ import annotations

from typing import Any

from kwsniff.engine.bodies import skim_request, skim_response
from kwsniff.engine.headers import (
    LOOSE,
    MORE,
    NO,
    REQUEST_HEADER,
    RESPONSE_HEADER,
    YES,
    comes_next,
    is_gssapi,
    is_known,
    names_client,
    request_at,
)
from kwsniff.engine.row_tables import UNKNOWN
from kwsniff.native.mode import int16, int32, kernel

PIECES = 64
"""Pieces of each end that are looked at."""
CHAIN = 64
"""Requests in a row that are looked at."""
SEVERAL = 2
"""Requests in a row that prove Kafka without an answer."""
FRAMED = 3
"""Requests answered in order that prove Kafka on any port, although none decodes."""
BAD = 3
"""Requests that name their client, but none of which decodes: they are of something else."""
RISING = 2
"""Responses in a row with rising correlation ids that show a broker whose client was not captured."""
PROVEN, PLAUSIBLE, UNDECIDED, REFUTED = 3, 2, 1, 0


@kernel
def answers_alone(t: Any, c: int, k: int, final: bool) -> bool:
    """Whether end `k` sends frames that fill their segments and whose correlation ids rise."""
    row, offset, s = t.conns[c].held_first, 0, t.sides[2 * c + k]
    at, rising, latest = -1, 0, -1
    while row >= 0 and offset < s.have:
        piece = t.pieces[row]
        if piece.side == k and piece.size:
            begin, offset = s.buf + offset, offset + piece.size
            if at < 0:
                at = begin
            stop = s.buf + offset
            while stop - at >= RESPONSE_HEADER:
                size, found = int32(t.arena, at), int32(t.arena, at + 4)
                if size < RESPONSE_HEADER - 4 or size > t.limits[0].max_frame_bytes or found < 0:
                    at, rising, latest = -1, 0, -1
                    break
                if at + 4 + size > stop:
                    break
                rising = rising + 1 if latest < 0 or comes_next(found, latest) else 1
                latest = found
                at += 4 + size
            if at == stop and rising >= (1 if final else RISING):
                return True
        row = piece.next
    return False


@kernel
def evidence(t: Any, c: int, k: int, final: bool) -> int:
    """How much speaks for end `k` as the client."""
    conn, s = t.conns[c], t.sides[2 * c + k]
    if s.from_start:
        if s.have == 0:
            return UNDECIDED
        looks = request_at(t, t.arena, s.buf, s.buf + s.have, True)
        if looks == MORE:
            if conn.ports and s.broken and s.have >= REQUEST_HEADER:
                return PLAUSIBLE  # the snap length took the rest of the client id
            return UNDECIDED
        if looks == NO:
            if conn.ports and is_gssapi(t.arena, s.buf, s.buf + s.have):
                conn.raw_tokens = 1
                return PLAUSIBLE
            return unusual(t, c, k, final)
        found = chain(t, c, k, s.buf, s.buf + s.have, True, final)
        if UNDECIDED <= found < PROVEN and t.sides[2 * c + 1 - k].from_start:
            if answered_in_order(t, c, k) >= (SEVERAL if conn.ports else FRAMED):
                return PROVEN
        return found
    best = UNDECIDED
    row, seen, offset = conn.held_first, 0, 0
    while row >= 0 and seen < PIECES and offset < s.have:
        piece = t.pieces[row]
        if piece.side == k and piece.size:
            seen += 1
            at, end = s.buf + offset, s.buf + s.have
            offset += piece.size
            if request_at(t, t.arena, at, end, True) == YES:
                best = max(best, chain(t, c, k, at, end, False, final))
        row = piece.next
    return best


@kernel
def unusual(t: Any, c: int, k: int, final: bool) -> int:
    """What speaks for an end on a Kafka port whose first bytes may be the header of a request, but with a
    client id such as nobody has: only that its requests are answered in order."""
    conn, s = t.conns[c], t.sides[2 * c + k]
    if not conn.ports or s.have < REQUEST_HEADER or not is_framed(t, s.buf):
        return REFUTED
    if answered_in_order(t, c, k) >= SEVERAL:
        return PROVEN
    return REFUTED if final or conn.held_bytes > t.limits[0].detect_bytes else UNDECIDED


@kernel
def is_framed(t: Any, at: int) -> bool:
    """Whether a length, an API and a version stand here that a request may have."""
    size, key, version = int32(t.arena, at), int16(t.arena, at + 4), int16(t.arena, at + 6)
    return (
        RESPONSE_HEADER <= size <= t.limits[0].max_frame_bytes and 0 <= key < LOOSE and 0 <= version < LOOSE
    )


@kernel
def chain(t: Any, c: int, k: int, at: int, end: int, begins: bool, final: bool) -> int:
    """How much the requests speak for it that follow each other from `at` on. With `begins` the stream does
    so there."""
    named = names_client(t.arena, at)
    good, bad, seen, unknown, goes_on = 0, 0, 0, 0, False
    before = UNKNOWN
    while seen < CHAIN and at < end and request_at(t, t.arena, at, end, True) == YES:
        asked = int32(t.arena, at + 8)
        if before != UNKNOWN and not comes_next(asked, before):
            break
        before = asked
        seen += 1
        after = at + 4 + int32(t.arena, at)
        if after > end:
            known = is_known(t, int16(t.arena, at + 4), int16(t.arena, at + 6))
            goes_on = seen == 1 and known
            if known and t.sides[2 * c + k].broken and names_client(t.arena, at):
                # The snap length took the rest of the request.
                if is_answered(t, c, 1 - k, at, False):
                    return PROVEN
            break
        decodes, wants_answer = skim_request(t, t.arena, at, after), True
        if decodes:
            good += 1
            wants_answer = t.facts[0].acks != 0 or int16(t.arena, at + 4) != 0
        elif is_known(t, int16(t.arena, at + 4), int16(t.arena, at + 6)):
            bad += 1
            wants_answer = False
        else:
            unknown += 1
        if wants_answer and is_answered(t, c, 1 - k, at, decodes and named):
            return PROVEN
        at = after
    if not named:
        if begins and good and not bad and t.conns[c].ports:
            return PLAUSIBLE
        return REFUTED if begins and bad and not t.sides[2 * c + k].broken else UNDECIDED
    if good:
        return PROVEN if good >= SEVERAL else PLAUSIBLE
    if begins:
        if bad >= BAD:
            return PLAUSIBLE if t.conns[c].ports else REFUTED
        if goes_on or unknown or final:
            return PLAUSIBLE
    return UNDECIDED


@kernel
def is_answered(t: Any, c: int, k: int, at: int, sure: bool) -> bool:
    """Whether end `k` answers the request at `at` with a body that decodes. Of an answer to a request that is
    `sure` to be one, because it decodes, the beginning is enough."""
    asked, s = int32(t.arena, at + 8), t.sides[2 * c + k]
    row, seen, offset, behind = t.conns[c].held_first, 0, 0, 0
    while row >= 0 and seen < PIECES and offset < s.have:
        piece = t.pieces[row]
        if piece.side == k and piece.size:
            seen += 1
            start, stop = s.buf + offset, s.buf + s.have
            offset += piece.size
            while stop - start >= RESPONSE_HEADER and start >= behind:
                size = int32(t.arena, start)
                if size < RESPONSE_HEADER - 4 or size > t.limits[0].max_frame_bytes:
                    break
                if int32(t.arena, start + 4) == asked:
                    whole = start + 4 + size <= stop
                    if sure and not whole:
                        return True
                    if whole and skim_response(t, t.arena, start, start + 4 + size, at):
                        return True
                start += 4 + size
                if s.from_start:
                    behind = start  # frames begin where the stream does: no other chain is looked at
        row = piece.next
    return False


@kernel
def answered_in_order(t: Any, c: int, k: int) -> int:
    """How many requests of end `k` the other end answers, in order and by their correlation ids, if both
    streams are cut into frames from their first bytes on; 0 if anything contradicts that. Only what the
    lengths step over may be missing."""
    asked_row = answer_row = t.conns[c].held_first
    asked_begin, asked, answer_begin, answer = 0, 0, 0, 0
    count, before = 0, UNKNOWN
    while count < CHAIN:
        answer_row, answer_begin = piece_with(t, answer_row, answer_begin, 1 - k, answer, RESPONSE_HEADER)
        if answer_row < 0:
            return count
        at = t.pieces[answer_row].at + answer - answer_begin
        size, found = int32(t.arena, at), int32(t.arena, at + 4)
        if size < RESPONSE_HEADER - 4 or size > t.limits[0].max_frame_bytes:
            return 0
        answer += 4 + size
        while True:
            asked_row, asked_begin = piece_with(t, asked_row, asked_begin, k, asked, REQUEST_HEADER - 2)
            if asked_row < 0:
                return count
            at = t.pieces[asked_row].at + asked - asked_begin
            if not is_framed(t, at):
                return 0
            asked += 4 + int32(t.arena, at)
            if int32(t.arena, at + 8) == found:
                break
            if int16(t.arena, at + 4) != 0:
                return 0  # only a Produce may want no answer
        count += 1 if found != before else 0
        before = found
    return count


@kernel
def piece_with(t: Any, row: int, begin: int, k: int, pos: int, size: int) -> tuple[int, int]:
    """The piece that end `k` sent, from `row` on, with all `size` bytes from an offset of its stream on, and
    the offset at which it begins; -1 if they are not at hand. `row` itself begins at `begin`."""
    while row >= 0:
        piece = t.pieces[row]
        if piece.side == k:
            if pos < begin + piece.end:
                return (row if pos + size <= begin + piece.size else -1), begin
            begin += piece.end
        row = piece.next
    return -1, begin
