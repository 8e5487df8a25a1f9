"""`kwsniff report`: its options, and what they ask for."""

from __future__ import annotations

from typing import Annotated

import typer

from kwsniff.cli.asked import Asked, asking
from kwsniff.cli.options import CHOICE, OUTPUT, Paths
from kwsniff.tuning import tuned

EXAMPLES = {
    "report": (
        "kwsniff report trace.pcapng",
        "kwsniff report captures/ --by topic,client --csv out",
        "kwsniff report trace.pcapng --around 12:03:05",
        "kwsniff report trace.pcapng --html trace.html",
    )
}
OPTIONS = (
    "by", "csv", "json", "html", "wide", "top", "where", "since", "until", "around", "threshold", "tz",
    "topic_ids", "color", "port", "recursive", "jobs", "memory", "quiet",
)  # fmt: skip


def _report(
    asked: Asked,
    by: Annotated[
        str | None,
        typer.Option(
            "--by",
            metavar="TABLE,...",
            help="Print these tables instead of the page: api, client, topic, broker, error.",
            rich_help_panel=CHOICE,
        ),
    ] = None,
    csv: Annotated[
        str | None,
        typer.Option(
            "--csv",
            metavar="DIR",
            help="Write one CSV file per table into this directory, and calls.csv with one row a call.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="Print the whole report as one JSON object instead of a page.",
            rich_help_panel=OUTPUT,
        ),
    ] = False,
    html: Annotated[
        str | None,
        typer.Option(
            "--html",
            metavar="FILE",
            help="Also write a page to send to somebody: one file with charts and tables, which needs no "
            "network. The input is read a second time for the fields of its slowest calls.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    wide: Annotated[
        bool,
        typer.Option(
            "--wide",
            help="Print tables with all their columns, however wide that gets.",
            rich_help_panel=OUTPUT,
        ),
    ] = False,
    around: Annotated[
        str | None,
        typer.Option(
            "--around",
            metavar="TIME",
            help="Only events of the minute around this time, in place of --since and --until.",
            rich_help_panel=CHOICE,
        ),
    ] = None,
    top: Annotated[
        int | None,
        typer.Option(
            "--top",
            metavar="N",
            min=0,
            help="Print N rows of each part of the page instead of what fits a screen; 0: all.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
) -> int:
    """Print what was found and where the time went, on one page.

    With --by, statistics of calls by API, client, topic, broker and error instead. Exit code 3 says that part
    of the input was damaged; the figures are of what could be decoded.
    """
    from kwsniff.cli import report as job

    choice = job.chosen(asked.choice, around)
    request = job.ReportRequest(
        asked.paths,
        asked.config,
        by,
        csv,
        json,
        choice,
        asked.quiet,
        asked.jobs,
        wide=wide,
        top=top,
        html=html,
    )
    return job.report(request)


report = asking(_report, files=Paths, order=OPTIONS, tuning=tuned)
