"""Finds packets that a capture holds twice, see `kwsniff.net.copies`."""

from __future__ import annotations

from kwsniff.net.machine import Recent, find_copies
from kwsniff.net.packets import Integers, Mask
from kwsniff.net.tcp import Segments


class Duplicates:
    """Finds copies among the segments of one run, which come in blocks."""

    def __init__(self) -> None:
        self._recent = Recent()

    def find(self, segments: Segments, time_ns: Integers) -> Mask:
        """Which of these are copies of an earlier one; `time_ns` has one time for each."""
        return find_copies(self._recent, segments, time_ns)
