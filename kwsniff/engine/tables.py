"""Every table of the engine, each field declared once with what it means.

All fields are 64-bit integers. Times are nanoseconds since 1970, -1 if unknown; references to rows and texts
are -1 if there is none; numbers that may be null are NONE then. `Tables` is what every kernel function takes.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any, NoReturn

from kwsniff.engine.row_tables import (
    BODY_ARRAYS,
    BODY_SPECS,
    BODY_WANTS,
    CONNECTIONS,
    COUNTED_OF_SIDES,
    EVENT_SPECS,
    PART_SPECS,
    REQUEST_FIELDS,
    SIDES,
)
from kwsniff.native.mode import kernel
from kwsniff.native.rowcopies import BYTES, Spec, ref, text

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
        tsval="TCP timestamp of the sender, -1 if there is none",
        length="payload bytes on the wire",
        captured="payload bytes at hand",
        buffer="which buffer holds them: 0 inline, 1 block, 2 extra",
        start="from where on",
        apart="1: another run follows its connection, here it only says what time it is",
        watched="answer to WATCH: 1 unless its connection is known not to be Kafka",
        number="TLS: number of its connection, 0 if that is none of TLS", side="end that sent it",
        base="sequence number of the first byte of its stream, -1 if unknown", other_base="of the other end's",
        ahead="its sequence number less the one that is expected after it",
        acked="what it acknowledges less what the other end has sent",
        over="bit k: the stream of end k ended, and all of it is there",
        order="its place in the input, if the run is sparse or looks for TLS",
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
        stopped="why the kernels were, see `kwsniff.engine.tables`",
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
        sparse="1: the input at hand is the beginning of some connections in a part, see `kwsniff.engine.resumed`",
        marks="rows of marks filled", lefts="rows of lefts filled",
        most_bytes="most bytes of the arena that were in use", most_waiting="most requests in flight",
        most_followed="most connections followed", most_shown="most bytes of bodies that were to wait",
        limited="1: a limit over all connections was reached", lossy="1: a head lacks bytes",
        records="rows of records filled", record_bytes="bytes of record_data filled",
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
        tls="1: the records of TLS connections are cut, and nothing else is done",
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
        pieces="TLS: records of it so far", head="TLS: plaintext of the first one",
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
    *PART_SPECS,
    Spec(
        "records",
        "a TLS record of the segments at hand",
        number="of its connection", side="end that sent it", row="segment that completed it, or gave up what was missing",
        a_hi="of the connection", a_lo="", a_port="", b_hi="", b_lo="", b_port="",
        base="sequence number of the first byte of the stream",
        at="where in record_data it is with its header, -1 if bytes of it are missing", size="bytes with the header",
        unread="bytes of the stream between the record before it and this one",
        packet="packet that brought the last of its bytes", time="packet time", order="its place in the input",
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
    "record_data": BYTES,
    **BODY_ARRAYS,
}
"""Tables without fields."""

NAMES = (*(spec.name for spec in SPECS), *ARRAYS)
_Tables = namedtuple("_Tables", NAMES)  # type: ignore[misc]
Tables: Any = _Tables
"""All tables, by name."""

# Values of fields

(PROBING, KAFKA, TLS, OTHER) = range(4)
"""States of a connection: not judged, Kafka, TLS records, something else. `kwsniff.engine.connections` says what
leads from one to the next."""

(CLOSED_REASON, RESET_REASON, CAPTURE_REASON, GAP_REASON, LIMIT_REASON, TIMEOUT_REASON) = range(1, 7)
"""Why a request got no answer: UNANSWERED_REASONS in the order of `kwsniff.rows.events`."""

(OK_, ERROR_, NO_REPLY_, UNANSWERED_, ORPHAN_, UNDECODED_, TRUNCATED_, ESTIMATED_) = range(8)
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

EXCHANGE, FETCH_EXCHANGE = -2, -3
"""Stand for the API where TLS hides the call, and for Fetch (`kwsniff.engine.exchanges`)."""

POOLS = ("conns", "pieces", "requests", "early")
"""Tables whose rows are taken and given back, see `kwsniff.engine.arena`."""
(CONNS, PIECES, REQUESTS, EARLY) = range(4)
WANTS = (
    *POOLS, "arena", "calls", "notes", "ends", "keep", "bodies", "body_data",
    "decisions", "records", "record_data", *BODY_WANTS,
)  # fmt: skip
"""Tables that may have to grow, or to be emptied."""

SPEC_OF = {spec.name: spec for spec in SPECS}
COUNTED_OF_ENDS = tuple(name for name in COUNTED_OF_SIDES if f"client_{name}" in SPEC_OF["ends"].names)
"""What connections that are over tell of each of their ends."""


# Calling kernels

SECOND = 1_000_000_000
"""In nanoseconds."""
(DONE, FULL, PROGRAM, LEFT) = range(4)
"""Why kernels stopped, in `run.stopped`. FULL: a table has no room left, `run.want` says which. PROGRAM: the
layout that `run.key` and `run.version` name has to be loaded. LEFT: a connection of a part was not what it
was taken for (`kwsniff.engine.resumed`)."""


class Stopped(Exception):  # noqa: N818 (no error: they go on)
    """Kernels can't go on before the driver has done something: `run.stopped` says what. Whatever is going on
    is left as it is, and called again then: so a function that may be stopped changes nothing before, or
    nothing that it would do twice."""


@kernel
def stop(t: Any, why: int) -> NoReturn:
    """Raise Stopped."""
    t.run[0].stopped = why
    raise Stopped


(FOLLOW, FINISH, TICK, REHASH_TEXTS, REHASH_REQUESTS, REHASH_CONNECTIONS, COMPACT_TEXTS, WATCH, LEAVE, INTERN,
 ADOPT, MERGE, LINK) = range(13)  # fmt: skip
"""What kernels can be asked to do (`kwsniff.engine.follow.act`)."""
