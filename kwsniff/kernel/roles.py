"""Deciding what a connection carries and which end is the client.

Theory of operation. Until that is decided, what both streams deliver is held. Content has to prove itself: a
request whose body decodes together with a response that has its correlation id and decodes too, or several
requests in a row. On a Kafka port one request is believed if it names its client, or decodes and is answered.
A header alone, without a client id, counts for nothing, and neither does a Produce that wants no answer.

The SYN says which end is the client; without it a Kafka port does, and without that both ends are tried: the
proof says which way round it is. A capture that begins in the middle of a long message shows nothing for a
while; then half of what was held is let go and what follows is looked at, a number of times. On a Kafka port
such a connection is believed for the time being: it tells calls once a request or an answer proved it.
"""

from __future__ import annotations

from typing import Any

from kwsniff.kernel.arena import allocate, copy, release
from kwsniff.kernel.codes import NOT_KAFKA
from kwsniff.kernel.frames import append, drop_front, empty_buffer
from kwsniff.kernel.headers import (
    MORE,
    NO,
    REQUEST_HEADER,
    RESPONSE_HEADER,
    YES,
    comes_next,
    is_gssapi,
    is_known,
    is_tls,
    is_tls_alert,
    names_client,
    request_at,
)
from kwsniff.kernel.life import become
from kwsniff.kernel.mode import kernel
from kwsniff.kernel.numbers import FULL, OK, REFUSED, int16, int32
from kwsniff.kernel.rows import drop_piece, note_now, room_for_notes, take_piece, tell_notes
from kwsniff.kernel.skimming import skim_request, skim_response
from kwsniff.kernel.tables import HEAD, KAFKA, OTHER, PROBING, TLS, UNKNOWN
from kwsniff.kernel.trace import ACCEPTED, HELD, LET_GO, REFUSED_, TURNED, decided

PIECES = 64
"""Pieces of each end that are looked at."""
CHAIN = 64
"""Requests in a row that are looked at."""
SEVERAL = 2
"""Requests in a row that prove Kafka without an answer."""
TRIES = 64
"""How often what is held is let go before a connection is left alone."""
TRIES_OF_HEAD = 8
"""The same for one of which a part did not see the beginning, not on a Kafka port."""
BAD = 3
"""Requests that name their client, but none of which decodes: they are of something else."""
RISING = 2
"""Responses in a row with rising correlation ids that show a broker whose client was not captured."""
PROVEN, PLAUSIBLE, UNDECIDED, REFUTED = 3, 2, 1, 0


@kernel
def hold(
    t: Any, c: int, k: int, data: Any, pos: int, size: int, length: int, time: int, packet: int, order: int
) -> int:
    """Keep an item of a stream that is not judged: `size` bytes of `length`, the rest is missing."""
    conn, s = t.conns[c], t.sides[2 * c + k]
    row = take_piece(t)
    if row < 0:
        return FULL
    at = -1
    if size:
        at = allocate(t, size)
        if at < 0:
            drop_piece(t, row)
            return FULL
        if not s.broken and append(t, s, data, pos, size) != OK:
            release(t, at, size)
            drop_piece(t, row)
            return FULL
        copy(t.arena, at, data, pos, size)
    piece = t.pieces[row]
    piece.next, piece.side, piece.gap = -1, k, 0
    piece.start, piece.end, piece.at, piece.size = 0, length, at, size
    piece.time, piece.packet, piece.order = time, packet, order
    if size < length:
        if s.have == 0:
            s.from_start = 0
        else:
            s.broken = 1
    if conn.held_last >= 0:
        t.pieces[conn.held_last].next = row
    else:
        conn.held_first = row
    conn.held_last = row
    conn.held += 1
    conn.held_bytes += size
    decided(t, c, HELD, k, conn.held_bytes, 0)
    return OK


