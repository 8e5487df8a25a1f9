"""What the engine decided of a connection, and why: rows that are written only while a run is traced.

Each decision is noted where it is taken, behind the last place from which its function may have to be called
again, so that none stands there twice. What does not fit any more is counted.
"""

from __future__ import annotations

from typing import Any

from kwsniff.engine.arena import WANT_DECISIONS, lacks
from kwsniff.native.mode import kernel

DECISIONS = (
    "opened", "segment", "waits", "out_of_window", "seen", "ignored", "gap", "held", "let_go", "accepted",
    "refused", "turned", "framing_lost", "framing_found", "cut_short", "request", "paired", "early",
    "paired_early", "orphan", "dropped", "unanswered", "limit", "closing", "unasked",
)  # fmt: skip
"""What is decided, by number."""
(
    OPENED, SEGMENT, WAITS, OUT_OF_WINDOW, SEEN, IGNORED, GAP_GIVEN_UP, HELD, LET_GO, ACCEPTED,
    REFUSED_, TURNED, FRAMING_LOST, FRAMING_FOUND, CUT_SHORT, REQUEST, PAIRED, WAITS_EARLY, PAIRED_EARLY,
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
