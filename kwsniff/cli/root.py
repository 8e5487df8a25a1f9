"""`kwsniff` itself: what holds for all commands."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from kwsniff import __version__
from kwsniff.cli.commands import COMMANDS, EXAMPLES, GROUPS, command
from kwsniff.cli.page import SETTINGS, write_examples
from kwsniff.cli.problem import USAGE, CommandError, suggestion

# The tool itself: its commands, each imported when it is asked for.


class Commands(TyperGroup):
    """The tool itself: it imports the module of a command when that command is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The names, in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of that name, or None."""
        return command(cmd_name)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Examples first, then the commands in groups, each with the first sentence of its help."""
        write_examples(formatter, EXAMPLES)
        widest = max(map(len, COMMANDS))
        for title, names in GROUPS.items():
            found = [(name, command(name)) for name in names]
            with formatter.section(title):
                formatter.write_dl(
                    [(name.ljust(widest), str(each and each.help).split("\n\n")[0]) for name, each in found]
                )
        with formatter.section("Options"):
            formatter.write_dl([each.get_help_record(ctx) for each in self.get_params(ctx)])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that `args` begin with; a name that comes close is suggested."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            near = suggestion(args[0], COMMANDS) or " (see kwsniff --help)"
            raise CommandError(f"no such command: {args[0]}{near}")
        return super().resolve_command(ctx, args)


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
