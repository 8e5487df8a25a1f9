"""`kwsniff report`: its options, and what they ask for."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from kwsniff.cli.options import (
    CHOICE,
    OUTPUT,
    Color,
    Jobs,
    Memory,
    Paths,
    Port,
    Quiet,
    Recursive,
    Since,
    Threshold,
    TopicIds,
    Tz,
    Until,
    Where,
    chosen_thresholds,
    configured,
)
from kwsniff.cli.startup import OWN_PROCESS, one_heap

EXAMPLES = (
    "kwsniff report trace.pcapng",
    "kwsniff report captures/ --by topic,client --csv out",
    "kwsniff report trace.pcapng --html trace.html",
)


def report(
    context: typer.Context,
    files: Paths,
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
    where: Where = None,
    since: Since = None,
    until: Until = None,
    threshold: Threshold = None,
    tz: Tz = "UTC",
    topic_ids: TopicIds = None,
    color: Color = "auto",
    port: Port = None,
    recursive: Recursive = False,
    jobs: Jobs = None,
    memory: Memory = "512M",
    quiet: Quiet = False,
) -> None:
    """Print what was found and where the time went, on one page, or statistics of calls by API, client,
    topic, broker and error.

    Exit code 3 says that part of the input was damaged; the figures are of what could be decoded.
    """
    if context.obj is OWN_PROCESS:
        one_heap()
    from kwsniff.cli import report as job
    from kwsniff.cli.arguments import deeper
    from kwsniff.cli.choice import Choice

    files = deeper(files) if recursive else files
    config = replace(configured(port, memory), thresholds=chosen_thresholds(threshold))
    choice = Choice(where, since, until, tz, topic_ids, color)
    request = job.ReportRequest(files, config, by, csv, json, choice, quiet, jobs, wide, top, html)
    raise typer.Exit(job.report(request))
