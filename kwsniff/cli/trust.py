"""The capture-trust paragraph that follows every run, on standard error."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from kwsniff.net.packets import CaptureTotals
from kwsniff.report.trust import TrustTotals, paragraph

if TYPE_CHECKING:
    from kwsniff.where.predicate import Window


class Trust:
    """Totals of packets, for the pipeline to fill, and of events, and their telling."""

    def __init__(
        self, *, wanted: bool, window: Window | None = None, instead: Callable[[], str] = lambda: ""
    ) -> None:
        """`window`: the time that it is to be about. `instead` says what there is where Kafka is not."""
        self._instead = instead
        self._wanted = wanted
        self._window = window
        self._events = TrustTotals()
        self.capture = CaptureTotals()

    def watch(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same batches, counted."""
        for batch in batches:
            self._events.add(batch if self._window is None else self._window.seen(batch))
            yield batch
            del batch  # before the next is made

    @property
    def anomalies(self) -> dict[str, int]:
        """Anomalies by code."""
        return self._events.anomalies

    def text(self) -> str:
        """The paragraph, as one line; nothing if the user asked for quiet."""
        return self.paragraph() if self._wanted else ""

    def paragraph(self) -> str:
        """The same, whatever the user asked for."""
        return self._paragraph(whole=True)

    def _paragraph(self, *, whole: bool) -> str:
        capture = self.capture if self.capture.packets else None
        instead = self._instead() if self.is_empty and self._window is None else ""
        return paragraph(self._events, capture, whole=whole, window=self._window is not None, instead=instead)

    @property
    def is_empty(self) -> bool:
        """Whether there is no Kafka."""
        return not self._events.connections and not self._events.calls

    def show(self, *, whole: bool = True) -> None:
        """Print the paragraph, fitted to the terminal if it goes to one, unless the user asked for quiet.
        `whole`: the run went to the end of its input."""
        if not self._wanted:
            return
        text = self._paragraph(whole=whole)
        if sys.stderr.isatty():
            text = textwrap.fill(text, shutil.get_terminal_size().columns)
        print(text, file=sys.stderr)
