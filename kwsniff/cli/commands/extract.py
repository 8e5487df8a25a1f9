"""`kwsniff extract`: its options, and what they ask for."""

from __future__ import annotations

from typing import Annotated

import typer

from kwsniff.cli.asked import Asked, asking
from kwsniff.cli.options import OUTPUT, Paths

EXAMPLES = (
    "kwsniff extract trace.pcapng --where 'error != None' -o errors.pcapng",
    "kwsniff extract captures/ --where 'latency > 1s' -o slow.pcapng --top 100",
)
LEFT_OUT = frozenset(("form", "table", "sort", "color", "wide"))


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


extract = asking(_extract, without=LEFT_OUT, files=Paths)
