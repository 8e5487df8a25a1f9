"""What a live session shows that somebody should know: the rules of `kwsniff.findings` over its events.

Events wait until there are enough to be worth looking at, for a batch costs milliseconds however small it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from kwsniff.findings import NEEDED, Finding, Findings, Thresholds
from kwsniff.findings.finding import NOT_SHOWN, OK, table
from kwsniff.live.sink import Health
from kwsniff.report.csv import write_batches

ENOUGH = 8192
"""Events looked at at a time."""
FILE = "findings.csv"


class LiveFindings:
    """Takes the events of a session; `found` may be asked at any time."""

    def __init__(
        self, errors: Mapping[int, tuple[str, bool]] | None = None, thresholds: Thresholds | None = None
    ) -> None:
        """`errors` as in `Findings.found`."""
        self._rules = Findings(thresholds)
        self._errors = errors
        self._waiting: list[pa.RecordBatch] = []
        self._rows = 0

    def add(self, events: pa.RecordBatch) -> None:
        """Take events (see `kwsniff.table.EVENTS`)."""
        self._waiting.append(events.select([name for name in events.schema.names if name in NEEDED]))
        self._rows += events.num_rows
        if self._rows >= ENOUGH:
            self._look()

    def tick(self, health: Health) -> None:
        """Time alone says nothing."""

    def close(self) -> None:
        """Look at the last events."""
        self._look()

    def found(self) -> list[Finding]:
        """What was found so far, the worst first, without rules that found nothing."""
        self._look()
        return [each for each in self._rules.found(self._errors) if each.severity not in (OK, NOT_SHOWN)]

    def write(self, directory: Path) -> None:
        """Write findings.csv, as `kwsniff report --csv` does. Raises OSError."""
        self._look()
        rows = table(self._rules.found(self._errors))
        write_batches(directory / FILE, rows.schema, rows.to_batches())

    def _look(self) -> None:
        waiting, self._waiting, self._rows = self._waiting, [], 0
        if waiting:
            self._rules.take(pa.concat_batches(waiting))
