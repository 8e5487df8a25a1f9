"""What is told of a connection beside its calls: anomalies (rows of `notes`), also those that wait until it
is known who the client is; and, while a run is traced, decisions."""

from __future__ import annotations

from typing import Any

from kwsniff.engine.arena import WANT_DECISIONS, WANT_NOTES, drop_piece, lacks, take_piece
from kwsniff.engine.steps import CODEC_UNKNOWN as UNKNOWN
from kwsniff.engine.steps import CUT_SHORT, MALFORMED
from kwsniff.engine.tables import PIECES, PROBING
from kwsniff.native.mode import kernel
from kwsniff.rows.events import ANOMALIES

# Numbers of anomaly codes, as `notes` hold them: places in `kwsniff.rows.events.ANOMALIES`.

CODES = tuple(ANOMALIES)
"""The code of each number."""

(
    GAP, OVERLAP_DIFFERS, REORDER_LIMIT, TIME_BACKWARDS, CLOCKS_DIFFER, RESYNCHRONISED, FRAME_SIZE_INVALID,
    FRAME_TOO_LARGE, FRAME_INCOMPLETE, BUFFER_LIMIT, NOT_KAFKA, UNKNOWN_API, UNKNOWN_VERSION,
    HEADER_MALFORMED, CORRELATION_ID_REUSED, RESPONSE_OUT_OF_ORDER, RESPONSE_BEFORE_REQUEST,
    REPLY_TO_ACKS_0, OUTSTANDING_LIMIT, CONNECTION_LIMIT, TRAILING_BYTES, CRC_MISMATCH, BATCH_MALFORMED,
    CODEC_UNKNOWN,
) = (
    CODES.index(code)
    for code in (
        "gap", "overlap_differs", "reorder_limit", "time_backwards", "clocks_differ", "resynchronised",
        "frame_size_invalid", "frame_too_large", "frame_incomplete", "buffer_limit", "not_kafka",
        "unknown_api", "unknown_version", "header_malformed", "correlation_id_reused",
        "response_out_of_order", "response_before_request", "reply_to_acks_0", "outstanding_limit",
        "connection_limit", "trailing_bytes", "crc_mismatch", "batch_malformed", "codec_unknown",
    )
)  # fmt: skip
BAD_BODY = 1000
"""Added to the code of what is wrong with a body in `notes.code`: the wording needs the bytes."""
MAX_PENDING = 100
"""Anomalies that wait until it is known who the client is."""


@kernel
def room_for_notes(t: Any, count: int) -> None:
    """See that so many notes can be added, or can wait."""
    if t.run[0].notes + count > len(t.notes):
        lacks(t, WANT_NOTES, count)
    if t.pools[PIECES].live + count > len(t.pieces):
        lacks(t, PIECES, count)


@kernel
def note(t: Any, c: int, code: int, packet: int, time: int, a: int, b: int) -> None:
    """Add an anomaly of a connection; that there is room has been seen to. While it is not known who the
    client is, it waits: its row names the client."""
    if t.conns[c].state == PROBING and t.conns[c].pending_notes < MAX_PENDING:
        at = take_piece(t)
        piece = t.pieces[at]
        piece.start, piece.packet, piece.time, piece.end, piece.side = code, packet, time, a, b
        append_note(t, c, at)
    else:
        add_note(t, c, code, packet, time, a, b)


@kernel
def add_note(t: Any, c: int, code: int, packet: int, time: int, a: int, b: int) -> None:
    """Add a row of `notes`."""
    run = t.run[0]
    row = t.notes[run.notes]
    run.notes += 1
    row.order, row.conn, row.number = run.order, c, t.conns[c].number
    row.client = t.conns[c].client
    row.code, row.packet, row.time = code, packet, time
    row.a, row.b, row.c = a, b, 0
    row.at, row.size = 0, 0
    row.rank, row.left = run.rank, t.conns[c].left


@kernel
def append_note(t: Any, c: int, at: int) -> None:
    """Let an anomaly wait, which is in a row of `pieces`, behind those of its connection."""
    conn = t.conns[c]
    t.pieces[at].next = -1
    if conn.pending_last >= 0:
        t.pieces[conn.pending_last].next = at
    else:
        conn.pending_first = at
    conn.pending_last = at
    conn.pending_notes += 1


@kernel
def release_notes(t: Any, c: int) -> None:
    """Add the anomalies that waited; that there is room has been seen to."""
    conn = t.conns[c]
    while conn.pending_first >= 0:
        at = conn.pending_first
        piece = t.pieces[at]
        add_note(t, c, piece.start, piece.packet, piece.time, piece.end, piece.side)
        conn.pending_first = piece.next
        drop_piece(t, at)
    conn.pending_last, conn.pending_notes = -1, 0


@kernel
def note_now(t: Any, c: int, code: int, a: int, b: int) -> None:
    """Add an anomaly of a connection at its latest packet."""
    note(t, c, code, t.conns[c].last_packet, t.conns[c].last_time, a, b)


