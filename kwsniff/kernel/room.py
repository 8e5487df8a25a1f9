"""Saying which table lacks room."""

from __future__ import annotations

from typing import Any

from kwsniff.kernel.mode import kernel
from kwsniff.kernel.numbers import FULL
from kwsniff.kernel.tables import WANTS

WANT_CALLS, WANT_NOTES, WANT_ENDS = (WANTS.index(name) for name in ("calls", "notes", "ends"))
WANT_KEEP, WANT_BODIES, WANT_BODY_DATA = (WANTS.index(name) for name in ("keep", "bodies", "body_data"))
WANT_ARENA, WANT_DECISIONS = WANTS.index("arena"), WANTS.index("decisions")


@kernel
def lacks(t: Any, which: int, room: int) -> int:
    """Note that table `which` (a place in WANTS) has to have `room` rows, or room for so many more if it is
    one that is emptied; returns FULL."""
    run = t.run[0]
    run.want = which
    run.room = room
    return FULL
