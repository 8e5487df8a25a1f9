"""The plain path: most traffic in compiled kernels (numba), the same events as the exact path's.

It is used where numba is installed and the input is large enough to be worth loading it. Everything else,
and whatever the kernels are not certain of, is the exact path's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kwsniff.config import Config
from kwsniff.engine.block import ROUND
from kwsniff.engine.bulk import warm
from kwsniff.engine.bulk.columns import CALL_SEQUENCE
from kwsniff.engine.bulk.link import ready
from kwsniff.engine.rows import Endpoints, Rows

if TYPE_CHECKING:
    from kwsniff.engine import Events
    from kwsniff.engine.connection import Connection

WORTH = 100_000
"""Segments of an input from which on loading the kernels takes less time than it saves."""
AT_ONCE = 1024
"""Connections in a round: each takes some kilobytes of tables."""
FEW = 8
"""A connection that the plain path left after fewer segments is fed exactly for longer each time."""


@dataclass(slots=True)
class Slice:
    """Segments of one connection in a block, from a row to a row."""

    endpoints: Endpoints
    begin: int
    end: int
    connection: Connection | None = None
    due: int = 0
    """Not before this row is the plain path to be tried again."""
    failures: int = 0


class PlainPath:
    """The plain path of one run."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._seen = 0
        self._ready: bool | None = None
        self._rounds: Any = None
        self._rows: Rows | None = None
        self._segments: Any = None

    def __getstate__(self) -> dict[str, Any]:
        """Without tables and kernels, which are made again when they are wanted."""
        return {**self.__dict__, "_ready": None, "_rounds": None, "_rows": None, "_segments": None}

    def wanted(self, segments: int) -> bool:
        """Whether to use it for a block of so many segments, and those to come."""
        self._seen += segments
        if self._rounds is not None:
            return True
        if not self._worth():
            return False
        from kwsniff.engine.bulk.round import Rounds

        self._rounds = Rounds(self._config)
        return True

    def _worth(self) -> bool:
        if self._config.kernels != "auto" or self._seen <= WORTH:
            return self._config.kernels == "always"
        if self._ready is None:
            self._ready = warm.kernels() == warm.READY
        return self._ready

    def done(self) -> None:
        """The run is over; what it compiled will be there for the next."""
        if self._rounds is not None:
            warm.mark_ready()

    def ready(self, connection: Connection) -> bool:
        """Whether it could go on with a connection."""
        return ready(connection)

    def take(self, rows: Rows, slices: list[Slice], events: Events) -> list[Slice]:
        """Take what is plain from the slices, whose connections are ready; returns those with more."""
        if not slices:
            return []
        if self._rows is not rows:
            from kwsniff.engine.bulk.round import Segments

            self._rows, self._segments = rows, Segments(rows)
        stops: list[int] = []
        for first in range(0, len(slices), AT_ONCE):
            shares = [(one.connection, one.begin, one.end) for one in slices[first : first + AT_ONCE]]
            events.rounds.append(len(events.calls))
            taken, block, places = self._rounds.take(self._segments, rows, shares, events.calls)
            stops += taken
            block.calls[CALL_SEQUENCE] += len(events.rounds) << ROUND
            events.blocks.append(block)
            events.places.update(places)
        left = []
        for one, stop in zip(slices, stops, strict=True):
            one.failures = 0 if stop - one.begin >= FEW else one.failures + 1
            one.begin = stop
            one.due = stop + (1 << min(one.failures * 2, 12))
            if stop < one.end:
                left.append(one)
        return left
