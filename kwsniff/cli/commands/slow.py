"""`kwsniff slow`: its options, and what they ask for."""

from __future__ import annotations

from typing import Annotated

import typer

from kwsniff.cli.asked import Asked, asking
from kwsniff.cli.options import CHOICE

EXAMPLES = (
    "kwsniff slow trace.pcapng",
    "kwsniff slow trace.pcapng --where 'api == \"Produce\" and latency > 1s' --top 5",
)


@asking
def slow(
    asked: Asked,
    waiting: Annotated[
        bool,
        typer.Option(
            "--waiting",
            help="Also calls that wait on purpose: Fetch without data, JoinGroup, SyncGroup.",
            rich_help_panel=CHOICE,
        ),
    ] = False,
) -> int:
    """Show which calls and clients took longest, and why.

    Tables: calls, clients (a row for each client, API and broker).
    """
    from kwsniff.answers.slow import Slow
    from kwsniff.cli.answering import answer

    return answer(asked, Slow(waiting=waiting))
