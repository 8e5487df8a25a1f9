"""`kwsniff` itself: what holds for all commands."""

from __future__ import annotations

from typing import Annotated

import typer

from kwsniff import __version__
from kwsniff.cli.group import Commands
from kwsniff.cli.page import SETTINGS
from kwsniff.cli.problem import USAGE

app = typer.Typer(
    name="kwsniff",
    cls=Commands,
    help="Passive analyzer of the Kafka wire protocol: captures in, calls, latencies and errors out.",
    invoke_without_command=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings=SETTINGS,
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"kwsniff {__version__}")
        raise typer.Exit


@app.callback()
def root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback if kwsniff itself fails.")
    ] = False,
) -> None:
    """Passive analyzer of the Kafka wire protocol: captures in, calls, latencies and errors out."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), err=True)
        raise typer.Exit(USAGE)
