"""The whole report of an input, as a notebook shows it."""

from __future__ import annotations

import html
import io
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kwsniff.api.inputs import Selection, Source, paths_of, rows
from kwsniff.config import Config

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from kwsniff.analysis.findings import Finding
    from kwsniff.analysis.report import Report
    from kwsniff.page.html import Page

SHOWN = 10
"""Rows of each table in a notebook."""


@dataclass
class Summary:
    """What `kwsniff report` says of an input: shown by a notebook, printed as the page of text."""

    page: Page
    """All of it, as the page in HTML is made from it."""
    config: Config

    @property
    def report(self) -> Report:
        """The statistics; `report.tables` are DataFrames by name: api, client, topic, broker, error."""
        return self.page.report

    @property
    def trust(self) -> str:
        """How far the capture can be trusted, in one paragraph."""
        return self.page.trust

    @cached_property
    def findings(self) -> pd.DataFrame:
        """The findings, as `kwsniff.analysis.findings` gives them."""
        import pandas as pd

        from kwsniff.analysis.finding import table

        frame: pd.DataFrame = table(self.page.findings).to_pandas(types_mapper=pd.ArrowDtype)
        return frame

    def write_html(self, path: str | os.PathLike[str], *, fields: bool = True) -> None:
        """Write the page to send to somebody (`kwsniff report --html`).

        Args:
            path: file to write.
            fields: read the captures again for the fields of the slowest calls and what groups were given.

        Raises:
            OSError: the file cannot be written.
            CaptureError: the captures cannot be read again.
        """
        from kwsniff.analysis.stored import is_stored

        paths = self.page.paths
        if fields and paths and not any(path == "-" or is_stored(path) for path in paths):
            self.page.read_again(self.config)
        Path(path).write_text(self.page.html(), encoding="utf-8")

    def __str__(self) -> str:
        from rich.console import Console

        from kwsniff.analysis.finding import about_input
        from kwsniff.page import Page as Text
        from kwsniff.page.title import title

        page = self.page
        text = Text(
            self.report.arrow, title(page.paths, self.report), page.trust,
            about_input(page.findings, page.paths), page.errors, page.anomalies, self.report.note,
            timeline=page.gathered.timeline,
        )  # fmt: skip
        console = Console(file=io.StringIO(), width=100, no_color=True)
        text.print(console)
        assert isinstance(console.file, io.StringIO)
        return console.file.getvalue()

    def _repr_html_(self) -> str:
        """Findings in sentences, then the tables by API and client, without script or style from outside."""
        from kwsniff.analysis.finding import NOT_SHOWN, OK
        from kwsniff.page.title import title

        bad = [each for each in self.page.findings if each.severity not in (OK, NOT_SHOWN)]
        parts = [
            f"<p><b>{_safe(title(self.page.paths, self.report))}</b></p>", f"<p>{_safe(self.trust)}</p>",
            _sentences(bad), self.report._repr_html_(),
        ]  # fmt: skip
        return "\n".join(parts)


def summary(
    paths: Source,
    *,
    where: str | None = None,
    since: str | None = None,
    until: str | None = None,
    tz: str = "UTC",
    **config: Any,
) -> Summary:
    """What `kwsniff report` says of an input, in one pass: findings, where the time went, errors, trust.

    A notebook shows it, `print` prints it, and its parts are there for more.

    Args:
        paths: as of `kwsniff.calls`.
        where, since, until, tz: which events count, as of `kwsniff.calls`.
        config: fields of `kwsniff.Config`.

    Raises:
        As `kwsniff.calls`.

    Example:
        >>> import kwsniff
        >>> found = kwsniff.summary("captures/throttled.pcapng")
        >>> found.report.tables["api"][["api", "calls", "throttled_calls"]].head(3)
                   api  calls  throttled_calls
        0      Produce     14                6
        1        Fetch     12                6
        2  ApiVersions      6                0
        >>> found.write_html("/tmp/throttled.html")  # doctest: +SKIP
    """
    from kwsniff.analysis.trust import paragraph
    from kwsniff.capture.source import CaptureTotals
    from kwsniff.count.coverage import Coverage
    from kwsniff.count.where.predicate import Window
    from kwsniff.page.html import NEEDED, Pass
    from kwsniff.rows.schema import EVENTS

    window = Window(since, until, tz) if since is not None or until is not None else None
    chosen, totals = Config(**config), CaptureTotals()
    taken = Pass(coverage=Coverage(None if window is None else window.parts))
    columns = NEEDED & frozenset(EVENTS.names)

    def see(batch: pa.RecordBatch) -> None:
        taken.see(batch, window)

    for batch in rows(paths, Selection(where, columns, since, until, tz), chosen, totals, see):
        taken.take(batch)
    page = taken.page(paths_of(paths) or [])
    page.where = where
    given = {"--since": since, "--until": until, "--tz": None if tz == "UTC" else tz}
    page.options = [part for name, value in given.items() if value is not None for part in (name, value)]
    page.trust = paragraph(taken.trust, totals if totals.packets else None, window=window is not None)
    return Summary(page, chosen)


def _sentences(found: Sequence[Finding]) -> str:
    items = [f"<li><b>{each.severity}</b> {_safe(each.sentence)}</li>" for each in found[:SHOWN]]
    left = f"<p>and {len(found) - SHOWN:,} more</p>" if len(found) > SHOWN else ""
    return f"<ul>{''.join(items)}</ul>{left}"


def _safe(text: str) -> str:
    from kwsniff.output.text import printable

    return html.escape(printable(text))
