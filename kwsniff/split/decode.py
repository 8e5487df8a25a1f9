"""One split: SEGMENTS in, EVENTS and edges out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from kwsniff.arrow import events_batch, segment_columns
from kwsniff.config import Config
from kwsniff.pace import Pace
from kwsniff.pipeline import Part, collector_paused
from kwsniff.split.edge import Edge
from kwsniff.split.engine import SplitEngine


class SplitDecoder:
    """Decodes one split: first take all `events`, then the `edges`."""

    def __init__(self, config: Config, split: int, first: bool) -> None:
        self._config = config
        self._engine = SplitEngine(config, split, first)

    def events(self, segments: Iterable[pa.RecordBatch]) -> Iterator[Part]:
        """EVENTS of the split, with keys that order them, comparable with those of other splits.

        Those of guessed connections carry a provisional id.
        """
        pace = Pace(self._config)
        for batch in segments:
            for part in pace.slices(batch):
                columns = segment_columns(part)
                with collector_paused():
                    events = self._engine.feed(columns)
                    pace.learn(len(events.calls) + sum(map(len, events.blocks)) + self._engine.load)
                    made = events_batch(events, columns.capture, self._config)
                del events
                yield made

    def edges(self) -> Iterator[Edge]:
        """What has to be stitched."""
        return self._engine.edges()

    @property
    def clock(self) -> int:
        """Latest packet time of its segments, in nanoseconds; 0 without any."""
        return self._engine.clock
