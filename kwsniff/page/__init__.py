"""The default report: one page that can be pasted into a ticket.

What the input is and how far to trust it, what was found, what happened when, where the time went, errors
with who got them and where, the clients with most time, errors and bytes, and anomalies. It is as wide as the
terminal; what does not fit is counted, and `top` shows more.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, tzinfo
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from kwsniff.page import sections
from kwsniff.page.layout import HEIGHT, NARROWEST, WIDEST, WIDTH, Line, Section, shared
from kwsniff.page.sections import Tables

if TYPE_CHECKING:
    from kwsniff.analysis.errors import ErrorLine
    from kwsniff.analysis.findings import Finding
    from kwsniff.count.timeline import Timeline

__all__ = ["Page"]


@dataclass
class Page:
    """What one input shows, in lines."""

    tables: Tables
    """`api` and `client` of the report."""
    title: str
    trust: str
    findings: Sequence[Finding] = ()
    errors: Sequence[ErrorLine] = ()
    anomalies: Mapping[str, int] = field(default_factory=dict)
    note: str = ""
    """What whoever reads the figures has to know."""
    zone: tzinfo = UTC
    """The time zone of times."""
    timeline: Timeline | None = None
    again: str = "kwsniff decode FILE --where 'event == \"anomaly\"'"
    """The command that shows the anomalies."""

    def lines(self, *, top: int | None = None, width: int = WIDTH, height: int = HEIGHT) -> list[Line]:
        """The page in `height` lines, or with the first `top` rows of each section (0: all) in as many as
        that takes."""
        parts = self._sections(width, top)
        for each in parts:
            each.width = width
        if top is None:
            counts = shared(parts, height)
        else:
            counts = [min(len(part.blocks), top or len(part.blocks)) for part in parts]
        shown = [
            part.lines(count)
            for part, count in zip(parts, counts, strict=True)
            if part.blocks or part.head or part.tail
        ]
        loose = top is not None or sum(map(len, shown)) + len(shown) - 1 <= height
        lines: list[Line] = []
        for part in shown:
            if lines and loose:
                lines.append(Line(""))
            lines += part
        return lines

    def print(self, console: Console, *, top: int | None = None) -> None:
        """Print the page: as wide as the terminal, or as COLUMNS says, and as high, if that is more than a
        page."""
        width, height = WIDTH, HEIGHT
        if console.is_terminal:
            height = max(console.height, HEIGHT)
        if console.is_terminal or os.environ.get("COLUMNS", "").isdecimal():
            width = min(max(console.width, NARROWEST), WIDEST)
        for line in self.lines(top=top, width=width, height=height - 1):
            console.print(Text(line.text, style=line.style), soft_wrap=True, highlight=False)

    def _sections(self, width: int, top: int | None) -> list[Section]:
        """In the order in which they are printed."""
        return [
            sections.head(self.title, self.trust, self.note, width),
            sections.findings(self.findings, width, top, sum(self.tables["api"]["calls"].to_pylist())),
            sections.course(self.timeline, width, self.zone),
            sections.api(self.tables["api"], width),
            sections.errors(self.errors, width, self.zone),
            sections.clients(self.tables["client"], width),
            sections.anomalies(self.anomalies, self.again, width),
        ]
