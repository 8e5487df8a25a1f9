"""The commands and their options. What they do is imported when they run, so that start-up stays short."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from kwsniff import __version__
from kwsniff.cli.problem import USAGE, CommandError
from kwsniff.cli.startup import OWN_PROCESS, one_heap, tuned

if TYPE_CHECKING:
    from kwsniff.config import Config

app = typer.Typer(
    name="kwsniff",
    help="Passive analyzer of the Kafka wire protocol: captures in, calls, latencies and errors out.",
    invoke_without_command=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"kwsniff {__version__}")
        raise typer.Exit


@app.callback()
def root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback if kwsniff itself fails.")
    ] = False,
) -> None:
    """Passive analyzer of the Kafka wire protocol: captures in, calls, latencies and errors out."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), err=True)
        raise typer.Exit(USAGE)


Paths = Annotated[
    list[str],
    typer.Argument(
        metavar="FILE",
        help="Capture files: pcap or pcapng, also compressed by gzip, zstd, lz4 or xz. "
        "- is standard input; a directory stands for its captures in time order.",
        show_default=False,
    ),
]
Where = Annotated[
    str | None,
    typer.Option(
        "--where",
        metavar="EXPR",
        help="Only events for which EXPR holds, such as 'api == \"Fetch\" and latency_us > 5000'. "
        "The language is described in docs/decode.md.",
    ),
]
Full = Annotated[bool, typer.Option("--full", help="Add the decoded bodies of request and response.")]
Columns = Annotated[
    str | None,
    typer.Option(
        "--columns", metavar="C,...", help="Write these columns in this order; not for the text format."
    ),
]
Port = Annotated[
    str | None,
    typer.Option(
        "--port",
        metavar="P,...",
        help="Ports of brokers, single or as ranges (9092,19092-19094), instead of 9092-9094. "
        "Kafka on other ports is looked for by content all the same.",
    ),
]
Quiet = Annotated[
    bool, typer.Option("-q", "--quiet", help="Leave out the summary of how far the capture can be trusted.")
]


Recursive = Annotated[
    bool, typer.Option("-r", "--recursive", help="Read the directories in directories, too.")
]


Jobs = Annotated[
    int | None,
    typer.Option(
        "-j",
        "--jobs",
        metavar="N",
        min=1,
        help="Number of processes (1: this one); the result is the same. "
        "Default: all cores where that gains: inputs over 64 MiB with --full, or without compiled kernels.",
        show_default=False,
    ),
]


Memory = Annotated[
    str,
    typer.Option(
        "--max-memory",
        metavar="SIZE",
        help="Memory each process may take, such as 256M or 2G. The limits that keep it are sized by it; "
        "docs/reliability.md lists them.",
    ),
]


