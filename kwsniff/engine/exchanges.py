"""What TLS records show without keys: the handshake, and exchanges of messages, which are estimates of calls.

Theory of operation. Records of the handshake are kept as they are, for `kwsniff.tls.observed` to read when
the connection is over. Of the others lengths and times are enough: `plain_size` says which of them carry
application data, and how much; `begins` which of those begin a message, from how their writer cut what it
wrote before. A broker answers in order, so a response belongs to the oldest request that waits
(`kwsniff.engine.waiting`). The rules and their figures were found by comparing recordings of seven clients
with what their keys showed, see docs/tls.md.

An exchange is told when the next response begins, or nothing more can: its last record may still be to come.
"""

from __future__ import annotations

from typing import Any

from kwsniff.engine import texts
from kwsniff.engine.arena import WANT_CALLS, WANT_KEEP, drop_request, lacks, room_for_row, take
from kwsniff.engine.facts import clear
from kwsniff.engine.outcomes import tell
from kwsniff.engine.packing import forget, keep
from kwsniff.engine.tables import ESTIMATED_, EXCHANGE, FETCH_EXCHANGE, REQUESTS, SECOND
from kwsniff.engine.waiting import link, unlink
from kwsniff.native.mode import byte, kernel, made, uint16
from kwsniff.native.octets import copy
from kwsniff.native.rowcopies import NONE
from kwsniff.tls.suites import SUITES, TLS_1_2, TLS_1_3, overhead

HANDSHAKE, APPLICATION_DATA = 22, 23
"""Content types (RFC 8446, 5.1)."""
CLIENT_HELLO, SERVER_HELLO = 1, 2
"""Handshake messages (RFC 8446, 4)."""
PSK_MODES, VERSIONS = 45, 43
"""Extensions (RFC 8446, 4.2)."""
HEADER = 5
MAX_HELLO, ALL_HELLOS = 8192, 32 << 20
"""Bytes that are kept of the handshake of a connection, and about of all connections."""


@kernel
def take_record(t: Any, kind: int, data: Any) -> None:
    """Take a record of this content type, whose bytes `frame` says; those of application data need not be at
    hand. May stop, and then nothing was changed."""
    f = t.frame[0]
    conn, s = t.conns[f.conn], t.sides[2 * f.conn + f.side]
    if kind == APPLICATION_DATA:
        if t.limits[0].tls == 0:
            room_for_exchanges(t)
        s.records += 1
        if t.limits[0].tls == 0:
            take_data(t, f.conn, f.side, f.size - HEADER)
    elif conn.exchanges == 0 and f.whole:
        take_handshake(t, kind, data)
    s.last_record = kind << 16 | f.size


@kernel
def take_lost(t: Any) -> None:
    """Take a record that was not captured: application data, if its end sent such before. It may have been
    the client's Finished."""
    f = t.frame[0]
    conn, s = t.conns[f.conn], t.sides[2 * f.conn + f.side]
    if s.records:
        room_for_exchanges(t)
        take_data(t, f.conn, f.side, f.size - HEADER)
    elif f.side == conn.client and conn.agreed_time >= 0:
        conn.secured = 1


# The handshake


@kernel
def take_handshake(t: Any, kind: int, data: Any) -> None:
    """Take a record of the handshake."""
    f = t.frame[0]
    conn = t.conns[f.conn]
    if t.limits[0].tls == 0:
        keep_record(t, conn, data, f.start, f.size)
    end = f.start + f.size
    at = f.start + HEADER
    if kind != HANDSHAKE or end - at < 44:
        return
    if byte(data, at) == CLIENT_HELLO and conn.hello_time < 0:
        conn.hello_time = f.last_time
        conn.secured = 0
        conn.tickets = 1 if extension(data, at, end, True, PSK_MODES) >= 0 else 0
    elif byte(data, at) == SERVER_HELLO and conn.agreed_time < 0:
        learn_suite(conn, data, at, end)
        conn.agreed_time = f.last_time


