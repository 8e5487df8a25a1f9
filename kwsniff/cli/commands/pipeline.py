"""`kwsniff pipeline`: its options, and what they ask for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from kwsniff.cli.asked import Asked, asking
from kwsniff.cli.options import INPUT, OUTPUT, RUNNING, Recursive
from kwsniff.cli.problem import CommandError
from kwsniff.cli.startup import untuned

FORMATS = ("parquet", "delta", "iceberg")
EXAMPLES = {
    "pipeline": (
        "kwsniff pipeline captures/ --out results",
        "kwsniff pipeline --follow /var/captures --out results --window 1m",
    )
}
OPTIONS = (
    "form", "master", "recursive", "append", "full", "port", "partitions", "split_size",
    "follow", "once", "end", "window", "late", "settle", "state", "memory", "quiet", "verbose",
)  # fmt: skip
Sources = Annotated[
    list[str],
    typer.Argument(
        metavar="PATH",
        help="Capture files, or directories, which stand for the captures in them. "
        "Every worker must find them under the same path.",
        show_default=False,
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineOptions:
    """What `kwsniff pipeline` alone can be asked."""

    out: Annotated[
        str,
        typer.Option(
            "--out",
            metavar="DIR",
            help="Write tables, statistics and a manifest here: a directory, or a URL such as s3://bucket/name.",
            rich_help_panel=OUTPUT,
        ),
    ]
    form: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="Format of the tables: parquet, delta or iceberg (the latter two need the extra `lake`).",
            rich_help_panel=OUTPUT,
        ),
    ] = "parquet"
    master: Annotated[
        str | None,
        typer.Option(
            "--master",
            metavar="URL",
            help="Spark master. Default: this machine with all cores (local[*]).",
            rich_help_panel=RUNNING,
        ),
    ] = None
    recursive: Recursive = False
    append: Annotated[
        bool,
        typer.Option(
            "--append",
            help="Read only files that the manifest in DIR does not list; add them.",
            rich_help_panel=INPUT,
        ),
    ] = False
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
    ] = None
    split_size: Annotated[
        int | None,
        typer.Option(
            "--split-size",
            metavar="MIB",
            min=1,
            help="Size of the part of the input that one task reads. Default: a core's share, 512 to "
            "1,024 MiB.",
            show_default=False,
            rich_help_panel=RUNNING,
        ),
    ] = None
    follow: Annotated[
        bool,
        typer.Option(
            "--follow",
            help="PATHs are directories that a capturing program rotates: decode every file once it is "
            "finished, until stopped (Ctrl-C). Goes on where it was when it is started again.",
            rich_help_panel=INPUT,
        ),
    ] = False
    once: Annotated[
        bool,
        typer.Option(
            "--once",
            help="With --follow: take the finished files that are there, and stop; more may come.",
            rich_help_panel=INPUT,
        ),
    ] = False
    end: Annotated[
        bool,
        typer.Option(
            "--end",
            help="With --follow: take the files that are there, and end the stream: connections that are "
            "open end, requests that wait are unanswered, all windows are closed.",
            rich_help_panel=INPUT,
        ),
    ] = False
    window: Annotated[
        str,
        typer.Option(
            "--window",
            metavar="TIME",
            help="With --follow: length of the windows of statistics.",
            rich_help_panel=OUTPUT,
        ),
    ] = "1m"
    late: Annotated[
        str,
        typer.Option(
            "--late",
            metavar="TIME",
            help="With --follow: packet time after which a window is closed, for calls that take long.",
            rich_help_panel=OUTPUT,
        ),
    ] = "1m"
    settle: Annotated[
        str,
        typer.Option(
            "--settle",
            metavar="TIME",
            help="With --follow: how long nobody must have written to the newest file of a directory until "
            "it counts as finished.",
            rich_help_panel=INPUT,
        ),
    ] = "60s"
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
    ] = None
    verbose: Annotated[
        bool, typer.Option("-v", "--verbose", help="Show Spark's own log.", rich_help_panel=OUTPUT)
    ] = False


def _pipeline(asked: Asked, own: PipelineOptions) -> int:
    """Decode many captures into tables, on Apache Spark.

    The tables are calls, anomalies, connections and findings; the rows are those of `kwsniff decode`. Needs
    the extra `spark`. With --follow, one line for each window of time is printed. Exit code 3 says that part
    of the input was damaged; everything decodable was written.
    """
    if own.form not in FORMATS:
        raise CommandError(f"--format {own.form}: there are {', '.join(FORMATS)}")
    if own.state is not None and not own.follow:
        raise CommandError("--state is for --follow")
    if own.follow or own.once or own.end:
        return _stream(asked, own)
    from kwsniff.cli import pipeline as job
    from kwsniff.cli.arguments import deeper

    split = None if own.split_size is None else own.split_size << 20
    request = job.PipelineRequest(
        deeper(asked.paths) if own.recursive else asked.paths, own.out, asked.config, own.master, own.append,
        own.partitions, split, asked.quiet, own.verbose, own.form,
    )  # fmt: skip
    return job.pipeline(request)


def _stream(asked: Asked, own: PipelineOptions) -> int:
    from kwsniff.cli.pipeline import StreamRequest, follow

    if not own.follow or own.append:
        raise CommandError("--append is for runs without --follow; --once and --end are for --follow")
    if own.recursive:
        raise CommandError("--recursive does not go with --follow")
    wanted = StreamRequest(
        asked.paths, own.out, asked.config, own.master, own.partitions, own.window, own.late, own.settle,
        own.once, own.end, asked.quiet, own.verbose, own.form, own.state,
    )  # fmt: skip
    return follow(wanted)


pipeline = asking(_pipeline, files=Sources, order=OPTIONS, tuning=untuned)
