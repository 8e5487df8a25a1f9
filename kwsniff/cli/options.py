"""Options that several commands share, and what they stand for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from kwsniff.config import Config

INPUT, CHOICE, OUTPUT, RUNNING = "Input", "What is taken", "Output", "How it runs"
GROUPS = (CHOICE, INPUT, OUTPUT, RUNNING)
"""Groups of options in the help, in their order."""

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
        help="Only events for which EXPR holds, such as 'api == \"Fetch\" and latency > 100ms'. "
        "`kwsniff schema where` prints the language.",
        rich_help_panel=CHOICE,
    ),
]
Full = Annotated[
    bool,
    typer.Option("--full", help="Add the decoded bodies of request and response.", rich_help_panel=CHOICE),
]
Columns = Annotated[
    str | None,
    typer.Option(
        "--columns",
        metavar="C,...",
        help="Write these columns in this order; not for the text format.",
        rich_help_panel=CHOICE,
    ),
]
Port = Annotated[
    str | None,
    typer.Option(
        "--port",
        metavar="P,...",
        help="Ports of brokers, single or as ranges (9092,19092-19094), instead of 9092-9094. "
        "Kafka on other ports is looked for by content all the same.",
        rich_help_panel=INPUT,
    ),
]
Quiet = Annotated[
    bool,
    typer.Option(
        "-q",
        "--quiet",
        help="Leave out the summary of how far the capture can be trusted.",
        rich_help_panel=OUTPUT,
    ),
]


Recursive = Annotated[
    bool,
    typer.Option(
        "-r", "--recursive", help="Read the directories in directories, too.", rich_help_panel=INPUT
    ),
]


Jobs = Annotated[
    int | None,
    typer.Option(
        "-j",
        "--jobs",
        metavar="N",
        min=1,
        help="Number of processes (1: this one); the result is the same. "
        "Default: as many as gain, for inputs over 64 MiB.",
        show_default=False,
        rich_help_panel=RUNNING,
    ),
]


Memory = Annotated[
    str,
    typer.Option(
        "--max-memory",
        metavar="SIZE",
        help="Memory each process may take, such as 256M or 2G. The limits that keep it are sized by it; "
        "docs/reliability.md lists them.",
        rich_help_panel=RUNNING,
    ),
]


AnswerPaths = Annotated[
    list[str],
    typer.Argument(
        metavar="FILE",
        help="Captures as for `kwsniff decode`, or stored events: Parquet files of `kwsniff decode`, "
        "folders of `kwsniff pipeline`.",
        show_default=False,
    ),
]
OneCapture = Annotated[
    str,
    typer.Argument(metavar="FILE", help="A capture, as for `kwsniff decode`.", show_default=False),
]
OneInput = Annotated[
    str,
    typer.Argument(
        metavar="FILE", help="A capture, a directory of captures, or stored events.", show_default=False
    ),
]
FirstInput = Annotated[
    str,
    typer.Argument(
        metavar="A", help="A capture, a directory of captures, or stored events.", show_default=False
    ),
]
AnswerForm = Annotated[
    str,
    typer.Option("-f", "--format", metavar="FORMAT", help="text, csv or json.", rich_help_panel=OUTPUT),
]
Since = Annotated[
    str | None,
    typer.Option(
        "--since",
        metavar="TIME",
        help="Only events from this time on: ISO 8601, or a time of day such as 12:03:05.",
        rich_help_panel=CHOICE,
    ),
]
Until = Annotated[
    str | None,
    typer.Option("--until", metavar="TIME", help="Only events before this time.", rich_help_panel=CHOICE),
]
Top = Annotated[
    int | None,
    typer.Option(
        "--top",
        metavar="N",
        min=0,
        help="Show N rows of each table; 0 shows all. Default: 20 of text, all of CSV and JSON.",
        show_default=False,
        rich_help_panel=OUTPUT,
    ),
]
Sort = Annotated[
    str | None,
    typer.Option(
        "--sort",
        metavar="COLUMN",
        help="Sort by this column of CSV and JSON: numbers from the greatest, texts and times from the "
        "least; -COLUMN the other way round.",
        rich_help_panel=OUTPUT,
    ),
]
Tz = Annotated[
    str,
    typer.Option(
        "--tz",
        metavar="ZONE",
        help="Time zone of text, and of times in --where, --since and --until that name none.",
        rich_help_panel=OUTPUT,
    ),
]
TopicIds = Annotated[
    str | None,
    typer.Option(
        "--topic-ids",
        metavar="FILE",
        help="Names of topics that the packets give by uuid only: lines uuid,name, or what "
        "kafka-topics.sh --describe prints.",
        rich_help_panel=INPUT,
    ),
]
Color = Annotated[
    str, typer.Option("--color", metavar="WHEN", help="auto, always or never.", rich_help_panel=OUTPUT)
]
Wide = Annotated[
    bool,
    typer.Option("--wide", help="All columns of text, however long the lines get.", rich_help_panel=OUTPUT),
]
Count = Annotated[
    int | None,
    typer.Option(
        "-c", "--count", metavar="N", min=1, help="Stop after N rows of output.", rich_help_panel=CHOICE
    ),
]
OneTable = Annotated[
    str | None,
    typer.Option(
        "--table",
        metavar="NAME",
        help="Only this table; CSV writes the first one otherwise.",
        rich_help_panel=OUTPUT,
    ),
]
Threshold = Annotated[
    list[str] | None,
    typer.Option(
        "--threshold",
        metavar="NAME=VALUE",
        help="When a finding speaks, such as slow_ms=250; may be given several times. docs/findings.md lists "
        "them.",
        rich_help_panel=CHOICE,
    ),
]


def chosen_thresholds(wanted: list[str] | None) -> tuple[tuple[str, float], ...]:
    """What `--threshold` says. Raises CommandError."""
    from kwsniff.cli.problem import CommandError
    from kwsniff.findings.thresholds import Thresholds

    found = []
    for each in wanted or []:
        name, _, value = each.partition("=")
        try:
            found.append((name.strip(), float(value)))
            Thresholds.of(found)
        except ValueError as error:
            reason = "is not NAME=VALUE with a number" if "convert" in str(error) else f": {error}"
            raise CommandError(f"--threshold {each!r} {reason}".replace(" : ", ": ")) from None
    return tuple(found)


def configured(port: str | None, memory: str, full: bool = False, records: bool = False) -> Config:
    """The configuration that these options ask for. Raises CommandError."""
    from kwsniff.cli.arguments import config_within, parsed_ports
    from kwsniff.config import Config

    return config_within(memory, ports=parsed_ports(port, Config().ports), full=full, records=records)
