"""How late it must be by now where nothing comes through a pipe."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pyarrow as pa

from kwsniff.net.totals import CaptureTotals

TICK_S = 1.0
CURRENT_S = 600.0
"""How far packet time may be from this machine's clock where packets come as they are captured."""


class Quiet:
    """Tells the time about once a second while no segments come.

    Only where packets are new when they come: a pipe through which somebody sends an old capture may stand
    still for other reasons, and time does not pass in the capture meanwhile.
    """

    def __init__(self, totals: CaptureTotals) -> None:
        self._totals = totals
        self._heard = self._told = time.monotonic()
        self._current = False

    def heard(self) -> None:
        """Segments have come."""
        self._heard = time.monotonic()
        last = self._totals.last_time_ns
        self._current = last is not None and abs(time.time_ns() - last) < CURRENT_S * 1e9

    def batches(self) -> Iterator[pa.RecordBatch]:
        """A batch that says how late it is (`kwsniff.pipeline.at_time`), if it is time for one."""
        now = time.monotonic()
        last = self._totals.last_time_ns
        if self._current and last is not None and now - max(self._heard, self._told) >= TICK_S:
            from kwsniff.pipeline import at_time  # loads the engine, which who reads packets can do without

            self._told = now
            yield at_time(last + round((now - self._heard) * 1e9))