@kernel
def let_go(t: Any, c: int) -> None:
    """Forget what is held."""
    conn = t.conns[c]
    while conn.held_first >= 0:
        row = conn.held_first
        piece = t.pieces[row]
        t.sides[2 * c + piece.side].skipped += piece.size
        pop_held(t, c)
    for k in range(2):
        s = t.sides[2 * c + k]
        empty_buffer(t, s)
        s.broken = s.from_start = 0


@kernel
def pop_held(t: Any, c: int) -> None:
    """Forget the first piece that is held."""
    conn = t.conns[c]
    row = conn.held_first
    piece = t.pieces[row]
    conn.held_first = piece.next
    if piece.next < 0:
        conn.held_last = -1
    conn.held -= 1
    conn.held_bytes -= piece.size
    if piece.at >= 0:
        release(t, piece.at, piece.size)
    drop_piece(t, row)


@kernel
def judge(t: Any, c: int, final: bool) -> int:
    """Decide on what is held, if that can be done; `final` when no more will come."""
    conn = t.conns[c]
    if not final and conn.held > 16 and conn.held_bytes < conn.judged + (conn.judged >> 2):
        return OK
    if room_for_notes(t, 1 + conn.untold) != OK:
        return FULL
    code, verdict = verdict_of(t, c, final)
    if code != OK:
        return code
    conn.judged = conn.held_bytes
    if verdict == PROBING and (final or conn.held_bytes > t.limits[0].detect_bytes):
        verdict = forced(t, c, final)
    if verdict == KAFKA:
        accept(t, c)
    elif verdict != PROBING:
        refuse(t, c, verdict)
    if verdict != PROBING and conn.untold:
        tell_notes(t, c)
    return OK


@kernel
def forced(t: Any, c: int, final: bool) -> int:
    """A verdict although nothing is proven: no more can be held."""
    conn = t.conns[c]
    if final:
        return OTHER
    if conn.ports:
        if conn.client < 0 and conn.ports != 3:
            conn.client = 1 if conn.ports == 1 else 0
        if conn.client >= 0:
            return KAFKA
    started = t.sides[2 * c].from_start or t.sides[2 * c + 1].from_start
    # What a part did not see begin is judged sooner: whoever saw it begin knows, and is asked.
    tries = TRIES if conn.left != HEAD else TRIES_OF_HEAD
    if (started or conn.tries >= tries) and not conn.ports:
        return OTHER
    if conn.tries >= TRIES:
        return OTHER
    let_go_half(t, c)
    conn.tries += 1
    conn.judged = 0
    decided(t, c, LET_GO, 0, conn.tries, 0)
    return PROBING


@kernel
def let_go_half(t: Any, c: int) -> None:
    """Forget the older half of what is held; all of it, if bytes are missing in between."""
    conn = t.conns[c]
    if t.sides[2 * c].broken or t.sides[2 * c + 1].broken:
        let_go(t, c)
        return
    while conn.held_first >= 0 and 2 * conn.held_bytes > t.limits[0].detect_bytes:
        piece = t.pieces[conn.held_first]
        s = t.sides[2 * c + piece.side]
        s.skipped += piece.size
        s.from_start = 0
        drop_front(t, s, piece.size)
        pop_held(t, c)


@kernel
def refuse(t: Any, c: int, verdict: int) -> None:
    """It is no Kafka, or none that can be read."""
    conn = t.conns[c]
    spoken = t.sides[2 * c].spoken or t.sides[2 * c + 1].spoken
    started = t.sides[2 * c].from_start or t.sides[2 * c + 1].from_start
    if verdict == OTHER and conn.ports and spoken and started and not cut_off(t, c):
        note_now(t, c, NOT_KAFKA, 0, 0)
    let_go(t, c)
    become(t, c, verdict)
    decided(t, c, REFUSED_, 0, verdict, 0)


@kernel
def cut_off(t: Any, c: int) -> bool:
    """Whether the snap length left less of the client's first request than a header."""
    if t.conns[c].client < 0:
        return False
    s = t.sides[2 * c + t.conns[c].client]
    return s.broken != 0 and request_at(t, t.arena, s.buf, s.buf + s.have, True) == MORE


