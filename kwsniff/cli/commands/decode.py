"""`kwsniff decode`: its options, and what they ask for."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from kwsniff.cli.asked import Asked, asking
from kwsniff.cli.options import CHOICE, INPUT, OUTPUT, Paths
from kwsniff.cli.problem import CommandError
from kwsniff.tuning import tuned

EXAMPLES = {
    "decode": (
        "kwsniff decode trace.pcapng",
        "kwsniff decode trace.pcapng -f csv --columns time,api,client_id,latency_us",
        "kwsniff decode captures/ -o errors.jsonl --where 'status == \"error\"'",
    )
}
OPTIONS = (
    "form", "output", "full", "records", "where", "since", "until", "tz", "topic_ids", "color", "columns",
    "port", "count", "follow", "duration", "trace", "jobs", "recursive", "memory", "quiet",
)  # fmt: skip


def _decode(
    asked: Asked,
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
    records: Annotated[
        bool,
        typer.Option(
            "--records",
            help="Show keys, values and headers of records in the bodies; implies --full.",
            rich_help_panel=CHOICE,
        ),
    ] = False,
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
) -> int:
    """Write one row per event: calls, anomalies, connections.

    Rows come in the order in which events were completed. Exit code 3 says that part of the input was
    damaged; everything decodable was written.
    """
    from kwsniff.cli import decode as job
    from kwsniff.cli.arguments import parsed_duration

    config = replace(asked.config, full=asked.config.full or records, records=records)
    if asked.recursive and follow:
        raise CommandError("--recursive does not go with --follow")
    if trace is not None:
        from kwsniff.cli.trace import trace as tracing

        shaped = form not in (None, "text") or asked.columns or asked.count is not None
        if follow or shaped or asked.where or asked.since or asked.until:
            raise CommandError("--trace goes with none of the options that choose or shape rows")
        return tracing(asked.paths, trace, config, output, asked.tz)
    if duration is not None and not follow:
        raise CommandError("--duration goes with --follow")
    seconds = parsed_duration(duration, "--duration")
    request = job.DecodeRequest(
        asked.paths, config, form, output, asked.columns, asked.choice, asked.count, asked.quiet, asked.jobs,
        follow=follow, duration=seconds,
    )  # fmt: skip
    return job.decode(request)


decode = asking(_decode, files=Paths, order=OPTIONS, tuning=tuned)
