"""Every table of the engine, each field declared once with what it means.

All fields are 64-bit integers. Times are nanoseconds since 1970, -1 if unknown; references to rows and texts
are -1 if there is none; numbers that may be null are NONE then. `Tables` is what every kernel function takes.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

from kwsniff.engine.row_tables import BODY_ARRAYS, BODY_SPECS, BODY_WANTS, EVENT_SPECS, REQUEST_FIELDS
from kwsniff.native.rowcopies import BYTES, COUNTER, TEXT, Field, Spec, counter, ref, text, unknown

UNKNOWN = -(1 << 40)
"""No correlation id was seen before: clients may use any number, some do use -1."""

# fmt: off
CONNECTIONS = Spec(
    "conns",
    "a TCP connection; end a is the one with the lower address",
    a_hi="address of end a, upper half", a_lo="lower half", b_hi="of end b", b_lo="lower half",
    a_port="port of end a", b_port="port of end b",
    next="next of the same hash, or next free",
    number="place in the input of its first packet, from 1; 0 if the row is free, negative if it was taken out",
    state="see STATES",
    client="end of the client, 0 or 1; -1 while unknown",
    ports="bit 0: end a is on a Kafka port, bit 1: end b; bit 2: neither, but one began like a client",
    capture="number of the capture file of its latest packet",
    first_time="of its first packet", last_time="latest packet time",
    first_packet="number of the first packet",
    last_packet=unknown("number of the latest packet"), last_order=unknown("its place in the input"),
    syn_time=unknown("of the SYN"), syn_ack_time=unknown("of the SYN-ACK"),
    early_syn_ack=unknown("of a SYN-ACK that came before the SYN, -1 if none"),
    client_time=unknown("of the ACK that came before the SYN-ACK, -1 if none"),
    handshake=unknown("from SYN to the ACK that ends it"),
    reset_time=unknown("of an RST that has not closed it yet"), reset_order=unknown("its place"),
    closed_by="0 unknown, 1 client, 2 broker, with 4 for RST, 8 for FIN",
    closed_time="packet time of that",
    syn="1: a SYN was seen", fin="1: a FIN was seen", rst="1: an RST was seen",
    copies=counter("segments that the capture holds twice"),
    alert=unknown("256 * level + description of the first TLS alert in the clear, -1 if none"),
    alert_side="end that sent it",
    backwards="1: time ran backwards", skewed="1: the clocks of its directions differ",
    ended_inside="bit 0: a request ends where the connection did, and nothing of it is missing, bit 1: a response",
    step="how far it was closed, see `kwsniff.engine.connections`",
    ending="reason for which it is being closed, see REASONS; 0 if it is not",
    list="which of lists it is in", listed="place in the input where it came to its end",
    silent_before="neighbour that was silent longer", silent_after="neighbour that spoke later",
    older="neighbour with a lower number", newer="neighbour with a higher one",
    held_first=ref("pieces", "first piece held while it is not judged"), held_last=ref("pieces", "last one"),
    held_bytes="bytes of them", held="how many",
    judged="bytes held when it was judged in vain", tries="how often what was held was let go",
    pending_first=ref("pieces", "first anomaly that waits for a verdict (pieces)"), pending_last=ref("pieces", "last one"),
    pending_notes="how many",
    held_pending="1: the item at hand was held and is to be judged",
    first_request=ref("requests", "request in flight that came first"), last_request=ref("requests", "the one that came last"),
    in_flight="requests in flight",
    jumbled="1: their correlation ids may not ascend",
    first_unasked=ref("requests", "oldest remembered request without reply"), last_unasked=ref("requests", "latest"), unasked="how many",
    first_early=ref("early", "oldest response without request"), last_early=ref("early", "latest"), early="how many",
    response_gap="1: response bytes were lost since the last call",
    answered=Field("correlation id of the latest answered request, UNKNOWN if none", null=UNKNOWN),
    raw_tokens="1: SASL tokens follow that are no messages",
    raw_waiting="such tokens of the client without the broker's",
    mechanism=text("SASL mechanism"), user=text("SASL user"), tokens=counter("SASL tokens seen"),
    software=text("client library"), software_version=text("its version"),
    client_id=Field("latest client id, -1 null, -2 none seen", TEXT, -2),
    response_end=unknown("time at which the latest response ended"),
    throttled_until=unknown("time until which the broker said it mutes the connection"),
    undecoded=counter("frames with an undecoded body"),
    frames=counter("frames cut, both ways"),
    proven="1: content proved that it is Kafka; before that it tells no calls",
    giving="1: it is giving up what it holds",
    turned="1: the roles of its ends were turned round",
    left="of a connection that a part did not see begin, see `kwsniff.engine.left`: HEAD, then KNOWN",
    left_row=unknown("its row of lefts"),
    head_bytes="bytes of its head so far",
    unsure="1: whether responses were lost before the part it is not known, and would still matter",
    known_since=unknown("place of the first answer to a request of the part, -1 if none"),
    stray_low=Field("lowest correlation id of its responses without request", null=-UNKNOWN), stray_high=Field("highest one", null=UNKNOWN),
    syns="SYNs that began no new connection",
)
SIDES = Spec(
    "sides",
    "one direction of a connection: row 2 * connection + end",
    next_seq=unknown("sequence number of the next byte wanted, -1 until the first segment"),
    offset="bytes of the stream before it, gaps included",
    from_start="1: the first byte of the stream was captured",
    isn=unknown("sequence number of the SYN, -1 if not seen"),
    fin_at=unknown("offset of the FIN, -1 if not seen"), rst_at=unknown("offset of an RST that may be taken, -1 if none"), rst_time=unknown("its time"),
    born=unknown("TCP timestamp of the SYN, -1 if none"), oldest=unknown("lowest TCP timestamp of its segments, in a part"),
    syn_next=unknown("sequence number behind a SYN that nobody has answered yet and that is none of this connection, -1 if none"),
    syn_ack=unknown("what it acknowledged, -1 if it was no SYN-ACK"), syn_time=unknown("its time"),
    syn_tsval=unknown("its TCP timestamp"),
    packets=counter("packets from this end"), bytes=counter("payload bytes from it"),
    missing=counter("bytes that the capture lacks"), retransmitted=counter("payload bytes that were seen before"),
    again=counter("segments of them, without keep-alives and copies"),
    zero_windows=counter("how often it closed its window"), shut="1: its window is closed",
    acked=unknown("highest offset that the other end acknowledged, -1 if none"),
    doubted=unknown("sequence number behind a segment from this end that acknowledged what nobody saw, -1 if none"),
    hole_packets="packets of the connection when the first hole opened", hole_time="and its time",
    wait_first=ref("pieces", "first piece behind a hole"), wait_last=ref("pieces", "last one"), waiting="how many",
    waiting_bytes="bytes they take",
    spoken="1: payload of this end was captured",
    history="bytes kept of what was delivered last, to compare retransmissions with",
    history_at=ref("arena", "where in the arena, -1 if none"), history_room="bytes taken there",
    synchronised="1: it is known where frames begin",
    lost="1: it was known once",
    buf=ref("arena", "where the frame in progress, or what is searched, lies in the arena; -1: nowhere"),
    room="bytes there", have="bytes used",
    block="where its block in the arena begins", block_room="bytes of that",
    size="bytes of the frame in progress with its length, 0 while unknown",
    got="bytes of it that went by, lost ones included",
    broken="1: bytes of it are missing or not kept",
    first_time=unknown("time of its first byte"), frame_time=unknown("time of the packet that came last"),
    frame_order=unknown("place of that packet"), frame_packet=unknown("its number"),
    frames=counter("frames cut"), resynchronised=counter("how often framing was found again"),
    skipped=counter("bytes that belong to no frame"), skipped_before="of them when framing was last found",
    latest=Field("correlation id of the latest request, UNKNOWN if none", null=UNKNOWN),
    searched="bytes of the buffer that were searched in vain",
    hope="bytes that what is searched would have if a response begins there, 0 if none may",
    assumed="1: framing was found by what bytes look like, and no frame has borne it out yet",
)
COUNTED, COUNTED_OF_SIDES = CONNECTIONS.of(COUNTER), SIDES.of(COUNTER)
"""What is counted from the beginning of a connection, of it and of its directions."""

SPECS: list[Spec] = [
    Spec(
        "segments",
        "a TCP segment of the block at hand",
        packet="number of its packet in its file, from 1",
        time="packet time",
        src_hi="source address as IPv6, upper half", src_lo="lower half",
        dst_hi="destination address, upper half", dst_lo="lower half",
        src_port="source port", dst_port="destination port",
        seq="sequence number", ack="acknowledgement number", flags="TCP flags",
        tsval="TCP timestamp of the sender, -1 if there is none",
        length="payload bytes on the wire",
        captured="payload bytes at hand",
        buffer="which buffer holds them: 0 inline, 1 block, 2 extra",
        start="from where on",
        apart="1: another run follows its connection, here it only says what time it is",
        watched="answer to WATCH: 1 unless its connection is known not to be Kafka",
        order="its place in the input, if the run is sparse",
        stop="what is to be done after it then, see STOPS", left="row of lefts that this is about",
        file="number of the capture file",
    ),
    Spec(
        "run",
        "the run; there is one row",
        row="segment at hand", phase="how far that segment was taken, see PHASES",
        cursor="payload bytes of it that were delivered",
        item="piece of a stream at hand, -1 if none",
        order="place in the input of the segment at hand",
        clock="latest packet time so far",
        swept="clock at the latest sweep",
        capture="number of the capture file at hand",
        stopped="why the kernels were, see `kwsniff.engine.numbers`",
        want="FULL: which table lacks room, see WANTS", room="how much of it is wanted",
        key="PROGRAM: API", version="and version",
        finished="segments in all, once the input is over",
        opened="connections so far", followed="connections in the table",
        oldest="connection with the lowest number", newest="the one with the highest",
        giving="what is being given up, 0 for nothing", goal="how much of it may stay",
        giver="connection at which giving up goes on, -1 if none", least="a connection that holds as much gives up",
        floor="bytes of the arena that nobody could give up", emitted_bytes="bytes of texts that calls in the tables refer to",
        packet_bytes="and those of the segment at hand",
        waiting="requests in flight, in all",
        arena_used="bytes of the arena in use or free", arena_live="bytes in use",
        calls="rows of calls filled", notes="rows of notes filled", ends="rows of ends filled",
        bodies="rows of bodies filled", body_bytes="bytes of body_data filled",
        bodies_waiting="bytes of bodies of requests in flight that are shown", kept="bytes of keep filled",
        steps="work done: segments, bytes searched and list entries passed",
        effort="bytes of bodies that may still be read while the item at hand is searched",
        spent="bytes of them that the search at hand has read",
        conn="connection of the segment at hand, -1 if it is not known yet",
        moment="time of the segment at hand, as far as it is believed", moment_row="its place in the input",
        compared="1: the segment at hand was compared with what was delivered",
        fate="see `kwsniff.engine.follow.fate_of`, of the segment at hand",
        refused="1: its receiver drops the segment at hand",
        begun="end whose handshake the segment at hand goes on with, in a connection that begins there; -1 if none",
        syn_time="time of the SYN that the segment at hand answers in one, -1 if none",
        a_born="TCP timestamp of the SYN with which end a began it, -1 if none", b_born="of that of end b",
        jump="packet time far ahead of the clock that no other bore out yet, -1 if none",
        serial="bodies kept so far",
        replaying="1: a held piece is being delivered", crowd="connections that are to end to make room",
        decisions="rows of decisions filled", undecided="decisions that had no room",
        pairing="request whose response came before it and is to be paired now, -1 if none",
        now="time told by a source that goes on for ever, -1 if none",
        rank="place of what is told among what the same packet settles, see OWN",
        sparse="1: the input at hand is the beginning of some connections in a part, see `kwsniff.engine.left`",
        marks="rows of marks filled", lefts="rows of lefts filled",
        most_bytes="most bytes of the arena that were in use", most_waiting="most requests in flight",
        most_followed="most connections followed", most_shown="most bytes of bodies that were to wait",
        limited="1: a limit over all connections was reached", lossy="1: a head lacks bytes",
    ),
    Spec(
        "limits",
        "limits and choices of the run; there is one row",
        idle_time="silence after which a connection is over",
        reorder_packets="packets after which an acknowledged hole is given up",
        reorder_time="or time", hole_time="time after which any hole is given up",
        max_reorder_bytes="bytes that may wait behind holes of one stream",
        max_frame_bytes="longest frame", max_connection_bytes="longest frame that is kept",
        max_buffered_bytes="bytes held in all",
        max_outstanding="requests in flight on a connection",
        max_outstanding_total="requests in flight in all",
        max_connections="connections followed at once",
        orphan_time="how long a response waits for its request",
        request_timeout="how long a request waits, -1 for ever",
        detect="1: look for Kafka on other ports too",
        detect_bytes="bytes held while a connection is not judged",
        max_elements="array elements of a body", verify_crc="1: check CRCs of record batches",
        lists="1: topics and partitions of calls are wanted",
        full="1: bodies are kept to be shown", records="1: with the payloads of records",
        seed="of the hash functions",
        trace="1: what is decided is noted",
        part="1: the run began in the middle of the input, what its first frames belong to is not known",
        max_head_bytes="bytes of a connection's head in a part that are kept",
    ),
    CONNECTIONS,
    SIDES,
    Spec(
        "pieces",
        "part of a stream that waits: behind a hole, or for a verdict",
        next=ref("pieces", "next piece, or next free"),
        start="offset in its stream", end="offset behind it, on the wire",
        side="end it came from", gap="1: these bytes are missing",
        at=ref("arena", "where in the arena, -1 if nothing"), size="bytes kept",
        time="packet time", packet="number of its packet", order="its place in the input",
        packets="packets of the connection when it began to wait",
    ),
    Spec(
        "requests",
        "a request in flight",
        next="next of the same hash, or next free; of requests that differ in nothing only the first is there",
        twin="request found after it of those that differ in nothing but their time, -1 if none",
        twin_before="and before it", last_twin="the last of them, if this is the first",
        conn=ref("conns", "its connection"),
        after=ref("requests", "request after it on its connection"), before=ref("requests", "and before it"),
        unasked="1: it wants no reply, and is only remembered",
        key="API", version="version", correlation_id="correlation id",
        layout="row of layouts, -1 if the API or version is unknown",
        client_id=text("-1 null, -2 none"),
        order="place in the input", first_time="of its first byte", last_time="of its last",
        size="bytes with the length", packet="packet that completed it",
        in_flight="requests in flight when it was sent",
        status="OK_, TRUNCATED or UNDECODED",
        serial="number of its body, -1 if it was not kept", shown="bytes of it that count as waiting",
        **REQUEST_FIELDS,
    ),
    Spec(
        "early",
        "a response whose request has not come",
        next=ref("early", "next of its connection, or next free"), before=ref("early", "and before it"),
        correlation_id="correlation id",
        order="place in the input", first_time="of its first byte", last_time="of its last",
        size="bytes with the length", packet="packet that completed it",
        at=ref("arena", "where in the arena"), have="bytes kept",
        room="bytes taken in the arena",
    ),
    Spec(
        "item",
        "bytes of a stream that are delivered, or wait to be; there is one row",
        pos="where the first is at hand", size="how many are at hand",
        length="how many there are, those that the capture lacks with them",
        time="packet time, -1 if no packet brought them", packet="number of the packet, -1 then",
        order="its place in the input, -1 then",
    ),
    Spec(
        "frame",
        "the frame at hand; there is one row",
        conn="its connection", side="end it came from",
        start="where its length prefix is", end="behind its last byte at hand", size="bytes on the wire",
        first_time="of its first byte", last_time="of its last, -1 if that was not captured",
        packet="packet that completed it", order="place of the packet that settled it",
        whole="1: all bytes are at hand",
        body="where its body is", layout="row of layouts by which that was read",
    ),
    *EVENT_SPECS,
    Spec(
        "marks",
        "what a part has to remember of a segment",
        kind="HEAD_: it is of a head, OPENED: it opened a connection, SWEPT: silent connections were looked for,"
        " SPARE_: it is of a quiet connection",
        row="of segments", conn="of conns", number="of the connection", order="place in the input",
        time="of the sweep; of a quiet connection its row of lefts",
    ),
    Spec(
        "lefts",
        "a connection that a part did not see begin, from the segment on at which its state was known",
        conn="row of conns", number="of the connection", order="place of that segment",
        digest="of its state then",
        quiet="whether the broker had answered nothing yet, see QUIETS", time="of that segment",
        latest="correlation id of the latest request then", spare="1: all its segments since are kept",
        verdict="whether it is what it was taken for, see VERDICTS",
        before="row of the connection that it goes on with", over="1: it ended in the part",
        software="its text then (as `print_of` has it)", software_version="the same", user="the same",
        mechanism="the same",
        last_software="as it ended or the part did", last_version="the same", last_user="the same",
        last_mechanism="the same",
        backwards="as of the connection then", last_backwards="at its end",
        skewed="as of the connection then", last_skewed="at its end",
        throttled_until="as of the connection then",
        **dict.fromkeys(COUNTED, "then"),
        **{f"{end}_{name}": f"of end {end} then" for end in "ab" for name in ("offset", *COUNTED_OF_SIDES)},
        stray_low="lowest correlation id of the responses without request since", stray_high="highest one",
        syns="SYNs that began no new connection since",
        a_oldest="lowest TCP timestamp of end a since, -1 if none", b_oldest="of end b",
        by_end="end whose SYN began the next connection, -1 if none", by_seq="sequence number of that",
        unsteady="bit 0: framing of end a was lost since, bit 1: of end b",
        waiting="requests in flight as it ended or the part did",
        gap="1: whether responses were lost before that segment was not known then, 2: and it was asked for",
    ),
    Spec("pools", "a table whose rows are taken and given back, by its place in POOLS",
         used="rows in use or free", first="first free row, -1 if none", live="rows in use"),
    Spec("lists", "connections by silence: open ones, reset ones, closed ones",
         first="that was silent longest", last="that spoke last"),
    Spec("slots", "a place of the hash table of connections", first="first connection"),
    Spec("asked", "a place of the hash table of requests in flight", first="first request"),
    Spec("bins", "free blocks of the arena, by size", first="where the first is, -1 if none"),
    Spec("ports", "a Kafka port", port="its number"),
    *BODY_SPECS,
]
# fmt: on

ARRAYS: dict[str, str] = {
    "inline": BYTES,
    "block": BYTES,
    "extra": BYTES,
    "arena": BYTES,
    "keep": BYTES,
    "body_data": BYTES,
    **BODY_ARRAYS,
}
"""Tables without fields."""

NAMES = (*(spec.name for spec in SPECS), *ARRAYS)
_Tables = namedtuple("_Tables", NAMES)  # type: ignore[misc]
Tables: Any = _Tables
"""All tables, by name."""

# Values of fields

(PROBING, KAFKA, TLS, OTHER) = range(4)
"""States of a connection: not judged, Kafka, TLS records, something else. `kwsniff.engine.states` says what
leads from one to the next."""

(CLOSED_REASON, RESET_REASON, CAPTURE_REASON, GAP_REASON, LIMIT_REASON, TIMEOUT_REASON) = range(1, 7)
"""Why a request got no answer: UNANSWERED_REASONS in the order of `kwsniff.rows.events`."""

(OK_, ERROR_, NO_REPLY_, UNANSWERED_, ORPHAN_, UNDECODED_, TRUNCATED_) = range(7)
"""Statuses of a call, in the order of `kwsniff.rows.events.STATUSES`."""

OWN = 1 << 60
"""Rank of what a packet settles of its own connection. What it settles of others comes before, in the order in
which those were last heard of: their rank is the place of their latest packet."""

(HEAD, KNOWN) = 1, 2
"""Whether a part knows the state of a connection that it did not see begin."""
(HEAD_, OPENED, SWEPT, SPARE_) = range(4)
"""Kinds of marks."""
(GO_ON, UNTIL, BEGINS, SWEEP, SKIP) = range(5)
"""STOPS: what is to be done after a segment of a sparse run. UNTIL: the connection goes on in a part, BEGINS:
it begins in one, SWEEP: the row is no segment, but says when silent connections were looked for, SKIP: it is
none at all."""
(ANSWERING, QUIET, SPOILT, HEARD) = range(4)
"""QUIETS: a connection was known by an answer, or although the broker had answered nothing in the part; then
the broker said something that needs what came before, or an answer in order."""
(UNJUDGED, FITS, STATE_DIFFERS, CLIENT_DIFFERS, ANSWERED_LATE, OLD_SYN) = range(6)
"""VERDICTS on a connection as a part took it."""

POOLS = ("conns", "pieces", "requests", "early")
"""Tables whose rows are taken and given back, see `kwsniff.engine.arena`."""
(CONNS, PIECES, REQUESTS, EARLY) = range(4)
WANTS = (
    *POOLS, "arena", "calls", "notes", "ends", "keep", "bodies", "body_data",
    "decisions", *BODY_WANTS,
)  # fmt: skip
"""Tables that may have to grow, or to be emptied."""

SPEC_OF = {spec.name: spec for spec in SPECS}
COUNTED_OF_ENDS = tuple(name for name in COUNTED_OF_SIDES if f"client_{name}" in SPEC_OF["ends"].names)
"""What connections that are over tell of each of their ends."""
