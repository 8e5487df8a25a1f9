"""`kwsniff protocol`: its options, and what they ask for."""

from __future__ import annotations

from typing import Annotated

import typer

EXAMPLES = (
    "kwsniff protocol",
    "kwsniff protocol Fetch 12",
)


def protocol(
    api: Annotated[
        str | None,
        typer.Argument(
            metavar="[API]",
            help="Name or key of an API, name of a data message, or `dump` for everything as JSON Lines.",
            show_default=False,
        ),
    ] = None,
    version: Annotated[
        int | None,
        typer.Argument(metavar="[VERSION]", help="Version to show; default: the newest.", show_default=False),
    ] = None,
) -> None:
    """List all APIs and versions, or show the layout of one."""
    from kwsniff.cli.protocol import show

    raise typer.Exit(show(api, version))
