"""`kwsniff show`: its options, and what they ask for."""

from __future__ import annotations

from typing import Annotated

import typer

from kwsniff.cli.asked import Asked, asking
from kwsniff.cli.options import CHOICE, OneCapture

EXAMPLES = (
    "kwsniff show trace.pcapng 138",
    "kwsniff show trace.pcapng 4905ac74e8683338#12 --records",
)
LEFT_OUT = frozenset(("where", "since", "until", "table", "top", "sort", "jobs", "quiet", "recursive"))


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


show = asking(_show, without=LEFT_OUT, files=OneCapture)
