"""`kwsniff live`: its options, and what they ask for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

import typer

from kwsniff.cli.asked import Asked, asking
from kwsniff.cli.options import INPUT, OUTPUT, RUNNING
from kwsniff.tuning import tuned

EXAMPLES = {
    "live": (
        "kwsniff live -i eth0 --port 9092",
        "kwsniff live -f jsonl --where 'latency_us > 500000'",
        "kwsniff live -i any -w kafka.pcapng --rotate 100M",
    )
}
OPTIONS = (
    "interfaces", "port", "bpf", "promiscuous", "buffer", "user", "form", "full", "where", "since", "until",
    "tz", "topic_ids", "color", "columns", "packets", "rotate", "all_packets", "csv", "interval",
    "prometheus", "topics", "duration", "count", "threshold", "timeout", "memory", "quiet",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveOptions:
    """What `kwsniff live` alone can be asked."""

    interfaces: Annotated[
        list[str] | None,
        typer.Option(
            "-i",
            "--interface",
            metavar="IFACE",
            help="Interface to listen on; may be given several times. Default: any, all of them.",
            show_default=False,
            rich_help_panel=INPUT,
        ),
    ] = None
    port: Annotated[
        str | None,
        typer.Option(
            "--port",
            metavar="P,...",
            help="Take only packets of these TCP ports, single or as ranges (9092,19092-19094). "
            "Default: all TCP; Kafka is found by content.",
            rich_help_panel=INPUT,
        ),
    ] = None
    bpf: Annotated[
        str | None,
        typer.Option(
            "--filter",
            metavar="FILTER",
            help="Take only packets that pass this filter too, see pcap-filter(7).",
            rich_help_panel=INPUT,
        ),
    ] = None
    promiscuous: Annotated[
        bool,
        typer.Option(
            "--promiscuous", help="Take packets that are addressed to others, too.", rich_help_panel=INPUT
        ),
    ] = False
    buffer: Annotated[
        str,
        typer.Option(
            "--buffer",
            metavar="SIZE",
            help="What the kernel may keep for each interface, such as 64M.",
            rich_help_panel=INPUT,
        ),
    ] = "64M"
    user: Annotated[
        str | None,
        typer.Option(
            "--user",
            metavar="NAME",
            help="Once listening, go on as this user instead of root.",
            rich_help_panel=RUNNING,
        ),
    ] = None
    form: Annotated[
        str | None,
        typer.Option(
            "-f",
            "--format",
            metavar="FORMAT",
            help="text, jsonl or csv: a line for each event.",
            rich_help_panel=OUTPUT,
        ),
    ] = None
    packets: Annotated[
        str | None,
        typer.Option(
            "-w",
            "--write",
            metavar="FILE",
            help="Keep the packets of Kafka connections as pcapng.",
            rich_help_panel=OUTPUT,
        ),
    ] = None
    rotate: Annotated[
        str | None,
        typer.Option(
            "--rotate",
            metavar="WHEN",
            help="With -w: begin another file after a size (100M), a time (1h), or either (100M,1h).",
            rich_help_panel=OUTPUT,
        ),
    ] = None
    all_packets: Annotated[
        bool,
        typer.Option(
            "--all-packets", help="With -w: keep all packets that pass the filter.", rich_help_panel=OUTPUT
        ),
    ] = False
    csv: Annotated[
        str | None,
        typer.Option(
            "--csv",
            metavar="DIR",
            help="Write the tables of `kwsniff report --csv`, findings.csv and lag.csv here every interval.",
            rich_help_panel=OUTPUT,
        ),
    ] = None
    interval: Annotated[
        str,
        typer.Option(
            "--interval",
            metavar="TIME",
            help="With --csv: how often, such as 10s or 5m.",
            rich_help_panel=OUTPUT,
        ),
    ] = "60s"
    prometheus: Annotated[
        str | None,
        typer.Option(
            "--prometheus",
            metavar="ADDR:PORT",
            help="Serve metrics for Prometheus; :9308 is 127.0.0.1:9308, all interfaces are 0.0.0.0:9308.",
            rich_help_panel=OUTPUT,
        ),
    ] = None
    topics: Annotated[
        bool,
        typer.Option(
            "--prometheus-topics", help="With --prometheus: metrics by topic, too.", rich_help_panel=OUTPUT
        ),
    ] = False
    duration: Annotated[
        str | None,
        typer.Option(
            "--duration",
            metavar="TIME",
            help="End after this time, such as 90s, 10m or 2h.",
            rich_help_panel=RUNNING,
        ),
    ] = None
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout",
            metavar="SECONDS",
            min=0.1,
            help="Report a request as unanswered that waits longer, beside what it lets the broker wait.",
            rich_help_panel=RUNNING,
        ),
    ] = 60.0


def _live(asked: Asked, own: LiveOptions) -> int:
    """Show calls as they happen on interfaces of this machine.

    Needs the right to capture (CAP_NET_RAW) and Linux. Ends on Ctrl-C or SIGTERM, with exit code 0.
    """
    from kwsniff.cli import live as job
    from kwsniff.cli.arguments import parsed_duration, parsed_size

    request = job.LiveRequest(
        own.interfaces or [], replace(asked.config, request_timeout=own.timeout), own.port, own.bpf,
        own.promiscuous, parsed_size(own.buffer, "--buffer"), own.user, own.form, asked.columns,
        asked.choice, own.packets, own.rotate, own.all_packets, own.csv,
        parsed_duration(own.interval, "--interval") or 60.0, own.prometheus, own.topics,
        parsed_duration(own.duration, "--duration"), asked.count, asked.quiet,
    )  # fmt: skip
    return job.live(request)


live = asking(_live, without=frozenset(("files",)), order=OPTIONS, tuning=tuned)
