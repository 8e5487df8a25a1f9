"""The commands: what each can be asked, what its help says, and what does it.

Only declarations stand here, so that help and completion load nothing else. A command's job is a function in
a module of its own, imported when the command runs. It is given a `Request`, or its own kind of it, which
takes the values of options that it has fields for, and by name what else was asked.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from inspect import cleandoc
from typing import Any

import click

from kwsniff.analysis.questions import QUESTIONS
from kwsniff.cli import options as o
from kwsniff.cli.options import INPUT, OUTPUT, RUNNING, Argument, Option, Page
from kwsniff.run.tuning import one_heap, tuned

EXAMPLES = (
    "kwsniff report trace.pcapng",
    "kwsniff slow trace.pcapng --where 'api == \"Produce\" and latency > 100ms'",
    "tcpdump -i any -U -w - port 9092 | kwsniff decode -",
)
"""What the help of all commands begins with."""

GROUPS = {
    "Every day": ("report", "decode", "live", "pipeline", "mcp"),
    "Questions": ("slow", "errors", "clients", "groups", "compare", "audit", "auth", "upgrade-check"),
    "Single calls": ("show", "follow", "extract"),
    "Reference": ("schema", "protocol", "crosscheck", "completion"),
}
"""Names of commands by group, in the order of the help."""

COMMANDS: dict[str, Page] = {}
"""By name."""

OWN_PROCESS = object()
"""Tells a command that the process is its own, to be tuned for it (`kwsniff.run.tuning`) and gone
afterwards."""


def untuned() -> None:
    """Leave this process as it is: others do the work, and would have its environment."""


def command(
    name: str,
    job: str,
    about: str,
    params: tuple[click.Parameter, ...],
    examples: tuple[str, ...],
    *,
    request: str = "",
    tuning: Callable[[], None] = one_heap,
    **known: Any,
) -> None:
    """Declare a command.

    Args:
        job: module in `kwsniff.cli` and function, which returns the exit code.
        about: a sentence, an empty line, and more.
        request: the kind of request that the job takes, where it is its module's own.
        tuning: what is done first if the process is the command's own.
        known: what the job is told besides, whatever the user asked.
    """

    @click.pass_context
    def run(context: click.Context, /, **values: Any) -> int:
        if context.obj is OWN_PROCESS:
            tuning()
        from kwsniff.cli.request import Request

        module, _, function = job.partition(":")
        home = import_module(f"kwsniff.cli.{module}")
        kind = getattr(home, request) if request else Request
        asked, others = kind.of(values | known)
        code: int = getattr(home, function)(asked, **others)
        return code

    settings = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
    made = Page(name, callback=run, params=[*params], help=cleandoc(about), context_settings=settings)
    made.examples = examples
    COMMANDS[name] = made


command(
    "report",
    "reporting:report",
    """Print what was found and where the time went, on one page.

    With --by, statistics of calls by API, client, topic, broker and error instead. Exit code 3 says that part
    of the input was damaged; the figures are of what could be decoded.
    """,
    (
        o.PATHS,
        Option(
            "--by", "TABLE,...", "Print these tables instead of the page: api, client, topic, broker, "
            "error.",
        ),
        Option(
            "--csv", "DIR", "Write one CSV file per table into this directory, and calls.csv with one row "
            "a call.", OUTPUT,
        ),
        Option("--json", None, "Print the whole report as one JSON object instead of a page.", OUTPUT),
        Option(
            "--html", "FILE", "Also write a page to send to somebody: one file with charts and tables, "
            "which needs no network. The input is read a second time for the fields of its slowest calls.",
            OUTPUT,
        ),
        Option("--wide", None, "Print tables with all their columns, however wide that gets.", OUTPUT),
        Option(
            "--top", "N", "Print N rows of each part of the page instead of what fits a screen; 0: all.",
            OUTPUT, type=click.IntRange(min=0),
        ),
        o.WHERE,
        o.SINCE,
        o.UNTIL,
        Option(
            "--around", "TIME", "Only events of the minute around this time, in place of --since and "
            "--until.",
        ),
        *(o.THRESHOLD, o.TZ, o.TOPIC_IDS, o.COLOR, o.PORT, o.KEYLOG, o.RECURSIVE, o.JOBS, o.MEMORY, o.QUIET),
    ),
    (
        "kwsniff report trace.pcapng",
        "kwsniff report captures/ --by topic,client --csv out",
        "kwsniff report trace.pcapng --around 12:03:05",
        "kwsniff report trace.pcapng --html trace.html",
    ),
    request="ReportRequest",
    tuning=tuned,
)  # fmt: skip

command(
    "decode",
    "decode:decode",
    """Write one row per event: calls, anomalies, connections.

    Rows come in the order in which events were completed. Exit code 3 says that part of the input was
    damaged; everything decodable was written.
    """,
    (
        o.PATHS,
        Option(
            "-f --format form", "FORMAT", "text, jsonl, csv or parquet. Default: by the ending of OUT, "
            "else text.", OUTPUT,
        ),
        Option(
            "-o --output", "OUT", "Write to this file, which appears when it is complete, instead of "
            "standard output.", OUTPUT,
        ),
        o.FULL,
        Option(
            "--records", None, "Show keys, values and headers of records in the bodies; implies --full.",
        ),
        *(o.WHERE, o.SINCE, o.UNTIL, o.TZ, o.TOPIC_IDS, o.COLOR, o.COLUMNS, o.PORT, o.KEYLOG, o.COUNT),
        Option(
            "--follow", None, "Read on as the files grow and new ones appear in the directories, until "
            "Ctrl-C; OUT grows with them.", INPUT,
        ),
        Option("--duration", "TIME", "With --follow: end after this time, such as 90s, 10m or 8h.", INPUT),
        Option(
            "--trace", "CONNECTION", "Instead of rows, what was decided of one connection at each of its "
            "segments, and why. CONNECTION is its id, as in the column `connection`, or the beginning of "
            "it.", OUTPUT,
        ),
        *(o.JOBS, o.RECURSIVE, o.MEMORY, o.QUIET),
    ),
    (
        "kwsniff decode trace.pcapng",
        "kwsniff decode trace.pcapng -f csv --columns time,api,client_id,latency_us",
        "kwsniff decode captures/ -o errors.jsonl --where 'status == \"error\"'",
    ),
    request="DecodeRequest",
    tuning=tuned,
)  # fmt: skip

command(
    "live",
    "live:live",
    """Show calls as they happen on interfaces of this machine.

    Needs the right to capture (CAP_NET_RAW) and Linux. Ends on Ctrl-C or SIGTERM, with exit code 0.
    """,
    (
        Option(
            "-i --interface interfaces", "IFACE", "Interface to listen on; may be given several times. "
            "Default: any, all of them.", INPUT, multiple=True,
        ),
        Option(
            "--port", "P,...", "Take only packets of these TCP ports, single or as ranges "
            "(9092,19092-19094). Default: all TCP; Kafka is found by content.", INPUT,
        ),
        Option(
            "--filter bpf", "FILTER", "Take only packets that pass this filter too, see pcap-filter(7).",
            INPUT,
        ),
        o.KEYLOG,
        Option("--promiscuous", None, "Take packets that are addressed to others, too.", INPUT),
        Option(
            "--buffer", "SIZE", "What the kernel may keep for each interface, such as 64M.", INPUT,
            default="64M",
        ),
        Option("--user", "NAME", "Once listening, go on as this user instead of root.", RUNNING),
        Option("-f --format form", "FORMAT", "text, jsonl or csv: a line for each event.", OUTPUT),
        *(o.FULL, o.WHERE, o.SINCE, o.UNTIL, o.TZ, o.TOPIC_IDS, o.COLOR, o.COLUMNS),
        Option("-w --write packets", "FILE", "Keep the packets of Kafka connections as pcapng.", OUTPUT),
        Option(
            "--rotate", "WHEN", "With -w: begin another file after a size (100M), a time (1h), or either "
            "(100M,1h).", OUTPUT,
        ),
        Option("--all-packets", None, "With -w: keep all packets that pass the filter.", OUTPUT),
        Option(
            "--write-secrets", None, "With -w and --keylog: write the secrets into the files, too. Whoever "
            "has a file can read its TLS connections then.", OUTPUT,
        ),
        Option(
            "--csv", "DIR", "Write the tables of `kwsniff report --csv`, findings.csv and lag.csv here "
            "every interval.", OUTPUT,
        ),
        Option("--interval", "TIME", "With --csv: how often, such as 10s or 5m.", OUTPUT, default="60s"),
        Option(
            "--prometheus", "ADDR:PORT", "Serve metrics for Prometheus; :9308 is 127.0.0.1:9308, all "
            "interfaces are 0.0.0.0:9308.", OUTPUT,
        ),
        Option("--prometheus-topics topics", None, "With --prometheus: metrics by topic, too.", OUTPUT),
        Option("--duration", "TIME", "End after this time, such as 90s, 10m or 2h.", RUNNING),
        *(o.COUNT, o.THRESHOLD),
        Option(
            "--timeout", "SECONDS", "Report a request as unanswered that waits longer, beside what it lets "
            "the broker wait.", RUNNING, type=click.FloatRange(min=0.1), default=60.0,
        ),
        *(o.MEMORY, o.QUIET),
    ),
    (
        "kwsniff live -i eth0 --port 9092",
        "kwsniff live -f jsonl --where 'latency_us > 500000'",
        "kwsniff live -i any -w kafka.pcapng --rotate 100M",
    ),
    request="LiveRequest",
    tuning=tuned,
)  # fmt: skip

command(
    "pipeline",
    "pipeline:pipeline",
    """Decode many captures into tables, on Apache Spark.

    The tables are calls, anomalies, connections and findings; the rows are those of `kwsniff decode`. Needs
    the extra `spark`. With --follow, one line for each window of time is printed. Exit code 3 says that part
    of the input was damaged; everything decodable was written.
    """,
    (
        Argument(
            "files", "PATH", "Capture files, or directories, which stand for the captures in them. Every "
            "worker must find them under the same path.", nargs=-1, required=True,
        ),
        Option(
            "--out", "DIR", "Write tables, statistics and a manifest here: a directory, or a URL such as "
            "s3://bucket/name.", OUTPUT, required=True,
        ),
        Option(
            "--format form", "FORMAT", "Format of the tables: parquet, delta or iceberg (the latter two "
            "need the extra `lake`).", OUTPUT, default="parquet",
        ),
        Option("--master", "URL", "Spark master. Default: this machine with all cores (local[*]).", RUNNING),
        o.RECURSIVE,
        Option("--append", None, "Read only files that the manifest in DIR does not list; add them.", INPUT),
        *(o.FULL, o.PORT, o.KEYLOG),
        Option(
            "--partitions", "N", "Let so many tasks read everything and share the connections, instead of "
            "reading a part each. The result is the same.", RUNNING, type=click.IntRange(min=1),
        ),
        Option(
            "--split-size", "MIB", "Size of the part of the input that one task reads. Default: a core's "
            "share, 512 to 1,024 MiB.", RUNNING, type=click.IntRange(min=1),
        ),
        Option(
            "--follow", None, "PATHs are directories that a capturing program rotates: decode every file "
            "once it is finished, until stopped (Ctrl-C). Goes on where it was when it is started again.",
            INPUT,
        ),
        Option(
            "--once", None, "With --follow: take the finished files that are there, and stop; more may "
            "come.", INPUT,
        ),
        Option(
            "--end", None, "With --follow: take the files that are there, and end the stream: connections "
            "that are open end, requests that wait are unanswered, all windows are closed.", INPUT,
        ),
        Option(
            "--window", "TIME", "With --follow: length of the windows of statistics.", OUTPUT, default="1m"
        ),
        Option(
            "--late", "TIME", "With --follow: packet time after which a window is closed, for calls that "
            "take long.", OUTPUT, default="1m",
        ),
        Option(
            "--settle", "TIME", "With --follow: how long nobody must have written to the newest file of a "
            "directory until it counts as finished.", INPUT, default="60s",
        ),
        Option(
            "--state", "DIR", "With --follow: directory for what the stream keeps between batches; all "
            "workers must see it. Default: .stream in --out.", OUTPUT,
        ),
        *(o.MEMORY, o.QUIET),
        Option("-v --verbose", None, "Show Spark's own log.", OUTPUT),
    ),
    (
        "kwsniff pipeline captures/ --out results",
        "kwsniff pipeline --follow /var/captures --out results --window 1m",
    ),
    request="PipelineRequest",
    tuning=untuned,
)  # fmt: skip

command(
    "mcp",
    "toolserver:serve",
    """Serve the answers to AI assistants, over MCP.

    The Model Context Protocol is spoken on standard input and output, until the former ends. Tools have the
    names of commands; they read captures below DIR and write nothing. Needs the extra `mcp`.
    """,
    (
        Argument(
            "files", "DIR", "Directory with captures; links that lead out of it are not followed. Default: "
            "the current one.", nargs=-1, required=False,
        ),
        Option(
            "--timeout", "SECONDS", "End a call that takes longer.", RUNNING,
            type=click.FloatRange(min=0.1), default=60.0,
        ),
        *(o.PORT, o.KEYLOG, o.TOPIC_IDS, o.TZ),
    ),
    ("kwsniff mcp captures/", "kwsniff mcp /var/captures results --timeout 300"),
    tuning=untuned,
)  # fmt: skip

for question in QUESTIONS.values():
    own = [
        Option(f"--{each.name}", each.metavar, each.help, required=each.required)
        for each in question.settings
    ]
    own.sort(key=lambda each: not each.required)
    command(
        question.name,
        "answering:ask",
        question.help,
        (o.ANSWER_PATHS, *own, *o.OF_ANSWERS),
        question.examples,
        question=question,
    )

command(
    "compare",
    "answering:compare",
    """Compare inputs or windows of one: latency, errors, clients.

    What got slower is shown with the size of the effect and the counts. Tables: latency, errors,
    clients (who came and went).
    """,
    (
        Argument("files", "A", "A capture, a directory of captures, or stored events."),
        Argument(
            "other", "B", "The second input, of the same kinds; without one, --a and --b are windows of A.",
            required=False,
        ),
        Option("--a", "FROM/UNTIL", "Of A only this time, such as 12:03:05/12:04; one side may be left out."),
        Option("--b", "FROM/UNTIL", "Of B, or of A a second time, likewise."),
        *o.without(o.RECURSIVE),
    ),
    (
        "kwsniff compare before.pcapng after.pcapng",
        "kwsniff compare trace.pcapng --a /12:03 --b 12:03/",
        "kwsniff compare monday.parquet tuesday.parquet --where 'topic == \"orders\"'",
    ),
)  # fmt: skip

command(
    "show",
    "show:show",
    """Show one call field by field: request and response.

    Each field is shown with its offset, its bytes and the versions that have it. Of a packet, the calls whose
    request or response it completes. Credentials are never shown, and record data only with --records.
    """,
    (
        Argument("files", "FILE", "A capture, as for `kwsniff decode`."),
        Argument(
            "target", "PACKET|CONNECTION#CORRELATION_ID", "A packet by its number, as Wireshark counts, or "
            "a call by connection and correlation id.",
        ),
        Option("--records", None, "Open record batches: show keys, values and headers of records."),
        *(o.FORM, o.TZ, o.TOPIC_IDS, o.COLOR, o.WIDE, o.PORT, o.KEYLOG, o.MEMORY),
    ),
    (
        "kwsniff show trace.pcapng 138",
        "kwsniff show trace.pcapng 4905ac74e8683338#12 --records",
    ),
)  # fmt: skip

command(
    "follow",
    "answering:follow",
    """Show a conversation in order: each request, each response.

    One line each, with its packets.
    """,
    (
        Argument("files", "FILE", "A capture, a directory of captures, or stored events."),
        Argument(
            "what", "CONNECTION|CLIENT|GROUP|TOPIC", "The beginning of a connection's id, a client id or "
            "address, a group, or a topic.",
        ),
        Option("--as kind", "KIND", "connection, client, group or topic, where one name is several of them."),
        *o.without(o.TABLE, o.SORT),
    ),
    (
        "kwsniff follow trace.pcapng 4905ac74e8683338",
        "kwsniff follow trace.pcapng payments --as group --since 12:03:05",
    ),
)  # fmt: skip

command(
    "extract",
    "show:extract",
    """Write only the packets of chosen calls, for Wireshark.

    The handshakes of their connections are in the file, too. Comments on the packets say what kwsniff saw.
    --top N takes the first N calls.
    """,
    (
        o.PATHS,
        Option(
            "-o --output", "OUT", "Write the packets to this pcapng file; - is standard output.", OUTPUT,
            required=True,
        ),
        Option(
            "--write-secrets", None, "Write the secrets of the calls' TLS connections into OUT, too, and "
            "all their packets from the handshake to the last of the calls, which Wireshark needs to read "
            "them.", OUTPUT,
        ),
        *o.without(o.FORM, o.TABLE, o.SORT, o.COLOR, o.WIDE),
    ),
    (
        "kwsniff extract trace.pcapng --where 'error != None' -o errors.pcapng",
        "kwsniff extract captures/ --where 'latency > 1s' -o slow.pcapng --top 100",
    ),
)  # fmt: skip

command(
    "schema",
    "lookup:schema",
    """Print what each column means, and the language of --where.

    For each kind of row, its columns with type, unit and meaning.
    """,
    (
        Argument(
            "topic", "PART", "call, anomaly, connection, partitions, resources, status, "
            "unanswered_because, closed_by, security, code or where. Default: everything.", required=False,
        ),
        Option("-f --format form", "FORMAT", "text, csv, json or markdown.", OUTPUT, default="text"),
    ),
    ("kwsniff schema", "kwsniff schema where", "kwsniff schema call -f csv"),
    tuning=untuned,
)  # fmt: skip

command(
    "protocol",
    "lookup:protocol",
    "List all APIs and versions, or show the layout of one.",
    (
        Argument(
            "api", "API", "Name or key of an API, name of a data message, or `dump` for everything as JSON "
            "Lines.", required=False,
        ),
        Argument("version", "VERSION", "Version to show; default: the newest.", required=False, type=int),
    ),
    ("kwsniff protocol", "kwsniff protocol Fetch 12"),
    tuning=untuned,
)  # fmt: skip

command(
    "crosscheck",
    "crosscheck:check",
    """Compare with Wireshark's own dissector, message by message.

    Needs tshark and pyshark. Prints per API and version how many messages both saw and agreed on, and the
    differences with packet numbers. Exit code 1 says that there are some in which it is not known who is
    right.
    """,
    (o.PATHS, o.RECURSIVE, o.PORT, o.KEYLOG, o.MEMORY),
    ("kwsniff crosscheck trace.pcapng", "kwsniff crosscheck trace.pcapng --port 19092"),
    tuning=untuned,
)

command(
    "completion",
    "running:completion",
    """Print a script that completes commands in a shell.

    Bash: the line eval "$(kwsniff completion bash)" in ~/.bashrc. Zsh: eval "$(kwsniff completion zsh)" in
    ~/.zshrc, after compinit. Fish: kwsniff completion fish | source, in ~/.config/fish/config.fish.
    """,
    (Argument("shell", "SHELL", "bash, zsh or fish."),),
    ("kwsniff completion bash", "kwsniff completion zsh"),
    tuning=untuned,
)
