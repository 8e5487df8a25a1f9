"""Record data that is damaged: an anomaly for each kind of damage of a partition."""

from __future__ import annotations

from typing import Any

from kwsniff.kernel.codes import BATCH_MALFORMED, CODEC_UNKNOWN, CRC_MISMATCH
from kwsniff.kernel.mode import kernel
from kwsniff.kernel.notes import note
from kwsniff.kernel.records import CODEC_UNKNOWN as UNKNOWN
from kwsniff.kernel.records import CUT_SHORT, MALFORMED

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
