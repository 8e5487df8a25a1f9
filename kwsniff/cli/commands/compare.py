"""`kwsniff compare`: its options, and what they ask for."""

from __future__ import annotations

from typing import Annotated

import typer

from kwsniff.cli.asked import Asked, asking
from kwsniff.cli.options import CHOICE, FirstInput

EXAMPLES = (
    "kwsniff compare before.pcapng after.pcapng",
    "kwsniff compare trace.pcapng --a /12:03 --b 12:03/",
    "kwsniff compare monday.parquet tuesday.parquet --where 'topic == \"orders\"'",
)


def _compare(
    asked: Asked,
    other: Annotated[
        str | None,
        typer.Argument(
            metavar="[B]",
            help="The second input, of the same kinds; without one, --a and --b are windows of A.",
            show_default=False,
        ),
    ] = None,
    a: Annotated[
        str | None,
        typer.Option(
            "--a",
            metavar="FROM/UNTIL",
            help="Of A only this time, such as 12:03:05/12:04; one side may be left out.",
            rich_help_panel=CHOICE,
        ),
    ] = None,
    b: Annotated[
        str | None,
        typer.Option(
            "--b", metavar="FROM/UNTIL", help="Of B, or of A a second time, likewise.", rich_help_panel=CHOICE
        ),
    ] = None,
) -> int:
    """Compare inputs or windows of one: latency, errors, clients.

    What got slower is shown with the size of the effect and the counts. Tables: latency, errors,
    clients (who came and went).
    """
    from kwsniff.cli.comparing import compare as job

    return job(asked, other, (a, b))


compare = asking(_compare, files=FirstInput, without=frozenset(("recursive",)))