@app.command()
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
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "-o",
            "--output",
            metavar="OUT",
            help="Write to this file, which appears when it is complete, instead of standard output.",
        ),
    ] = None,
    full: Full = False,
    records: Annotated[
        bool,
        typer.Option(
            "--records", help="Show keys, values and headers of records in the bodies; implies --full."
        ),
    ] = False,
    where: Where = None,
    columns: Columns = None,
    port: Port = None,
    count: Annotated[
        int | None,
        typer.Option("-c", "--count", metavar="N", min=1, help="Stop after N rows of output."),
    ] = None,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow",
            help="Read on as the files grow and new ones appear in the directories, until Ctrl-C; "
            "OUT grows with them.",
        ),
    ] = False,
    duration: Annotated[
        str | None,
        typer.Option(
            "--duration", metavar="TIME", help="With --follow: end after this time, such as 90s, 10m or 8h."
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
    from kwsniff.cli.source import deeper, parsed_duration

    config = _config(port, memory, full=full or records, records=records)
    if recursive and follow:
        raise CommandError("--recursive does not go with --follow")
    files = deeper(files) if recursive else files
    if duration is not None and not follow:
        raise CommandError("--duration goes with --follow")
    seconds = parsed_duration(duration, "--duration")
    request = job.Request(
        files, config, form, output, columns, where, count, quiet, jobs, follow=follow, duration=seconds
    )
    raise typer.Exit(job.decode(request))


def _config(port: str | None, memory: str, full: bool = False, records: bool = False) -> Config:
    from kwsniff.cli.source import config_within, parsed_ports
    from kwsniff.config import Config

    return config_within(memory, ports=parsed_ports(port, Config().ports), full=full, records=records)


@app.command()
def report(
    context: typer.Context,
    files: Paths,
    by: Annotated[
        str | None,
        typer.Option(
            "--by",
            metavar="TABLE,...",
            help="Tables to print: api, client, topic, broker, error. Default: api,error,client.",
        ),
    ] = None,
    csv: Annotated[
        str | None,
        typer.Option(
            "--csv",
            metavar="DIR",
            help="Write one CSV file per table into this directory, and calls.csv with one row a call.",
        ),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print the whole report as one JSON object instead of tables.")
    ] = False,
    where: Where = None,
    port: Port = None,
    recursive: Recursive = False,
    jobs: Jobs = None,
    memory: Memory = "512M",
    quiet: Quiet = False,
) -> None:
    """Print statistics of calls: rates, sizes, latencies, errors, by API, client, topic, broker and error.

    Exit code 3 says that part of the input was damaged; the figures are of what could be decoded.
    """
    if context.obj is OWN_PROCESS:
        one_heap()
    from kwsniff.cli import report as job
    from kwsniff.cli.source import deeper

    files = deeper(files) if recursive else files
    raise typer.Exit(job.report(job.Request(files, _config(port, memory), by, csv, json, where, quiet, jobs)))


@app.command()
def live(
    context: typer.Context,
    interfaces: Annotated[
        list[str] | None,
        typer.Option(
            "-i",
            "--interface",
            metavar="IFACE",
            help="Interface to listen on; may be given several times. Default: any, all of them.",
            show_default=False,
        ),
    ] = None,
    port: Annotated[
        str | None,
        typer.Option(
            "--port",
            metavar="P,...",
            help="Take only packets of these TCP ports, single or as ranges (9092,19092-19094). "
            "Default: all TCP; Kafka is found by content.",
        ),
    ] = None,
    bpf: Annotated[
        str | None,
        typer.Option(
            "--filter",
            metavar="FILTER",
            help="Take only packets that pass this filter too, see pcap-filter(7).",
        ),
    ] = None,
    promiscuous: Annotated[
        bool, typer.Option("--promiscuous", help="Take packets that are addressed to others, too.")
    ] = False,
    buffer: Annotated[
        str,
        typer.Option(
            "--buffer", metavar="SIZE", help="What the kernel may keep for each interface, such as 64M."
        ),
    ] = "64M",
    user: Annotated[
        str | None,
        typer.Option("--user", metavar="NAME", help="Once listening, go on as this user instead of root."),
    ] = None,
    form: Annotated[
        str | None,
        typer.Option("-f", "--format", metavar="FORMAT", help="text, jsonl or csv: a line for each event."),
    ] = None,
    full: Full = False,
    where: Where = None,
    columns: Columns = None,
    packets: Annotated[
        str | None,
        typer.Option(
            "-w", "--write", metavar="FILE", help="Keep the packets of Kafka connections as pcapng."
        ),
    ] = None,
    rotate: Annotated[
        str | None,
        typer.Option(
            "--rotate",
            metavar="WHEN",
            help="With -w: begin another file after a size (100M), a time (1h), or either (100M,1h).",
        ),
    ] = None,
    all_packets: Annotated[
        bool, typer.Option("--all-packets", help="With -w: keep all packets that pass the filter.")
    ] = False,
    csv: Annotated[
        str | None,
        typer.Option(
            "--csv", metavar="DIR", help="Write the tables of `kwsniff report --csv` here, every interval."
        ),
    ] = None,
    interval: Annotated[
        str, typer.Option("--interval", metavar="TIME", help="With --csv: how often, such as 10s or 5m.")
    ] = "60s",
    prometheus: Annotated[
        str | None,
        typer.Option(
            "--prometheus",
            metavar="ADDR:PORT",
            help="Serve metrics for Prometheus; :9308 is 127.0.0.1:9308, all interfaces are 0.0.0.0:9308.",
        ),
    ] = None,
    topics: Annotated[
        bool, typer.Option("--prometheus-topics", help="With --prometheus: metrics by topic, too.")
    ] = False,
    duration: Annotated[
        str | None,
        typer.Option("--duration", metavar="TIME", help="End after this time, such as 90s, 10m or 2h."),
    ] = None,
    count: Annotated[
        int | None,
        typer.Option("-c", "--count", metavar="N", min=1, help="End after N lines."),
    ] = None,
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout",
            metavar="SECONDS",
            min=0.1,
            help="Report a request as unanswered that waits longer, beside what it lets the broker wait.",
        ),
    ] = 60.0,
    memory: Memory = "512M",
    quiet: Quiet = False,
) -> None:
    """Show Kafka calls as they happen on interfaces of this machine.

    Needs the right to capture (CAP_NET_RAW) and Linux. Ends on Ctrl-C or SIGTERM, with exit code 0.
    """
    if context.obj is OWN_PROCESS:
        tuned()
    from kwsniff.cli import live as job
    from kwsniff.cli.source import parsed_duration, parsed_size

    config = replace(_config(port, memory, full=full), request_timeout=timeout)
    request = job.Request(
        interfaces or [], config, port, bpf, promiscuous, parsed_size(buffer, "--buffer"), user, form,
        columns, where, packets, rotate, all_packets, csv, parsed_duration(interval, "--interval") or 60.0,
        prometheus, topics, parsed_duration(duration, "--duration"), count, quiet,
    )  # fmt: skip
    raise typer.Exit(job.live(request))