@kernel
def accept(t: Any, c: int) -> None:
    """It is Kafka: what is held is to be delivered."""
    conn = t.conns[c]
    become(t, c, KAFKA)
    decided(t, c, ACCEPTED, max(conn.client, 0), conn.proven, 0)
    for k in range(2):
        s = t.sides[2 * c + k]
        empty_buffer(t, s)
        s.broken = 0
        s.synchronised = s.from_start


@kernel
def verdict_of(t: Any, c: int, final: bool) -> tuple[int, int]:
    """OK and a state, PROBING while it cannot be said; or another code."""
    conn = t.conns[c]
    tls = tls_of(t, c)
    if tls == YES:
        return OK, TLS if conn.ports else OTHER
    if not conn.ports and not t.limits[0].detect:
        return OK, OTHER
    code, best, client = most_evidence(t, c, final)
    if code != OK:
        return code, PROBING
    if best == PROVEN or (best == PLAUSIBLE and conn.ports):
        if conn.client >= 0 and conn.client != client:
            conn.turned = 1
            conn.client = client
            decided(t, c, TURNED, client, 0, 0)
        conn.client = client
        conn.proven = 1
        return OK, KAFKA
    if tls == MORE:
        return OK, PROBING if not final else TLS if conn.ports else OTHER
    if best == REFUTED:
        return OK, OTHER
    return OK, by_port(t, c, final) if conn.ports else PROBING


@kernel
def tls_of(t: Any, c: int) -> int:
    """Whether an end speaks TLS: YES, NO, or MORE if it sent an alert, which says nothing of the other."""
    found = NO
    for k in range(2):
        s = t.sides[2 * c + k]
        if s.have and is_tls(t.arena, s.buf, s.buf + s.have):
            if not is_tls_alert(t.arena, s.buf, s.buf + s.have):
                return YES
            found = MORE
    return found


@kernel
def most_evidence(t: Any, c: int, final: bool) -> tuple[int, int, int]:
    """OK, how much speaks for an end as the client, and for which; or another code. Against what SYN or port
    say of the ends only a proof counts: either may be damaged, or chosen badly."""
    conn = t.conns[c]
    best, client = REFUTED, -1
    for k in range(2):
        code, found = evidence(t, c, k, final)
        if code != OK:
            return code, best, client
        if conn.client >= 0 and conn.client != k and found < PROVEN:
            continue
        if found > best:
            best, client = found, k
        elif found == best and found >= PLAUSIBLE:
            if conn.client >= 0:
                client = conn.client
            else:
                best = UNDECIDED  # both ways round seem right
    return OK, best, client


@kernel
def by_port(t: Any, c: int, final: bool) -> int:
    """What is to be said of a connection with a Kafka port that shows nothing of its client: answers in a row
    are those of a broker."""
    conn = t.conns[c]
    client = conn.client
    if client < 0:
        if conn.ports == 3:
            return PROBING
        client = 1 if conn.ports == 1 else 0
    s, other = t.sides[2 * c + client], t.sides[2 * c + 1 - client]
    if s.spoken or other.have == 0:
        return PROBING
    if answers_alone(t, c, 1 - client, final):
        conn.client = client
        conn.proven = 1
        return KAFKA
    return PROBING


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
def evidence(t: Any, c: int, k: int, final: bool) -> tuple[int, int]:
    """OK and how much speaks for end `k` as the client; or another code."""
    conn, s = t.conns[c], t.sides[2 * c + k]
    if s.from_start:
        if s.have == 0:
            return OK, UNDECIDED
        looks = request_at(t, t.arena, s.buf, s.buf + s.have, True)
        if looks == MORE:
            if conn.ports and s.broken and s.have >= REQUEST_HEADER:
                return OK, PLAUSIBLE  # the snap length took the rest of the client id
            return OK, UNDECIDED
        if looks == NO:
            if conn.ports and is_gssapi(t.arena, s.buf, s.buf + s.have):
                conn.raw_tokens = 1
                return OK, PLAUSIBLE
            return damaged(t, c, k, final)
        return chain(t, c, k, s.buf, s.buf + s.have, True, final)
    best = UNDECIDED
    row, seen, offset = conn.held_first, 0, 0
    while row >= 0 and seen < PIECES and offset < s.have:
        piece = t.pieces[row]
        if piece.side == k and piece.size:
            seen += 1
            at, end = s.buf + offset, s.buf + s.have
            offset += piece.size
            if request_at(t, t.arena, at, end, True) == YES:
                code, found = chain(t, c, k, at, end, False, final)
                if code != OK:
                    return code, UNDECIDED
                if found > best:
                    best = found
        row = piece.next
    return OK, best


