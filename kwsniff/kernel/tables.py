"""Every table of the engine, each field declared once with what it means.

All fields are 64-bit integers. Times are nanoseconds since 1970, -1 if unknown; references to rows and texts
are -1 if there is none; numbers that may be null are NONE then. `Tables` is what every kernel function takes.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

from kwsniff.kernel.body_tables import BODY_ARRAYS, BODY_SPECS, BODY_WANTS, CALL_FIELDS, REQUEST_FIELDS


class Spec:
    """A table: its name, what a row is, and its fields with their meanings."""

    def __init__(self, name: str, what: str, /, **fields: str) -> None:
        self.name, self.what, self.fields = name, what, fields
        self.names = tuple(fields)
        self.row: type = type(name.title() + "Row", (), {"__slots__": self.names, "__init__": _zero})

    def __repr__(self) -> str:
        return f"Spec({self.name!r})"


def _zero(row: Any) -> None:
    """Make all fields of an interpreted row 0, as those of a new array are."""
    for name in row.__slots__:
        setattr(row, name, 0)


BYTES, WORDS = "bytes", "words"
"""Tables without fields: arrays of bytes and of 32-bit integers."""

# fmt: off
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
        length="payload bytes on the wire",
        captured="payload bytes at hand",
        buffer="which buffer holds them: 0 inline, 1 block, 2 extra",
        start="from where on",
        apart="1: another run follows its connection, here it only says what time it is",
        watched="answer to WATCH: 1 unless its connection is known not to be Kafka",
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
        want="after FULL: which table lacks room, see WANTS", room="how much of it is wanted",
        key="after PROGRAM: API", version="and version",
        finished="segments in all, once the input is over",
        opened="connections so far", followed="connections in the table",
        conns_used="rows of conns in use or free", conns_free="first free row",
        pieces_used="the same for pieces", pieces_free="first free row", pieces_live="rows in use",
        requests_used="the same for requests", requests_free="first free row",
        early_used="the same for early", early_free="first free row",
        quiet_first="connection that was silent longest", quiet_last="the one that spoke last",
        oldest="connection with the lowest number", newest="the one with the highest",
        giving="what is being given up, 0 for nothing", goal="how much of it may stay",
        giver="connection at which giving up goes on, -1 if none", least="a connection that holds as much gives up",
        floor="bytes of the arena that nobody could give up", told_bytes="bytes of texts that calls in the tables refer to",
        packet_bytes="and those of the segment at hand",
        waiting="requests in flight, in all",
        arena_used="bytes of the arena in use or free", arena_live="bytes in use",
        calls="rows of calls filled", notes="rows of notes filled", ends="rows of ends filled",
        bodies="rows of bodies filled", body_bytes="bytes of body_data filled",
        bodies_waiting="bytes of bodies of requests in flight that are shown", kept="bytes of keep filled",
        steps="work done: segments, bytes searched and list entries passed",
        effort="bytes of bodies that may still be read in the search at hand",
        conn="connection of the segment at hand, -1 if it is not known yet",
        moment="time of the segment at hand, as far as it is believed", moment_row="its place in the input",
        compared="1: the segment at hand was compared with what was delivered",
        stray="whether the segment at hand is out of place, see `kwsniff.kernel.strays`",
        jump="packet time far ahead of the clock that no other bore out yet, -1 if none",
        serial="bodies kept so far",
        replaying="1: a held piece is being delivered", crowd="connections that are to end to make room",
        pairing="request whose response came before it and is to be paired now, -1 if none",
        now="time told by a source that goes on for ever, -1 if none",
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
        part="1: the run began in the middle of the input, what its first frames belong to is not known",
    ),
    Spec(
        "conns",
        "a TCP connection; end a is the one with the lower address",
        a_hi="address of end a, upper half", a_lo="lower half", b_hi="of end b", b_lo="lower half",
        a_port="port of end a", b_port="port of end b",
        next="next of the same hash, or next free",
        number="place in the input of its first packet, from 1; 0 if the row is free",
        state="see STATES",
        client="end of the client, 0 or 1; -1 while unknown",
        ports="bit 0: end a is on a Kafka port, bit 1: end b",
        capture="number of the capture file of its latest packet",
        first_time="of its first packet", last_time="latest packet time",
        first_packet="number of the first packet",
        last_packet="number of the latest packet", last_order="its place in the input",
        syn_time="of the SYN", syn_ack_time="of the SYN-ACK", handshake="from SYN to the ACK that ends it",
        reset_time="of an RST that has not closed it yet", reset_order="its place",
        closed_by="0 unknown, 1 client, 2 broker, with 4 for RST, 8 for FIN",
        closed_time="packet time of that",
        syn="1: a SYN was seen", fin="1: a FIN was seen", rst="1: an RST was seen",
        backwards="1: time ran backwards",
        copies="segments that the capture holds twice",
        alert="256 * level + description of the first TLS alert in the clear, -1 if none",
        alert_side="end that sent it",
        step="how far it was closed, see `kwsniff.kernel.connections`",
        ending="reason for which it is being closed, see REASONS; 0 if it is not",
        silent_before="neighbour that was silent longer", silent_after="neighbour that spoke later",
        older="neighbour with a lower number", newer="neighbour with a higher one",
        held_first="first piece held while it is not judged", held_last="last one",
        held_bytes="bytes of them", held="how many",
        judged="bytes held when it was judged in vain", tries="how often what was held was let go",
        untold_first="first anomaly that waits for a verdict (pieces)", untold_last="last one",
        untold="how many",
        held_pending="1: the item at hand was held and is to be judged",
        first_request="request in flight that came first", last_request="the one that came last",
        in_flight="requests in flight",
        first_unasked="oldest remembered request without reply", last_unasked="latest", unasked="how many",
        first_early="oldest response without request", last_early="latest", early="how many",
        response_gap="1: response bytes were lost since the last call",
        answered="correlation id of the latest answered request, UNKNOWN if none",
        raw_tokens="1: SASL tokens follow that are no messages",
        raw_waiting="such tokens of the client without the broker's",
        mechanism="SASL mechanism (text)", user="SASL user (text)", tokens="SASL tokens seen",
        software="client library (text)", software_version="its version (text)",
        asked_software="as its latest request says, until the broker accepts it",
        asked_version="its version",
        client_id="latest client id (text), -1 null, -2 none seen",
        response_end="time at which the latest response ended",
        throttled_until="time until which the broker said it mutes the connection",
        undecoded="frames with an undecoded body",
        frames="frames cut, both ways",
        proven="1: content proved that it is Kafka; before that it tells no calls",
        giving="1: it is giving up what it holds",
        turned="1: the roles of its ends were turned round",
        aside_first="first request that was taken out of place (pieces)", aside_last="last one",
        aside="how many",
    ),
    Spec(
        "sides",
        "one direction of a connection: row 2 * connection + end",
        next_seq="sequence number of the next byte wanted, -1 until the first segment",
        offset="bytes of the stream before it, gaps included",
        from_start="1: the first byte of the stream was captured",
        isn="sequence number of the SYN, -1 if not seen",
        fin_at="offset of the FIN, -1 if not seen",
        packets="packets from this end", bytes="payload bytes from it",
        missing="bytes that the capture lacks", retransmitted="payload bytes that were seen before",
        again="segments of them, without keep-alives and copies",
        zero_windows="how often it closed its window", shut="1: its window is closed",
        acked="highest offset that the other end acknowledged, -1 if none",
        hole_packets="packets of the connection when the first hole opened", hole_time="and its time",
        wait_first="first piece behind a hole", wait_last="last one", waiting="how many",
        waiting_bytes="bytes they take",
        far="piece that is too far ahead to be believed, -1 if none",
        spoken="1: payload of this end was captured",
        history="bytes kept of what was delivered last, to compare retransmissions with",
        history_at="where in the arena, -1 if none", history_room="bytes taken there",
        synchronised="1: it is known where frames begin",
        lost="1: it was known once",
        buf="where the frame in progress, or what is searched, lies in the arena; -1: nowhere",
        room="bytes there", have="bytes used",
        block="where its block in the arena begins", block_room="bytes of that",
        size="bytes of the frame in progress with its length, 0 while unknown",
        got="bytes of it that went by, lost ones included",
        broken="1: bytes of it are missing or not kept",
        first_time="time of its first byte", frame_time="time of the packet that came last",
        frame_order="place of that packet", frame_packet="its number",
        frames="frames cut", resynchronised="how often framing was found again",
        skipped="bytes that belong to no frame", skipped_before="of them when framing was last found",
        latest="correlation id of the latest request, UNKNOWN if none",
        searched="bytes of the buffer that were searched in vain",
        hope="bytes that what is searched would have if a response begins there, 0 if none may",
        stray_end="sequence number behind the latest segment out of place, -1 if none",
    ),
    Spec(
        "pieces",
        "part of a stream that waits: behind a hole, or for a verdict",
        next="next piece, or next free",
        start="offset in its stream", end="offset behind it, on the wire",
        side="end it came from", gap="1: these bytes are missing",
        at="where in the arena, -1 if nothing", size="bytes kept",
        time="packet time", packet="number of its packet", order="its place in the input",
    ),
    Spec(
        "requests",
        "a request in flight",
        next="next of the same hash, or next free",
        conn="its connection", after="request after it on its connection, -1 if none", before="and before it",
        unasked="1: it wants no reply, and is only remembered",
        key="API", version="version", correlation_id="correlation id",
        layout="row of layouts, -1 if the API or version is unknown",
        client_id="text, -1 null, -2 none",
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
        next="next of its connection, or next free", before="and before it",
        correlation_id="correlation id",
        order="place in the input", first_time="of its first byte", last_time="of its last",
        size="bytes with the length", packet="packet that completed it",
        at="where in the arena", have="bytes kept",
        room="bytes taken in the arena",
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
    Spec(
        "notes",
        "an anomaly",
        order="place in the input", conn="row of its connection", number="its number",
        code="see CODES", packet="packet it was noticed in", time="packet time",
        a="what it is about", b="further", c="further",
        at="where in keep the bytes are that it is about", size="how many",
    ),
    Spec(
        "ends",
        "a connection that is over",
        order="place in the input", conn="row of the connection", number="its number",
        capture="number of the capture file",
        client="end of the client", known="1: it has a row of its own among the events",
        a_hi="address of end a, upper half", a_lo="lower half", b_hi="of end b", b_lo="lower half",
        a_port="port of end a", b_port="port of end b",
        state="as of the connection",
        first_time="of the first packet", last_time="of the last packet",
        client_packets="", broker_packets="", client_bytes="", broker_bytes="",
        client_missing="", broker_missing="", client_retransmitted="", broker_retransmitted="",
        syn="", fin="", rst="", handshake="", closed_by="",
        client_again="", broker_again="", client_shut="", broker_shut="", copies="", alert="", alert_side="",
        client_id="", first_packet="", last_packet="",
        mechanism="", user="", resynchronised="", skipped="", frames="", undecoded="",
    ),
    Spec(
        "calls",
        "a call that is over",
        order="place in the input", conn="row of its connection", number="its number",
        capture="number of the capture file", client="end of the client",
        key="API, -1 if unknown", version="version", correlation_id="correlation id",
        client_id="text, -1 null, -2 none",
        first_time="first byte of the request", last_time="last byte of it",
        response_first="first byte of the response", response_last="last byte of it",
        size="bytes of the request, NONE if not captured", response_size="bytes of the response",
        packet="packet that completed the request, -1 if none", response_packet="that of the response",
        status="OK_ and so on", because="0, or why there is no answer",
        in_flight="requests in flight when it was sent",
        software="text", software_version="text", user="text", mechanism="text",
        response_end="time at which the response before it ended, -1 if unknown",
        throttled_until="time until which the connection was muted when it came",
        handshake="round trip of the handshake, -1 if unknown",
        closed_by="as of the connection", open_until="until when an unanswered request waited, -1 if answered",
        request_body="number of its body, -1 if not kept", response_body="that of the response",
        **CALL_FIELDS,
    ),
    Spec(
        "bodies",
        "a body that is to be shown",
        order="place in the input", conn="row of its connection", number="its number",
        serial="number of the body", packet="packet that completed its frame", time="packet time",
        key="API", version="version whose layout it has", direction="0 request, 1 response",
        guessed="1: it is of a newer version than is known",
        at="where in body_data it is", size="bytes",
    ),
    Spec("slots", "a place of the hash table of connections", first="first connection"),
    Spec("asked", "a place of the hash table of requests in flight", first="first request"),
    Spec("bins", "free blocks of the arena, by size", first="where the first is, -1 if none"),
    Spec("ports", "a Kafka port", port="its number"),
    *(Spec(name, what, **fields) for name, what, fields in BODY_SPECS),
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

UNKNOWN = -(1 << 40)
"""No correlation id was seen before: clients may use any number, some do use -1."""

(PROBING, KAFKA, TLS, OTHER, CLOSED) = range(5)
"""States of a connection: not judged, Kafka, TLS records, something else, over. From PROBING each of the
others is reached; from KAFKA and OTHER, CLOSED; nothing leads back but turning the roles round."""

(CLOSED_REASON, RESET_REASON, CAPTURE_REASON, GAP_REASON, LIMIT_REASON, TIMEOUT_REASON) = range(1, 7)
"""Why a request got no answer: UNANSWERED_REASONS in the order of `kwsniff.kernel.names`."""

(OK_, ERROR_, NO_REPLY_, UNANSWERED_, ORPHAN_, UNDECODED_, TRUNCATED_) = range(7)
"""Statuses of a call, in the order of `kwsniff.events.STATUSES`."""

WANTS = (
    "conns", "pieces", "requests", "early", "arena", "calls", "notes", "ends", "keep", "bodies", "body_data",
    *BODY_WANTS,
)  # fmt: skip
"""Tables that may have to grow, or to be emptied."""