@app.command()
def crosscheck(
    files: Paths, recursive: Recursive = False, port: Port = None, memory: Memory = "512M"
) -> None:
    """Compare with Wireshark's own dissector, message by message. Needs tshark and pyshark.

    Prints per API and version how many messages both saw and agreed on, and the differences with packet
    numbers. Exit code 1 says that there are some in which it is not known who is right.
    """
    from kwsniff.cli.crosscheck import check
    from kwsniff.cli.source import deeper

    raise typer.Exit(check(deeper(files) if recursive else files, _config(port, memory)))


@app.command()
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
        typer.Option("--out", metavar="DIR", help="Write events, statistics, anomalies and a manifest here."),
    ],
    master: Annotated[
        str | None,
        typer.Option(
            "--master", metavar="URL", help="Spark master. Default: this machine with all cores (local[*])."
        ),
    ] = None,
    recursive: Recursive = False,
    append: Annotated[
        bool,
        typer.Option("--append", help="Read only files that the manifest in DIR does not list; add them."),
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
        ),
    ] = None,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow",
            help="PATHs are directories that a capturing program rotates: decode every file once it is "
            "finished, until stopped (Ctrl-C). Goes on where it was when it is started again.",
        ),
    ] = False,
    once: Annotated[
        bool,
        typer.Option(
            "--once", help="With --follow: take the finished files that are there, and stop; more may come."
        ),
    ] = False,
    end: Annotated[
        bool,
        typer.Option(
            "--end",
            help="With --follow: take the files that are there, and end the stream: connections that are "
            "open end, requests that wait are unanswered, all windows are closed.",
        ),
    ] = False,
    window: Annotated[
        str,
        typer.Option("--window", metavar="TIME", help="With --follow: length of the windows of statistics."),
    ] = "1m",
    late: Annotated[
        str,
        typer.Option(
            "--late",
            metavar="TIME",
            help="With --follow: packet time after which a window is closed, for calls that take long.",
        ),
    ] = "1m",
    settle: Annotated[
        str,
        typer.Option(
            "--settle",
            metavar="TIME",
            help="With --follow: how long nobody must have written to the newest file of a directory until "
            "it counts as finished.",
        ),
    ] = "60s",
    memory: Memory = "512M",
    quiet: Quiet = False,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Show Spark's own log.")] = False,
) -> None:
    """Decode captures on Apache Spark into a directory of events (Parquet) and statistics (CSV).

    The events are those of `kwsniff decode`. Needs the extra `spark`. With --follow, one line for each
    window of time is printed. Exit code 3 says that part of the input was damaged; everything decodable was
    written.
    """
    config = _config(port, memory, full=full)
    if follow or once or end:
        from kwsniff.cli import stream
        from kwsniff.cli.problem import CommandError

        if not follow or append:
            raise CommandError("--append is for runs without --follow; --once and --end are for --follow")
        if recursive:
            raise CommandError("--recursive does not go with --follow")
        wanted = stream.Request(
            paths, out, config, master, partitions, window, late, settle, once, end, quiet, verbose
        )
        raise typer.Exit(stream.follow(wanted))
    from kwsniff.cli import pipeline as job
    from kwsniff.cli.source import deeper

    paths = deeper(paths) if recursive else paths
    split = None if split_size is None else split_size << 20
    request = job.Request(paths, out, config, master, append, partitions, split, quiet, verbose)
    raise typer.Exit(job.pipeline(request))


@app.command()
def protocol(
    api: Annotated[
        str | None,
        typer.Argument(
            metavar="[API]",
            help="Name or key of an API, name of a data message, or `dump` for everything as JSON Lines.",
            show_default=False,
        ),
    ] = None,
    version: Annotated[
        int | None,
        typer.Argument(metavar="[VERSION]", help="Version to show; default: the newest.", show_default=False),
    ] = None,
) -> None:
    """List the APIs and their versions, or show the layout of one of them."""
    from kwsniff.cli.protocol import show

    raise typer.Exit(show(api, version))
