"""The capture-trust paragraph that follows every run, on standard error."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator

import pyarrow as pa

from kwsniff.net.totals import CaptureTotals
from kwsniff.report.trust import TrustTotals, paragraph


class Trust:
    """Totals of packets, for the pipeline to fill, and of events, and their telling."""

    def __init__(self, *, wanted: bool) -> None:
        self._wanted = wanted
        self._events = TrustTotals()
        self.capture = CaptureTotals()

    def watch(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same batches, counted."""
        for batch in batches:
            self._events.add(batch)
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
        return paragraph(self._events, self.capture if self.capture.packets else None)

    def show(self, *, whole: bool = True) -> None:
        """Print the paragraph, fitted to the terminal if it goes to one, unless the user asked for quiet.
        `whole`: the run went to the end of its input."""
        if not self._wanted:
            return
        text = paragraph(self._events, self.capture if self.capture.packets else None, whole=whole)
        if sys.stderr.isatty():
            text = textwrap.fill(text, shutil.get_terminal_size().columns)
        print(text, file=sys.stderr)