@kernel
def keep_record(t: Any, conn: Any, data: Any, pos: int, count: int) -> None:
    """Keep so many bytes of a record, as far as there is room, behind those that came before."""
    run = t.run[0]
    have = t.texts[conn.hello].size if conn.hello >= 0 else 0
    count = min(count, min(MAX_HELLO, ALL_HELLOS // max(run.followed, 1)) - have - 1)
    if count <= HEADER:
        return
    size = have + 1 + count
    if run.kept + size > len(t.keep):
        lacks(t, WANT_KEEP, size)
    at = run.kept  # what lies behind may be overwritten
    if have:
        copy(t.text_bytes, t.texts[conn.hello].at, have, t.keep, at)
    t.keep[at + have] = t.frame[0].side
    copy(data, pos, count, t.keep, at + have + 1)
    conn.hello = texts.text(t, t.keep, at, size, texts.OCTETS)


@kernel
def extension(data: Any, at: int, end: int, of_client: bool, wanted: int) -> int:
    """Where the body of an extension of the hello at `at` begins, -1 if it has none."""
    at += 38  # message header, version and random
    at += 1 + byte(data, at)  # session id
    if of_client:
        if at + 2 > end:
            return -1
        at += 2 + uint16(data, at)  # cipher suites
        if at + 1 > end:
            return -1
        at += 1 + byte(data, at)  # compression methods
    else:
        at += 3
    at += 2
    while at + 4 <= end:
        if uint16(data, at) == wanted:
            return at + 4
        at += 4 + uint16(data, at + 2)
    return -1


@kernel
def learn_suite(conn: Any, data: Any, at: int, end: int) -> None:
    """Keep what the server's hello says of the sizes of records."""
    cipher_at = at + 39 + byte(data, at + 38)
    if cipher_at + 2 > end:
        return
    version = extension(data, at, end, False, VERSIONS)
    conn.tls_1_3 = 1 if version >= 0 and version + 2 <= end and uint16(data, version) == TLS_1_3 else 0
    conn.secured = 0
    cipher = uint16(data, cipher_at)
    conn.overhead = overhead_of(cipher)
    conn.finished = FINISHED_384 if cipher == AES_256_GCM_SHA384 else FINISHED_256


AES_256_GCM_SHA384 = 0x1302
FINISHED_256, FINISHED_384 = 53, 69
"""Bytes of a record's body in TLS 1.3 that is a Finished: header of the message, hash, content type, tag."""
_OVERHEADS: dict[int, list[int]] = {}
for _suite in SUITES.values():
    _version = TLS_1_3 if _suite.code >> 8 == 0x13 else TLS_1_2
    _OVERHEADS.setdefault(overhead(_version, _suite), []).append(_suite.code)
overhead_of = made(
    "overhead_of",
    "cipher",
    [
        *(f"if {' or '.join(f'cipher == {code}' for code in codes)}: return {size}"
          for size, codes in _OVERHEADS.items()),
        "return 24",
    ],
)  # fmt: skip
"""Bytes of the body of a record with this cipher suite that are no plaintext; of an unknown one as GCM."""


# Which records carry data


@kernel
def plain_size(conn: Any, s: Any, is_broker: bool, size: int) -> int:
    """Bytes of plaintext in a record of application data with a body of so many bytes, 0 if it carries none
    of it: the last messages of a TLS 1.3 handshake, tickets and alerts look the same."""
    if conn.tls_1_3 == 0:
        return size - conn.overhead
    if not is_broker and not conn.secured:
        if size == conn.finished or size == conn.finished + PADDING:
            conn.secured, s.padding = 1, size - conn.finished
            return 0
        if s.records <= FLIGHT:
            return 0
        conn.secured = 1
    if is_broker and not conn.secured:
        return 0
    if is_broker and conn.tickets:
        conn.tickets = 0
        return 0
    if s.padding < 0:
        s.padding = PADDING if is_broker else 0
    if size - conn.overhead - s.padding < 1:
        s.padding = 0
    plain = size - conn.overhead - s.padding
    return 0 if plain in (ALERT_BYTES, KEY_UPDATE_BYTES) else plain


PADDING = 16
"""Bytes of zeros by which JSSE lengthens every record of TLS 1.3: brokers, unless they show otherwise."""
FLIGHT = 3
"""Records of the client before its requests, at the most: certificate, its proof, Finished."""
ALERT_BYTES, KEY_UPDATE_BYTES = 2, 5

# Requests and responses

FULL = 16_350
"""A record with so much plaintext is full, and its message goes on: 16,384 bytes (RFC 8446, 5.1), 16,367
where they are padded."""
GO_SEGMENT, RAMP = 1203, 14
"""Go's first records on a connection hold no more than so many bytes with the overhead, the second twice as
many and so on, up to about the 14th (crypto/tls, dynamic record sizing)."""
LEAST = 10
"""No message is smaller: a smaller record belongs to the one before it."""
SAME = 2
"""Bytes by which headers of one kind differ, as their varints do."""
MILLISECOND = 1_000_000
NEAR = MILLISECOND // 5
"""Records closer together may be of one message, which its writer hands over in pieces."""
PATIENCE = 20 * MILLISECOND
"""So long a message waits for its trailer, if it began as those do that end with one."""
QUIET = 5 * MILLISECOND
"""Silence, if longer than two usual answers, after which nothing should wait for an answer."""
STUCK = 2
"""After so many of these, with answers between them, what waits is given up: it was cut wrongly."""
WAITING = 64
"""Requests kept without an answer."""
SILENT = 8
"""So many in a row without any answer, the first of them a second ago: they want none (acks=0)."""
GIVEN = 5
"""One answer less than this in a row, and they want some again."""
PAUSE = 5 * MILLISECOND
"""After it a message has ended."""
POLL = 90 * MILLISECOND
"""Shortest latency that may be that of a Fetch which waited."""
EARLY = 16
"""One that waits among so many first exchanges is no slow call: it is JoinGroup, or the first Fetch."""


@kernel
def room_for_exchanges(t: Any) -> None:
    """See that there is room for all that one record may bring."""
    if t.run[0].calls + WAITING + 2 > len(t.calls):
        lacks(t, WANT_CALLS, WAITING + 2)
    room_for_row(t, t.requests, REQUESTS)


@kernel
def take_data(t: Any, c: int, k: int, body: int) -> None:
    """Take a record of application data."""
    f, conn, s = t.frame[0], t.conns[c], t.sides[2 * c + k]
    is_broker = k != conn.client
    size = plain_size(conn, s, is_broker, body)
    if size <= 0:
        return
    first_time, time, packet = f.first_time, f.last_time, f.packet
    about = time if time >= 0 else s.hole_time  # of one that was not captured
    begin = begins(conn, s, is_broker, about, size)
    learn_writing(conn, s, t.sides[2 * c + 1 - k], about, size, begin)
    if is_broker:
        take_response(t, c, begin, first_time, time, packet, size)
    else:
        take_request(t, c, begin, first_time, time, packet, size)


@kernel
def begins(conn: Any, s: Any, is_broker: bool, time: int, size: int) -> bool:
    """Whether a record begins a message."""
    gap = time - s.data_time
    if s.pieces == 0:
        return True
    if s.prefix:
        return size == 4 and s.full == 0
    if size < LEAST or s.full or (size >= FULL and s.gathers):
        return False
    if is_broker and s.pieces == 1 and abs(size - s.head) <= SAME and conn.reply >= 0:
        return True  # like the answer before; without a request of its own, two were in one record (Node.js)
    if is_broker and conn.in_flight == 0:
        return False
    if s.trailer and s.pieces > 1 and s.data_size == s.trailer:
        return True
    if s.header and abs(s.head - s.header) <= SAME and gap < PATIENCE:
        return s.trailer == 0 and gap > NEAR and abs(size - s.header) <= SAME
    if s.trailer and s.header and s.pieces == 1 and not is_broker:
        return True
    return is_broker or s.gathers == 0 or gap >= NEAR


@kernel
def learn_writing(conn: Any, s: Any, other: Any, time: int, size: int, begin: bool) -> None:
    """Learn how an end cuts its messages into records."""
    if begin:
        paused = other.data_time > s.data_time or time - s.data_time > PAUSE
        if s.pieces > 1 and s.data_size < LEAST and paused:
            if s.trailer_once == s.data_size:
                s.trailer = s.data_size
            s.trailer_once = s.data_size
        if s.pieces > 1 and s.apart and s.head < FULL:
            if abs(s.head - s.header_once) <= SAME:
                s.header = s.head
            s.header_once = s.head
        s.apart = 1 if paused else 0
        if s.data_time == 0:
            s.prefix = 1 if s.from_start and size == 4 else 0
            s.ramp = 0 if s.from_start else RAMP
        s.head, s.pieces = size, 0
    elif size < LEAST:
        s.gathers = 1
    s.pieces += 1
    s.data_before, s.data_time, s.data_size = s.data_time, time, size
    s.ramp = min(s.ramp + 1, RAMP)
    step = s.ramp * (GO_SEGMENT - conn.overhead)
    s.full = 1 if size >= FULL or (s.ramp < RAMP and size == step) else 0


@kernel
def take_request(t: Any, c: int, begin: bool, first_time: int, time: int, packet: int, size: int) -> None:
    """A record of the client: of its latest request, or of a new one."""
    conn = t.conns[c]
    client, broker = t.sides[2 * c + conn.client], t.sides[2 * c + 1 - conn.client]
    if not begin and conn.in_flight:
        go_on(t, conn, client, time, packet, size)
        return
    about = client.data_time
    silence = about - max(broker.data_time, client.data_before) > max(QUIET, 2 * conn.usual)
    if silence:
        settle_doubt(conn)
    if conn.in_flight:
        give_up_waiting(t, c, broker.data_time, about, silence)
    if conn.in_flight == 0:
        conn.quiet = 0
    if conn.data_time < 0:
        conn.data_time = first_time
    row = take(t, t.requests, REQUESTS)
    request = t.requests[row]
    clear(t, 0)
    keep(t, row)
    request.conn, request.unasked, request.serial, request.shown, request.layout = c, 0, -1, 0, -1
    request.key, request.version, request.correlation_id, request.client_id = EXCHANGE, -1, NONE, -2
    request.software = request.software_version = -1
    request.order, request.first_time, request.last_time = t.run[0].order, first_time, time
    request.size, request.packet, request.in_flight, request.status = size, packet, conn.in_flight, ESTIMATED_
    request.pieces, request.head = 1, size
    link(t, row)


@kernel
def go_on(t: Any, conn: Any, client: Any, time: int, packet: int, size: int) -> None:
    """Add a record to the latest request."""
    row = conn.last_request
    latest = t.requests[row]
    before = latest.before
    if size < LEAST and before >= 0 and (latest.pieces == 1 or client.trailer == 0):
        # The first messages of a writer that hands over pieces were cut behind their header.
        head = t.requests[before]
        early = client.header == 0 and (latest.pieces == 1 or latest.head >= FULL)
        near = latest.first_time - head.last_time < (PAUSE if early else NEAR)
        if head.pieces == 1 and near and client.pieces == latest.pieces + 1:
            head.size, head.pieces = head.size + latest.size, 1 + latest.pieces
            client.head, client.apart = head.head, 1
            let_go(t, row)
            latest = head
    latest.last_time = time
    latest.packet = packet
    latest.size, latest.pieces = latest.size + size, latest.pieces + 1


@kernel
def let_go(t: Any, row: int) -> None:
    """Give the row of a request back."""
    unlink(t, row)
    forget(t, row)
    drop_request(t, row)


@kernel
def settle_doubt(conn: Any) -> None:
    """After a silence: the exchanges before it are paired rightly if nothing waited then."""
    if (conn.in_flight or conn.merged) and not conn.silent:
        conn.doubtful += conn.fresh
    conn.fresh = conn.merged = 0


@kernel
def give_up_waiting(t: Any, c: int, answered: int, time: int, silence: bool) -> None:
    """Before a new request: tell those that got no answer and will get none. The broker's latest record came
    at `answered`."""
    conn = t.conns[c]
    oldest = t.requests[conn.first_request].first_time
    many, alone = conn.in_flight >= WAITING, answered < oldest
    if silence and answered > conn.quiet_until:
        conn.quiet, conn.quiet_until = conn.quiet + 1, time
    if conn.silent or (alone and (many or (conn.in_flight >= SILENT and time - oldest > SECOND))):
        conn.silent = 1
        tell_waiting(t, c)
    elif many or (conn.quiet >= STUCK and not alone):
        tell_waiting(t, c)


@kernel
def tell_waiting(t: Any, c: int) -> None:
    """Tell all requests that wait, which got no answer."""
    conn = t.conns[c]
    while conn.in_flight:
        row = conn.first_request
        tell(t, row, False, ESTIMATED_, 0)
        conn.exchanges += 1
        let_go(t, row)


@kernel
def take_response(t: Any, c: int, begin: bool, first_time: int, time: int, packet: int, size: int) -> None:
    """A record of the broker: of the response in progress, or of a new one."""
    conn = t.conns[c]
    if not begin:
        if conn.reply >= 0:
            conn.reply_last, conn.reply_packet = time, packet
            conn.reply_size, conn.reply_pieces = conn.reply_size + size, conn.reply_pieces + 1
        return
    if conn.in_flight:
        tell_reply(t, c)
        if conn.silent:
            conn.silent = (conn.silent + 1) % GIVEN
        latency = t.sides[2 * c + 1 - conn.client].data_time - t.sides[2 * c + conn.client].data_time
        conn.usual += (latency - conn.usual) >> 3
        row = conn.first_request
        unlink(t, row)
        t.requests[row].before = t.requests[row].after = -1
        conn.reply = row
        if conn.in_flight == 0:
            conn.quiet = 0
    elif conn.reply >= 0:  # two requests in one record: the same once more, without bytes
        tell_exchange(t, c)
        t.requests[conn.reply].size = 0
        conn.merged = 1
    else:
        return  # its request was not seen
    conn.fresh += 1
    conn.reply_first, conn.reply_last, conn.reply_packet = first_time, time, packet
    conn.reply_size = conn.reply_head = size
    conn.reply_pieces = 1


@kernel
def tell_reply(t: Any, c: int) -> None:
    """Tell the exchange in progress, if there is one."""
    conn = t.conns[c]
    row = conn.reply
    if row >= 0:
        tell_exchange(t, c)
        conn.reply = -1
        forget(t, row)
        drop_request(t, row)


@kernel
def tell_exchange(t: Any, c: int) -> None:
    """The same, and keep its request."""
    f, conn = t.frame[0], t.conns[c]
    request = t.requests[conn.reply]
    f.first_time, f.last_time = conn.reply_first, conn.reply_last
    f.packet, f.size = conn.reply_packet, conn.reply_size
    request.key = FETCH_EXCHANGE if may_wait(conn, request) else EXCHANGE
    clear(t, 1)
    tell(t, conn.reply, True, ESTIMATED_, 0)
    conn.exchanges += 1


@kernel
def may_wait(conn: Any, request: Any) -> bool:
    """Whether an exchange is a Fetch: its data are records of their own behind a header, or it waits, as
    others of its size do for as long; or its request has the size that Fetches had."""
    latency = conn.reply_first - request.last_time
    same = request.size == conn.wait_size
    if conn.reply_pieces > 1 and conn.reply_head < FULL:
        if same:
            add_size(conn, request.size)
        conn.wait, conn.wait_size = 0, request.size
        return True
    if latency > POLL:
        if same and abs(latency - conn.wait) <= conn.wait >> 4:
            add_size(conn, request.size)
        conn.wait, conn.wait_size = latency, request.size
        if conn.exchanges < EARLY:
            return True
    return has_size(conn, request.size)


@kernel
def has_size(conn: Any, size: int) -> bool:
    """Whether Fetches had this size."""
    return size == conn.fetch_a or size == conn.fetch_b or size == conn.fetch_c or size == conn.fetch_d


@kernel
def add_size(conn: Any, size: int) -> None:
    """Fetches have this size, too."""
    if not has_size(conn, size):
        conn.fetch_d, conn.fetch_c = conn.fetch_c, conn.fetch_b
        conn.fetch_b, conn.fetch_a = conn.fetch_a, size


@kernel
def lose_exchanges(t: Any, c: int) -> None:
    """Records were lost, nobody knows how many: what is in progress ends here."""
    conn = t.conns[c]
    room_for_exchanges(t)
    tell_reply(t, c)
    tell_waiting(t, c)
    conn.doubtful += conn.fresh
    conn.fresh = conn.merged = 0
    for k in range(2):
        t.sides[2 * c + k].pieces = 0


@kernel
def settle_exchange(t: Any, c: int, now: int) -> None:
    """Tell the exchange in progress if its response must be over by `now`."""
    if t.conns[c].reply >= 0 and now > t.conns[c].reply_last + SECOND:
        room_for_exchanges(t)
        tell_reply(t, c)


@kernel
def finish_exchanges(t: Any, c: int) -> None:
    """No more comes: tell what is in progress."""
    room_for_exchanges(t)
    tell_reply(t, c)
    tell_waiting(t, c)
