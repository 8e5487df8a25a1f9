"""One split: SEGMENTS in, EVENTS and edges out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from kwsniff.config import Config
from kwsniff.former import Analysis
from kwsniff.pipeline import Part
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
        analysis = Analysis(self._config, engine=self._engine)
        for batch in segments:
            yield from analysis.feed(batch)

    def edges(self) -> Iterator[Edge]:
        """What has to be stitched."""
        return self._engine.edges()

    @property
    def clock(self) -> int:
        """Latest packet time of its segments, in nanoseconds; 0 without any."""
        return self._engine.clock
