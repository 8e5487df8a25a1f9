"""Options and arguments as click takes them, in groups of the help, and those that several commands share."""

from __future__ import annotations

from typing import Any

import click

ARGUMENTS = "Arguments"
INPUT, CHOICE, OUTPUT, RUNNING = "Input", "What is taken", "Output", "How it runs"
GROUPS = (CHOICE, INPUT, OUTPUT, RUNNING)
"""Groups of options in the help, in their order."""


class Option(click.Option):
    """An option in a group of the help. `names` as on the command line, then the one in Python where that is
    another; what has no `metavar` is a switch."""

    def __init__(
        self, names: str, metavar: str | None, meaning: str, group: str = CHOICE, **more: Any
    ) -> None:
        more.setdefault("show_default", True)
        # Of what it is told to be no flag, click takes no value that begins with a dash.
        super().__init__(
            names.split(), metavar=metavar, is_flag=metavar is None or None, help=meaning, **more
        )
        self.group, self.meaning = group, meaning


class Argument(click.Argument):
    """An argument that the help describes, and that the usage line shows as required or not, repeated or
    not."""

    group = ARGUMENTS

    def __init__(self, name: str, metavar: str, meaning: str, **more: Any) -> None:
        shown = metavar if more.get("required", True) else f"[{metavar}]"
        super().__init__([name], metavar=shown, **more)
        self.shown, self.meaning = shown, meaning

    @property
    def usage(self) -> str:
        return f"{self.shown}…" if self.nargs == -1 else self.shown

    def get_help_record(self, ctx: click.Context) -> tuple[str, str]:
        return self.shown, f"{self.meaning}  [required]" if self.required else self.meaning


class Page(click.Command):
    """A command whose help groups options and ends with examples."""

    examples: tuple[str, ...] = ()

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """`[OPTIONS] FILE…`: what may be repeated has dots, what may be left out has brackets."""
        return ["[OPTIONS]", *(each.usage for each in self.params if isinstance(each, Argument))]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Arguments, then each group of options under its heading, in the order of `GROUPS`."""
        groups: dict[str, list[tuple[str, str]]] = {title: [] for title in (ARGUMENTS, *GROUPS, "Options")}
        for each in self.get_params(ctx):
            record = each.get_help_record(ctx)
            if record is not None:
                groups[getattr(each, "group", "Options")].append(record)
        for title, records in groups.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_examples(formatter, self.examples)


def write_examples(formatter: click.HelpFormatter, examples: tuple[str, ...]) -> None:
    """A section of examples, each on a line of its own however long it is."""
    with formatter.section("Examples"):
        for line in examples:
            formatter.write(f"{'':{formatter.current_indent}}{line}\n")


def files(text: str) -> Argument:
    """One or more inputs."""
    return Argument("files", "FILE", text, nargs=-1, required=True)


PATHS = files(
    "Capture files: pcap or pcapng, also compressed by gzip, zstd, lz4 or xz. "
    "- is standard input; a directory stands for its captures in time order."
)
ANSWER_PATHS = files(
    "Captures as for `kwsniff decode`, or stored events: Parquet files of `kwsniff decode`, "
    "folders of `kwsniff pipeline`."
)
WHERE = Option(
    "--where", "EXPR", "Only events for which EXPR holds, such as 'api == \"Fetch\" and latency > 100ms'. "
    "`kwsniff schema where` prints the language.",
)  # fmt: skip
SINCE = Option(
    "--since", "TIME", "Only events from this time on: ISO 8601, or a time of day such as 12:03:05."
)
UNTIL = Option("--until", "TIME", "Only events before this time.")
COUNT = Option("-c --count", "N", "Stop after N rows of output.", type=click.IntRange(min=1))
COLUMNS = Option("--columns", "C,...", "Write these columns in this order; not for the text format.")
FULL = Option("--full", None, "Add the decoded bodies of request and response.")
THRESHOLD = Option(
    "--threshold", "NAME=VALUE", "When a finding speaks, such as slow_ms=250; may be given several times. "
    "docs/findings.md lists them.", multiple=True,
)  # fmt: skip
PORT = Option(
    "--port", "P,...", "Ports of brokers, single or as ranges (9092,19092-19094), instead of 9092-9094. "
    "Kafka on other ports is looked for by content all the same.", INPUT,
)  # fmt: skip
KEYLOG = Option(
    "--keylog", "FILE", "Secrets to read TLS connections with: a key log (RFC 9850), which may still grow. "
    "Default: what SSLKEYLOGFILE in the environment names, if it is there; '' for none.", INPUT,
)  # fmt: skip
TOPIC_IDS = Option(
    "--topic-ids", "FILE", "Names of topics that the packets give by uuid only: lines uuid,name, or what "
    "kafka-topics.sh --describe prints.", INPUT,
)  # fmt: skip
RECURSIVE = Option("-r --recursive", None, "Read the directories in directories, too.", INPUT)
FORM = Option("-f --format form", "FORMAT", "text, csv or json.", OUTPUT, default="text")
TABLE = Option("--table", "NAME", "Only this table; CSV writes the first one otherwise.", OUTPUT)
TOP = Option(
    "--top", "N", "Show N rows of each table; 0 shows all. Default: 20 of text, all of CSV and JSON.", OUTPUT,
    type=click.IntRange(min=0), show_default=False,
)  # fmt: skip
SORT = Option(
    "--sort", "COLUMN", "Sort by this column of CSV and JSON: numbers from the greatest, texts and times "
    "from the least; -COLUMN the other way round.", OUTPUT,
)  # fmt: skip
TZ = Option(
    "--tz", "ZONE", "Time zone of text, and of times in --where, --since and --until that name none.", OUTPUT,
    default="UTC",
)  # fmt: skip
COLOR = Option("--color", "WHEN", "auto, always or never.", OUTPUT, default="auto")
WIDE = Option("--wide", None, "All columns of text, however long the lines get.", OUTPUT)
QUIET = Option("-q --quiet", None, "Leave out the summary of how far the capture can be trusted.", OUTPUT)
JOBS = Option(
    "-j --jobs", "N", "Number of processes (1: this one); the result is the same. "
    "Default: as many as gain, for inputs over 64 MiB.", RUNNING, type=click.IntRange(min=1),
)  # fmt: skip
MEMORY = Option(
    "--max-memory memory", "SIZE", "Memory each process may take, such as 256M or 2G. The limits that keep "
    "it are sized by it; docs/reliability.md lists them.", RUNNING, default="512M",
)  # fmt: skip
OF_ANSWERS = (
    WHERE, SINCE, UNTIL, FORM, TABLE, TOP, SORT, TZ, TOPIC_IDS, COLOR, WIDE, QUIET, PORT, KEYLOG, RECURSIVE,
    JOBS, MEMORY,
)  # fmt: skip
"""What every question can be asked."""


def without(*left_out: Option) -> tuple[Option, ...]:
    """The options of questions but for some."""
    return tuple(each for each in OF_ANSWERS if each not in left_out)
