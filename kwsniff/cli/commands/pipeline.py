"""`kwsniff pipeline`: its options, and what they ask for."""

from __future__ import annotations

from typing import Annotated

import typer

from kwsniff.cli.options import INPUT, OUTPUT, RUNNING, Full, Memory, Port, Quiet, Recursive, configured
from kwsniff.cli.problem import CommandError

FORMATS = ("parquet", "delta", "iceberg")
EXAMPLES = (
    "kwsniff pipeline captures/ --out results",
    "kwsniff pipeline --follow /var/captures --out results --window 1m",
)


def pipeline(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH",
            help="Capture files, or directories, which stand for the captures in them. "
            "Every worker must find them under the same path.",
            show_default=False,
        ),
    ],
    out: Annotated[
        str,
        typer.Option(
            "--out",
            metavar="DIR",
            help="Write tables, statistics and a manifest here: a directory, or a URL such as s3://bucket/name.",
            rich_help_panel=OUTPUT,
        ),
    ],
    form: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="Format of the tables: parquet, delta or iceberg (the latter two need the extra `lake`).",
            rich_help_panel=OUTPUT,
        ),
    ] = "parquet",
    master: Annotated[
        str | None,
        typer.Option(
            "--master",
            metavar="URL",
            help="Spark master. Default: this machine with all cores (local[*]).",
            rich_help_panel=RUNNING,
        ),
    ] = None,
    recursive: Recursive = False,
    append: Annotated[
        bool,
        typer.Option(
            "--append",
            help="Read only files that the manifest in DIR does not list; add them.",
            rich_help_panel=INPUT,
        ),
    ] = False,
    full: Full = False,
    port: Port = None,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions",
            metavar="N",
            min=1,
            help="Let so many tasks read everything and share the connections, instead of reading a part "
            "each. The result is the same.",
            show_default=False,
            rich_help_panel=RUNNING,
        ),
    ] = None,
    split_size: Annotated[
        int | None,
        typer.Option(
            "--split-size",
            metavar="MIB",
            min=1,
            help="Size of the part of the input that one task reads. Default: a core's share, 32 to "
            "1,024 MiB.",
            show_default=False,
            rich_help_panel=RUNNING,
        ),
    ] = None,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow",
            help="PATHs are directories that a capturing program rotates: decode every file once it is "
            "finished, until stopped (Ctrl-C). Goes on where it was when it is started again.",
            rich_help_panel=INPUT,
        ),
    ] = False,
    once: Annotated[
        bool,
        typer.Option(
            "--once",
            help="With --follow: take the finished files that are there, and stop; more may come.",
            rich_help_panel=INPUT,
        ),
    ] = False,
    end: Annotated[
        bool,
        typer.Option(
            "--end",
            help="With --follow: take the files that are there, and end the stream: connections that are "
            "open end, requests that wait are unanswered, all windows are closed.",
            rich_help_panel=INPUT,
        ),
    ] = False,
    window: Annotated[
        str,
        typer.Option(
            "--window",
            metavar="TIME",
            help="With --follow: length of the windows of statistics.",
            rich_help_panel=OUTPUT,
        ),
    ] = "1m",
    late: Annotated[
        str,
        typer.Option(
            "--late",
            metavar="TIME",
            help="With --follow: packet time after which a window is closed, for calls that take long.",
            rich_help_panel=OUTPUT,
        ),
    ] = "1m",
    settle: Annotated[
        str,
        typer.Option(
            "--settle",
            metavar="TIME",
            help="With --follow: how long nobody must have written to the newest file of a directory until "
            "it counts as finished.",
            rich_help_panel=INPUT,
        ),
    ] = "60s",
    state: Annotated[
        str | None,
        typer.Option(
            "--state",
            metavar="DIR",
            help="With --follow: directory for what the stream keeps between batches; all workers must see "
            "it. Default: .stream in --out.",
            show_default=False,
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    memory: Memory = "512M",
    quiet: Quiet = False,
    verbose: Annotated[
        bool, typer.Option("-v", "--verbose", help="Show Spark's own log.", rich_help_panel=OUTPUT)
    ] = False,
) -> None:
    """Decode captures on Apache Spark into tables of calls, anomalies, connections and findings.

    The rows are those of `kwsniff decode`. Needs the extra `spark`. With --follow, one line for each
    window of time is printed. Exit code 3 says that part of the input was damaged; everything decodable was
    written.
    """
    config = configured(port, memory, full=full)
    if form not in FORMATS:
        raise CommandError(f"--format {form}: there are {', '.join(FORMATS)}")
    if state is not None and not follow:
        raise CommandError("--state is for --follow")
    if follow or once or end:
        from kwsniff.cli import streaming

        if not follow or append:
            raise CommandError("--append is for runs without --follow; --once and --end are for --follow")
        if recursive:
            raise CommandError("--recursive does not go with --follow")
        wanted = streaming.StreamRequest(
            paths, out, config, master, partitions, window, late, settle, once, end, quiet, verbose,
            form, state,
        )  # fmt: skip
        raise typer.Exit(streaming.follow(wanted))
    from kwsniff.cli import pipeline as job
    from kwsniff.cli.arguments import deeper

    paths = deeper(paths) if recursive else paths
    split = None if split_size is None else split_size << 20
    request = job.PipelineRequest(paths, out, config, master, append, partitions, split, quiet, verbose, form)
    raise typer.Exit(job.pipeline(request))
