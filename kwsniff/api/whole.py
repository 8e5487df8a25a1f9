"""The whole report of an input, as a notebook shows it."""

from __future__ import annotations

import html
import io
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from inspect import Parameter, Signature, cleandoc
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, Any, Protocol

from kwsniff.analysis.questions import AUDIT, AUTH, CLIENTS, ERRORS, GROUPS, SLOW, UPGRADE_CHECK, Question
from kwsniff.api.decoded import Selection, Source, as_frame, paths_of, plain, rows
from kwsniff.config import Config
from kwsniff.rows.schema import EVENTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd
    import pyarrow as pa

    from kwsniff.analysis.findings import Finding
    from kwsniff.analysis.report import Report
    from kwsniff.analysis.tabular import AnswerTable
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
        from kwsniff.analysis.rule import table

        return as_frame(table(self.page.findings))

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

        from kwsniff.analysis.rule import about_input
        from kwsniff.page import Page as Text
        from kwsniff.page.layout import title

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
        from kwsniff.analysis.rule import NOT_SHOWN, OK
        from kwsniff.page.layout import title

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
    from kwsniff.count.spans import Coverage
    from kwsniff.count.where.period import Window
    from kwsniff.page.html import NEEDED, Pass
    from kwsniff.rows.schema import EVENTS

    window = Window(since, until, tz) if since is not None or until is not None else None
    chosen, totals = Config(**plain(config)), CaptureTotals()
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


# The answers of `kwsniff clients`, `slow`, `groups` and so on as DataFrames.
#
# All take the same: what to read, what chooses the rows, and which of their tables is wanted. Those that are
# asked of one input alone are made from `kwsniff.analysis.questions`.


class Asking(Protocol):
    """A function that answers a question; `help` has what it alone can be asked."""

    def __call__(
        self,
        paths: Source,
        *of_its_own: Any,
        table: str | None = None,
        where: str | None = None,
        since: str | None = None,
        until: str | None = None,
        tz: str = "UTC",
        **more: Any,
    ) -> pd.DataFrame: ...


_CHOOSING = {"where": None, "since": None, "until": None, "tz": "UTC"}
"""What chooses the rows of every question, with its default."""


def _asking(question: Question) -> Asking:
    """The function that asks `question`."""
    own = [each for each in question.settings if each.meaning]
    parameters = [
        Parameter("paths", Parameter.POSITIONAL_OR_KEYWORD, annotation=Source),
        *(Parameter(each.name, Parameter.POSITIONAL_OR_KEYWORD) for each in own if each.required),
        *([_option("table", question.table)] if question.tables else []),
        *(_option(each.name, None if each.metavar else False) for each in own if not each.required),
        *(_option(name, default) for name, default in _CHOOSING.items()),
        Parameter("config", Parameter.VAR_KEYWORD),
    ]
    signature = Signature(parameters, return_annotation="pd.DataFrame")

    def asked(*given: Any, **named: Any) -> pd.DataFrame:
        bound = signature.bind(*given, **named)
        bound.apply_defaults()
        values = bound.arguments
        config = values["config"]
        # What a command's --full says to the question is a field of Config here.
        of_config = {each.name: bool(config.get(each.name)) for each in question.settings if each not in own}
        answer = question.asked(**{each.name: values[each.name] for each in own}, **of_config)
        chosen = Selection(columns=None, **{name: values[name] for name in _CHOOSING})
        _take(answer, values["paths"], chosen, config)
        return _chosen(answer.tables(), values.get("table"))

    asked.__name__ = asked.__qualname__ = question.function
    asked.__doc__ = _document(question)
    asked.__signature__ = signature  # type: ignore[attr-defined]
    return asked


def _option(name: str, default: Any) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default)


