"""`kwsniff decode`: its options, and what they ask for."""

from __future__ import annotations

from typing import Annotated

import typer

from kwsniff.cli.options import (
    CHOICE,
    INPUT,
    OUTPUT,
    Color,
    Columns,
    Count,
    Full,
    Jobs,
    Memory,
    Paths,
    Port,
    Quiet,
    Recursive,
    Since,
    TopicIds,
    Tz,
    Until,
    Where,
    configured,
)
from kwsniff.cli.problem import CommandError
from kwsniff.cli.startup import OWN_PROCESS, tuned

EXAMPLES = (
    "kwsniff decode trace.pcapng",
    "kwsniff decode trace.pcapng -f csv --columns time,api,client_id,latency_us",
    "kwsniff decode captures/ -o errors.jsonl --where 'status == \"error\"'",
)


def decode(
    context: typer.Context,
    files: Paths,
    form: Annotated[
        str | None,
        typer.Option(
            "-f",
            "--format",
            metavar="FORMAT",
            help="text, jsonl, csv or parquet. Default: by the ending of OUT, else text.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "-o",
            "--output",
            metavar="OUT",
            help="Write to this file, which appears when it is complete, instead of standard output.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    full: Full = False,
    records: Annotated[
        bool,
        typer.Option(
            "--records",
            help="Show keys, values and headers of records in the bodies; implies --full.",
            rich_help_panel=CHOICE,
        ),
    ] = False,
    where: Where = None,
    since: Since = None,
    until: Until = None,
    tz: Tz = "UTC",
    topic_ids: TopicIds = None,
    color: Color = "auto",
    columns: Columns = None,
    port: Port = None,
    count: Count = None,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow",
            help="Read on as the files grow and new ones appear in the directories, until Ctrl-C; "
            "OUT grows with them.",
            rich_help_panel=INPUT,
        ),
    ] = False,
    duration: Annotated[
        str | None,
        typer.Option(
            "--duration",
            metavar="TIME",
            help="With --follow: end after this time, such as 90s, 10m or 8h.",
            rich_help_panel=INPUT,
        ),
    ] = None,
    trace: Annotated[
        str | None,
        typer.Option(
            "--trace",
            metavar="CONNECTION",
            help="Instead of rows, what was decided of one connection at each of its segments, and why. "
            "CONNECTION is its id, as in the column `connection`, or the beginning of it.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    jobs: Jobs = None,
    recursive: Recursive = False,
    memory: Memory = "512M",
    quiet: Quiet = False,
) -> None:
    """Write one row per event: calls, anomalies, connections.

    Rows come in the order in which events were completed. Exit code 3 says that part of the input was
    damaged; everything decodable was written.
    """
    if context.obj is OWN_PROCESS:
        tuned()
    from kwsniff.cli import decode as job
    from kwsniff.cli.arguments import deeper, parsed_duration
    from kwsniff.cli.choice import Choice

    config = configured(port, memory, full=full or records, records=records)
    if recursive and follow:
        raise CommandError("--recursive does not go with --follow")
    files = deeper(files) if recursive else files
    if trace is not None:
        from kwsniff.cli.trace import trace as tracing

        if follow or form not in (None, "text") or columns or where or since or until or count is not None:
            raise CommandError("--trace goes with none of the options that choose or shape rows")
        raise typer.Exit(tracing(files, trace, config, output, tz))
    if duration is not None and not follow:
        raise CommandError("--duration goes with --follow")
    seconds = parsed_duration(duration, "--duration")
    choice = Choice(where, since, until, tz, topic_ids, color)
    request = job.DecodeRequest(
        files, config, form, output, columns, choice, count, quiet, jobs, follow=follow, duration=seconds
    )
    raise typer.Exit(job.decode(request))
