"""`kwsniff compare`: its options, and what they ask for."""

from __future__ import annotations

from typing import Annotated

import typer

from kwsniff.cli.asked import Asked, asking
from kwsniff.cli.options import FirstInput

EXAMPLES = (
    "kwsniff compare before.pcapng after.pcapng",
    "kwsniff compare monday.parquet tuesday.parquet --where 'topic == \"orders\"'",
)


def _compare(
    asked: Asked,
    other: Annotated[
        str,
        typer.Argument(metavar="B", help="The second input, of the same kinds.", show_default=False),
    ],
) -> int:
    """Compare two inputs: latency, errors, who came and went.

    What got slower is shown with the size of the effect and the counts. Tables: latency, errors, clients.
    """
    from kwsniff.cli.comparing import compare as job

    return job(asked, other)


compare = asking(_compare, files=FirstInput, without=frozenset(("recursive",)))