# Record data that is damaged: an anomaly for each kind of damage of a partition.

KINDS = 3
"""Anomalies that one partition may bring."""


@kernel
def note_damage(t: Any, rows: int) -> None:
    """Tell what is wrong with the record data of the first `rows` of `rows`; that there is room has been seen
    to."""
    for at in range(rows):
        row = t.rows[at]
        if row.mismatches:
            tell(t, row, CRC_MISMATCH, row.mismatches)
        if row.damage & CUT_SHORT:
            tell(t, row, BATCH_MALFORMED, -1)
        if row.damage & MALFORMED:
            tell(t, row, BATCH_MALFORMED, 0)
        elif row.damage & UNKNOWN:
            tell(t, row, CODEC_UNKNOWN, 0)


@kernel
def tell(t: Any, row: Any, code: int, what: int) -> None:
    """Add an anomaly of a partition: `what` is a number of batches, or -1 if its last batch is cut short."""
    f = t.frame[0]
    topic = row.name if row.name >= 0 else row.uuid
    time = f.last_time if f.last_time >= 0 else f.first_time
    note(t, f.conn, code, f.packet, time, what, topic)
    t.notes[t.run[0].notes - 1].c = row.partition


# Clocks of the two directions that differ, as where each was captured at a place of its own.
#
# What cannot come before something else, a SYN-ACK before its SYN or a response before its request, tells it.

SKEW = 1_000_000
"""Nanoseconds up to which packets may be out of order: interfaces with several queues do that."""


@kernel
def compare(t: Any, c: int, first: int, second: int, packet: int, time: int) -> None:
    """Notice that what came `second` has an earlier time than what came `first`; that there is room for a
    note was seen to."""
    conn = t.conns[c]
    if conn.skewed == 0 and first >= 0 and second >= 0 and first - second > SKEW:
        conn.skewed = 1
        note(t, c, CLOCKS_DIFFER, packet, time, first - second, 0)


# What the engine decided of a connection, and why: rows that are written only while a run is traced.
#
# Each decision is noted where it is taken, behind the last place at which its function may be stopped, so
# that none stands there twice. What does not fit any more is counted.

DECISIONS = (
    "opened", "segment", "waits", "out_of_window", "seen", "ignored", "gap", "held", "let_go", "accepted",
    "refused", "turned", "framing_lost", "framing_found", "cut_short", "request", "paired", "early",
    "paired_early", "orphan", "dropped", "unanswered", "limit", "closing", "unasked",
)  # fmt: skip
"""What is decided, by number."""
(
    OPENED, SEGMENT, WAITS, OUT_OF_WINDOW, SEEN, IGNORED, GAP_GIVEN_UP, HELD, LET_GO, ACCEPTED,
    REFUSED_, TURNED, FRAMING_LOST, FRAMING_FOUND, ENDS_EARLY, REQUEST, PAIRED, WAITS_EARLY, PAIRED_EARLY,
    ORPHANED, DROPPED, UNANSWERED, LIMITED, CLOSING, UNASKED,
) = range(len(DECISIONS))  # fmt: skip
EACH = 256
"""Decisions for which there is room before a segment is taken: hardly one brings more."""


@kernel
def room_for_decisions(t: Any) -> None:
    """See that what a segment brings can be noted, if somebody wants it."""
    if t.limits[0].trace and t.run[0].decisions + EACH > len(t.decisions):
        lacks(t, WANT_DECISIONS, t.run[0].decisions + EACH)


@kernel
def decided(t: Any, c: int, what: int, side: int, a: int, b: int) -> None:
    """Note a decision on a connection, if the run is traced."""
    if t.limits[0].trace:
        add_decision(t, c, what, side, a, b)


@kernel
def add_decision(t: Any, c: int, what: int, side: int, a: int, b: int) -> None:
    """Add a row of `decisions`, or count one that has no room."""
    run, conn = t.run[0], t.conns[c]
    if run.decisions >= len(t.decisions):
        run.undecided += 1
        return
    row = t.decisions[run.decisions]
    run.decisions += 1
    row.number, row.packet, row.time = conn.number, conn.last_packet, conn.last_time
    row.what, row.side, row.client, row.a, row.b = what, side, conn.client, a, b
    row.a_hi = row.a_lo = row.b_hi = row.b_lo = row.a_port = row.b_port = 0


@kernel
def opened(t: Any, c: int, packet: int) -> None:
    """Note that a connection was opened, and between whom."""
    run, conn = t.run[0], t.conns[c]
    if t.limits[0].trace and run.decisions < len(t.decisions):
        add_decision(t, c, OPENED, 0, conn.ports, 0)
        row = t.decisions[run.decisions - 1]
        row.packet, row.time = packet, conn.first_time
        row.a_hi, row.a_lo, row.b_hi, row.b_lo = conn.a_hi, conn.a_lo, conn.b_hi, conn.b_lo
        row.a_port, row.b_port = conn.a_port, conn.b_port
