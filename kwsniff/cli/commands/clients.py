"""`kwsniff clients`: its options, and what they ask for."""

from __future__ import annotations

from typing import Annotated

import typer

from kwsniff.cli.asked import Asked, asking
from kwsniff.cli.options import CHOICE

EXAMPLES = (
    "kwsniff clients trace.pcapng",
    "kwsniff clients trace.pcapng --topic orders",
    "kwsniff clients results/events -f csv --table settings",
)


@asking
def clients(
    asked: Asked,
    topic: Annotated[
        str | None,
        typer.Option("--topic", metavar="NAME", help="Only who uses this topic.", rich_help_panel=CHOICE),
    ] = None,
    full: Annotated[
        bool,
        typer.Option(
            "--full", help="Look into bodies too, for isolation levels; slower.", rich_help_panel=CHOICE
        ),
    ] = False,
) -> int:
    """Show who uses which topic, in which group, and how.

    Each client is shown with its address, software and user. Tables: uses (a row for each client and topic),
    clients, settings.
    """
    from kwsniff.answers.clients import Clients
    from kwsniff.cli.answering import answer

    return answer(asked, Clients(topic, bodies=full))