@kernel
def damaged(t: Any, c: int, k: int, final: bool) -> tuple[int, int]:
    """The first bytes are no request: on a Kafka port they may have been damaged, and another request follows
    with a segment of its own."""
    conn, s = t.conns[c], t.sides[2 * c + k]
    if not conn.ports:
        return OK, REFUTED
    row, seen = conn.held_first, 0
    while row >= 0:
        piece = t.pieces[row]
        if piece.side == k and piece.size:
            at, end = piece.at, piece.at + piece.size
            if request_at(t, t.arena, at, end, False) == YES and names_client(t.arena, at):
                after = at + 4 + int32(t.arena, at)
                code = skim_request(t, t.arena, at, after) if after <= end else OK
                if code == OK:
                    s.from_start = 0
                    return OK, PLAUSIBLE
                if code != REFUSED:
                    return code, UNDECIDED
            seen += 1
        row = piece.next
    return OK, REFUTED if final or seen > 8 else UNDECIDED


@kernel
def chain(t: Any, c: int, k: int, at: int, end: int, begins: bool, final: bool) -> tuple[int, int]:
    """What speaks for the requests that follow each other from `at` on: OK and how much, or another code.
    With `begins` the stream does so there."""
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
                code, fits = is_answered(t, c, 1 - k, at)  # the snap length took the rest of the request
                if code != OK or fits:
                    return code, PROVEN if fits else UNDECIDED
            break
        code = skim_request(t, t.arena, at, after)
        wants_answer = True
        if code == OK:
            good += 1
            wants_answer = t.facts[0].acks != 0 or int16(t.arena, at + 4) != 0
        elif code != REFUSED:
            return code, UNDECIDED
        elif is_known(t, int16(t.arena, at + 4), int16(t.arena, at + 6)):
            bad += 1
            wants_answer = False
        else:
            unknown += 1
        if wants_answer:
            code, fits = is_answered(t, c, 1 - k, at)
            if code != OK:
                return code, UNDECIDED
            if fits:
                return OK, PROVEN
        at = after
    if not named:
        return OK, REFUTED if begins and bad and not t.sides[2 * c + k].broken else UNDECIDED
    if good:
        return OK, PROVEN if good >= SEVERAL else PLAUSIBLE
    if begins:
        if bad >= BAD:
            return OK, PLAUSIBLE if t.conns[c].ports else REFUTED
        if goes_on or unknown or final:
            return OK, PLAUSIBLE
    return OK, UNDECIDED


@kernel
def is_answered(t: Any, c: int, k: int, at: int) -> tuple[int, bool]:
    """OK and whether end `k` answers the request at `at` with a body that decodes; or another code."""
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
                if int32(t.arena, start + 4) == asked and start + 4 + size <= stop:
                    code = skim_response(t, t.arena, start, start + 4 + size, at)
                    if code == OK:
                        return OK, True
                    if code != REFUSED:
                        return code, False
                start += 4 + size
                if s.from_start:
                    behind = start  # frames begin where the stream does: no other chain is looked at
        row = piece.next
    return OK, False
