"""The commands about single calls: their options, and what they ask for."""

from __future__ import annotations

from typing import Annotated

import typer

from kwsniff.cli.asked import Asked, asking
from kwsniff.cli.options import CHOICE, OUTPUT, OneCapture, OneInput, Paths

EXAMPLES = {
    "show": ("kwsniff show trace.pcapng 138", "kwsniff show trace.pcapng 4905ac74e8683338#12 --records"),
    "follow": (
        "kwsniff follow trace.pcapng 4905ac74e8683338",
        "kwsniff follow trace.pcapng payments --as group --since 12:03:05",
    ),
    "extract": (
        "kwsniff extract trace.pcapng --where 'error != None' -o errors.pcapng",
        "kwsniff extract captures/ --where 'latency > 1s' -o slow.pcapng --top 100",
    ),
}


def _show(
    asked: Asked,
    target: Annotated[
        str,
        typer.Argument(
            metavar="PACKET|CONNECTION#CORRELATION_ID",
            help="A packet by its number, as Wireshark counts, or a call by connection and correlation id.",
            show_default=False,
        ),
    ],
    records: Annotated[
        bool,
        typer.Option(
            "--records",
            help="Open record batches: show keys, values and headers of records.",
            rich_help_panel=CHOICE,
        ),
    ] = False,
) -> int:
    """Show one call field by field: request and response.

    Each field is shown with its offset, its bytes and the versions that have it. Of a packet, the calls whose
    request or response it completes. Credentials are never shown, and record data only with --records.
    """
    from kwsniff.cli.show import show as job

    return job(asked, target, records=records)


show = asking(
    _show,
    without=frozenset(("where", "since", "until", "table", "top", "sort", "jobs", "quiet", "recursive")),
    files=OneCapture,
)


def _follow(
    asked: Asked,
    what: Annotated[
        str,
        typer.Argument(
            metavar="CONNECTION|CLIENT|GROUP|TOPIC",
            help="The beginning of a connection's id, a client id or address, a group, or a topic.",
            show_default=False,
        ),
    ],
    kind: Annotated[
        str | None,
        typer.Option(
            "--as",
            metavar="KIND",
            help="connection, client, group or topic, where one name is several of them.",
            rich_help_panel=CHOICE,
        ),
    ] = None,
) -> int:
    """Show a conversation in order: each request, each response.

    One line each, with its packets.
    """
    from kwsniff.answers.conversation import KINDS, Follow
    from kwsniff.cli.answering import answer
    from kwsniff.cli.problem import CommandError, suggestion

    if kind is not None and kind not in KINDS:
        raise CommandError(f"--as: {kind!r} is none of {', '.join(KINDS)}{suggestion(kind, KINDS)}")
    return answer(asked, Follow(what, kind))


follow = asking(_follow, without=frozenset(("table", "sort")), files=OneInput)


def _extract(
    asked: Asked,
    output: Annotated[
        str,
        typer.Option(
            "-o",
            "--output",
            metavar="OUT",
            help="Write the packets to this pcapng file; - is standard output.",
            rich_help_panel=OUTPUT,
        ),
    ],
) -> int:
    """Write only the packets of chosen calls, for Wireshark.

    The handshakes of their connections are in the file, too. Comments on the packets say what kwsniff saw.
    --top N takes the first N calls.
    """
    from kwsniff.cli.extract import extract as job

    return job(asked, output)


extract = asking(_extract, without=frozenset(("form", "table", "sort", "color", "wide")), files=Paths)