def _document(question: Question) -> str:
    """The docstring of its function."""
    own = [(each.name, each.meaning) for each in question.settings if each.meaning]
    table = [("table", question.tables)] if question.tables else []
    more = "; ValueError if there is no such table" if table else ""
    shared = [
        ("where, since, until, tz", "which calls count, as of `kwsniff.calls`"),
        ("config", "fields of `kwsniff.Config`"),
    ]
    arguments = [("paths", "as of `kwsniff.calls`"), *table, *own, *shared]
    listed = "\n".join(f"    {name}: {meaning}." for name, meaning in arguments)
    example = indent(f">>> import kwsniff\n{cleandoc(question.python)}", "    ")
    return (
        f"{question.summary}: `kwsniff {question.name}` as a DataFrame.\n\nArgs:\n{listed}\n\n"
        f"Raises:\n    As `kwsniff.calls`{more}.\n\nExample:\n{example}\n"
    )


audit = _asking(AUDIT)
auth = _asking(AUTH)
clients = _asking(CLIENTS)
errors = _asking(ERRORS)
groups = _asking(GROUPS)
slow = _asking(SLOW)
upgrade_check = _asking(UPGRADE_CHECK)


def compare(
    paths: Source, other: Source, *, table: str | None = None, where: str | None = None, **config: Any
) -> pd.DataFrame:
    """What differs between two inputs: `kwsniff compare` as a DataFrame.

    Args:
        paths, other: as of `kwsniff.calls`.
        table: one of the tables that `kwsniff compare` prints, by its name; the first one if none is given.
        where: which calls count, as of `kwsniff.calls`.
        config: fields of `kwsniff.Config`.

    Example:
        >>> import kwsniff
        >>> found = kwsniff.compare("captures/librdkafka-produce.pcapng", "captures/slow-broker.pcapng.zst")
        >>> found[["api", "calls_a", "calls_b"]].head(2)
                api  calls_a  calls_b
        0   Produce       30       61
        1  Metadata       18        3
    """
    from kwsniff.analysis.compare import Profile, compared

    profiles = (Profile(), Profile())
    for profile, each in zip(profiles, (paths, other), strict=True):
        _take(profile, each, Selection(where), config)
    return _chosen(compared(*profiles), table)


def findings(
    paths: Source,
    *,
    where: str | None = None,
    since: str | None = None,
    until: str | None = None,
    tz: str = "UTC",
    **config: Any,
) -> pd.DataFrame:
    """What somebody should know of an input, the worst first, as a DataFrame (docs/findings.md).

    Rows of severity ``ok`` and ``not_shown`` say what was looked at.

    Args:
        paths: as of `kwsniff.calls`.
        where, since, until, tz: which events count, as of `kwsniff.calls`.
        config: fields of `kwsniff.Config`; among them `thresholds`, pairs of name and value such as
            ``[("slow_ms", 250)]``, which docs/findings.md lists.

    Example:
        >>> import kwsniff
        >>> found = kwsniff.findings("captures/stuck-consumer.pcapng.zst")
        >>> found[found["code"] == "consumer_stands_still"][["severity", "subject"]]
          severity                  subject
        2  warning  billing-stuck@127.0.0.1
    """  # fmt: skip
    from kwsniff.analysis.findings import NEEDED, Findings, Thresholds
    from kwsniff.spec.load import catalog

    chosen = Config(**plain(config))
    rules, columns = Findings(Thresholds.of(chosen.thresholds)), NEEDED & frozenset(EVENTS.names)
    for batch in rows(paths, Selection(where, columns, since, until, tz), chosen):
        rules.take(batch)
    known = catalog().error_kinds
    return as_frame(rules.table(known))


def _take(question: Any, source: Source, asked: Selection, config: dict[str, Any]) -> None:
    columns = question.needs & frozenset(EVENTS.names)
    wanted = replace(asked, columns=columns, owned="connection" in columns)
    for batch in rows(source, wanted, Config(**plain(config))):
        question.take(batch)


def _chosen(tables: Sequence[AnswerTable], name: str | None) -> pd.DataFrame:
    found = [each for each in tables if name in (None, each.name)]
    if not found:
        raise ValueError(f"there is no table {name!r}; there are {', '.join(each.name for each in tables)}")
    return as_frame(found[0].arrow())
