"""Deciding what a connection carries and which end is the client.

Theory of operation. Until that is decided, what both streams deliver is held. Content has to prove itself: a
request whose body decodes together with a response that has its correlation id and decodes too, as far as it
is there; several requests in a row; or two streams that are cut into frames without a byte left over, where
those of one answer those of the other in order. On a Kafka port one request is believed if it names its
client, or decodes and is answered.
A header alone, without a client id, counts for nothing, and neither does a Produce that wants no answer.

The SYN says which end is the client; without it a Kafka port does, and without that both ends are tried: the
proof says which way round it is. A capture that begins in the middle of a long message shows nothing for a
while; then half of what was held is let go and what follows is looked at, a number of times. On a Kafka port
such a connection is believed for the time being: it tells calls once a request or an answer proved it.
"""

from __future__ import annotations

from typing import Any

from kwsniff.engine.arena import empty_buffer, let_go, let_go_half
from kwsniff.engine.connections import become
from kwsniff.engine.evidence import PLAUSIBLE, PROVEN, REFUTED, UNDECIDED, answers_alone, evidence
from kwsniff.engine.headers import (
    MORE,
    NO,
    REQUEST_HEADER,
    YES,
    is_tls,
    is_tls_alert,
    names_client,
    request_at,
)
from kwsniff.engine.notes import (
    ACCEPTED,
    LET_GO,
    NOT_KAFKA,
    REFUSED_,
    TURNED,
    decided,
    note_now,
    release_notes,
    room_for_notes,
)
from kwsniff.engine.records import begin_records
from kwsniff.engine.tables import HEAD, KAFKA, OTHER, PROBING, TLS
from kwsniff.native.mode import int32, kernel

MAX_FIRST = 4 << 20
"""Bytes of a first request that are held, on any port; producers send up to a mebibyte by default."""
LIKE_KAFKA = 4
"""In `conns.ports`: no end is on a Kafka port, but one began like a client."""
TRIES = 64
"""How often what is held is let go before a connection is left alone."""
TRIES_OF_HEAD = 8
"""The same for one of which a part did not see the beginning, not on a Kafka port."""


@kernel
def judge(t: Any, c: int, final: bool) -> None:
    """Decide on what is held, if that can be done; `final` when no more will come."""
    conn = t.conns[c]
    if not final and conn.held > 16 and conn.held_bytes < conn.judged + (conn.judged >> 2):
        return
    room_for_notes(t, 1 + conn.pending_notes)
    verdict = verdict_of(t, c, final)
    conn.judged = conn.held_bytes
    if verdict == PROBING and (final or conn.held_bytes > enough(t, c)):
        verdict = forced(t, c, final)
    if verdict == KAFKA:
        accept(t, c)
    elif verdict != PROBING:
        refuse(t, c, verdict)
    if verdict != PROBING and conn.pending_notes:
        release_notes(t, c)


@kernel
def enough(t: Any, c: int) -> int:
    """How many bytes are held at the most: what seems to be the first request has to be seen whole before it
    says more."""
    limit = t.limits[0].detect_bytes
    if t.conns[c].held_bytes <= limit:
        return limit
    size = first_request(t, c)
    return limit + (size if size <= MAX_FIRST else 0)


@kernel
def first_request(t: Any, c: int) -> int:
    """Bytes of what looks like a request at the beginning of a stream, 0 if nothing does."""
    for k in range(2):
        s = t.sides[2 * c + k]
        named = t.conns[c].ports or names_client(t.arena, s.buf)
        if s.from_start and not s.broken and s.have > REQUEST_HEADER and named:
            if request_at(t, t.arena, s.buf, s.buf + s.have, False) == YES:
                return int32(t.arena, s.buf)
    return 0


@kernel
def forced(t: Any, c: int, final: bool) -> int:
    """A verdict although nothing is proven: no more can be held."""
    conn = t.conns[c]
    if final:
        return OTHER
    if conn.ports:
        if conn.client < 0:
            conn.client = client_by_port(conn)
        return KAFKA
    started = t.sides[2 * c].from_start or t.sides[2 * c + 1].from_start
    # What a part did not see begin is judged sooner: whoever saw it begin knows, and is asked.
    tries = TRIES if conn.left != HEAD else TRIES_OF_HEAD
    if started or conn.tries >= tries:
        return OTHER
    let_go_half(t, c)
    conn.tries += 1
    conn.judged = 0
    decided(t, c, LET_GO, 0, conn.tries, 0)
    return PROBING


