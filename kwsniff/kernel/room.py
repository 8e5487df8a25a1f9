"""Saying which table lacks room."""

from __future__ import annotations

from typing import Any

from kwsniff.kernel.mode import kernel
from kwsniff.kernel.numbers import FULL


@kernel
def want(t: Any, which: int, room: int) -> int:
    """Note that table `which` (a place in WANTS) has to have `room` rows; returns FULL."""
    run = t.run[0]
    run.want = which
    run.room = room
    return FULL
