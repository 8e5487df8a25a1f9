"""The capture-trust paragraph that follows every run, on standard error."""

from __future__ import annotations

import sys

from kwsniff.report.trust import TrustTotals, paragraph


class Trust:
    """Totals for the pipeline to fill, and their telling."""

    def __init__(self, *, wanted: bool) -> None:
        self._wanted = wanted
        self.totals = TrustTotals()

    def show(self) -> None:
        """Print the paragraph unless the user asked for quiet."""
        if self._wanted:
            print(paragraph(self.totals), file=sys.stderr)