@kernel
def client_by_port(conn: Any) -> int:
    """Which end is the client, as ports say: the one whose port is not named. Where both are, that with the
    higher one: systems give clients high ports."""
    if conn.ports != 3:
        return 1 if conn.ports == 1 else 0
    return 0 if conn.a_port > conn.b_port else 1


@kernel
def refuse(t: Any, c: int, verdict: int) -> None:
    """It is no Kafka, or none that can be read."""
    conn = t.conns[c]
    spoken = t.sides[2 * c].spoken or t.sides[2 * c + 1].spoken
    started = t.sides[2 * c].from_start or t.sides[2 * c + 1].from_start
    if verdict == OTHER and spoken and started and not cut_off(t, c):
        if conn.ports:
            note_now(t, c, NOT_KAFKA, 0, 0)
        elif first_request(t, c):
            conn.ports = LIKE_KAFKA
            note_now(t, c, NOT_KAFKA, 2, 0)
    if verdict == TLS:
        if conn.client < 0:
            conn.client = client_by_port(conn)
        begin_records(t, c)
    else:
        let_go(t, c)
        become(t, c, verdict)
    decided(t, c, REFUSED_, 0, verdict, 0)


@kernel
def cut_off(t: Any, c: int) -> bool:
    """Whether less of the client's first request came, or was captured, than its header; or less than all of
    it, and nobody answered."""
    client = t.conns[c].client
    if client < 0:
        return False
    s = t.sides[2 * c + client]
    looks = request_at(t, t.arena, s.buf, s.buf + s.have, True)
    if looks == YES:
        return 4 + int32(t.arena, s.buf) > s.have and t.sides[2 * c + 1 - client].spoken == 0
    return looks == MORE


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
def verdict_of(t: Any, c: int, final: bool) -> int:
    """A state, PROBING while it cannot be said."""
    conn = t.conns[c]
    tls = tls_of(t, c)
    if tls == YES:
        return TLS if conn.ports else OTHER
    if not conn.ports and not t.limits[0].detect:
        return OTHER
    best, client = most_evidence(t, c, final)
    if best < PLAUSIBLE and is_port_to_decide(t, c, final):
        found = evidence(t, c, 1 - conn.client, final)
        if found >= PLAUSIBLE:
            best, client = found, 1 - conn.client
    if best == PROVEN or (best == PLAUSIBLE and conn.ports):
        if conn.client >= 0 and conn.client != client:
            conn.turned = 1
            conn.client = client
            decided(t, c, TURNED, client, 0, 0)
        conn.client = client
        conn.proven = 1
        return KAFKA
    if tls == MORE:
        return PROBING if not final else TLS if conn.ports else OTHER
    if best == REFUTED:
        return OTHER
    return by_port(t, c, final) if conn.ports else PROBING


@kernel
def is_port_to_decide(t: Any, c: int, final: bool) -> bool:
    """Whether nothing but a port would say now which end is the client: a request of the other end that
    decodes says more."""
    conn = t.conns[c]
    if conn.syn or not conn.ports or conn.client < 0:
        return False
    silent = t.sides[2 * c + conn.client].spoken == 0
    return silent or final or conn.held_bytes > t.limits[0].detect_bytes


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
def most_evidence(t: Any, c: int, final: bool) -> tuple[int, int]:
    """How much speaks for an end as the client, and for which. Against what SYN or port say of the ends only
    a proof counts: either may be damaged, or chosen badly."""
    conn = t.conns[c]
    best, client = REFUTED, -1
    for k in range(2):
        found = evidence(t, c, k, final)
        if conn.client >= 0 and conn.client != k and found < PROVEN:
            continue
        if found > best:
            best, client = found, k
        elif found == best and found >= PLAUSIBLE:
            if conn.client >= 0:
                client = conn.client
            else:
                best = UNDECIDED  # both ways round seem right
    return best, client


@kernel
def by_port(t: Any, c: int, final: bool) -> int:
    """What is to be said of a connection with a Kafka port that shows nothing of its client: answers in a row
    are those of a broker."""
    conn = t.conns[c]
    client = conn.client
    if client < 0:
        if conn.ports == 3:
            return PROBING
        client = client_by_port(conn)
    s, other = t.sides[2 * c + client], t.sides[2 * c + 1 - client]
    if s.spoken or other.have == 0:
        return PROBING
    if answers_alone(t, c, 1 - client, final):
        conn.client = client
        conn.proven = 1
        return KAFKA
    return PROBING
