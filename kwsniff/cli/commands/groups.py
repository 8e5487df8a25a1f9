"""`kwsniff groups`: its options, and what they ask for."""

from __future__ import annotations

from typing import Annotated

import typer

from kwsniff.cli.asked import Asked, asking
from kwsniff.cli.options import CHOICE

EXAMPLES = (
    "kwsniff groups trace.pcapng",
    "kwsniff groups trace.pcapng --group payments --table lag --sort lag",
)


@asking
def groups(
    asked: Asked,
    group: Annotated[
        str | None,
        typer.Option("--group", metavar="NAME", help="Only this group.", rich_help_panel=CHOICE),
    ] = None,
) -> int:
    """Show rebalances and their causes, members, commits and lag.

    For each rebalance, who joined or left. Lag is as far as the packets show it. Tables: rebalances,
    members, lag.
    """
    from kwsniff.answers.groups import Groups
    from kwsniff.cli.answering import answer

    return answer(asked, Groups(group))
