"""`kwsniff errors`: its options, and what they ask for."""

from __future__ import annotations

from typing import Annotated

import typer

from kwsniff.cli.asked import Asked, asking
from kwsniff.cli.options import CHOICE

EXAMPLES = (
    "kwsniff errors trace.pcapng",
    "kwsniff errors trace.pcapng --full --where 'topic == \"orders\"'",
    "kwsniff errors captures/ -f csv --top 0",
)


@asking
def errors(
    asked: Asked,
    full: Annotated[
        bool,
        typer.Option(
            "--full",
            help="Look into bodies, for error codes that stand anywhere in them; slower.",
            rich_help_panel=CHOICE,
        ),
    ] = False,
) -> int:
    """Show who got which error, for which topic, and when.

    Every error code of every response counts, whether it can be retried or not. Tables: errors, codes (a row
    for each code with its meaning).
    """
    from kwsniff.answers.errors import Errors
    from kwsniff.cli.answering import answer

    return answer(asked, Errors(bodies=full))
