"""The tool itself: its commands, each imported when it is asked for."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

from kwsniff.cli.commands import COMMANDS, command
from kwsniff.cli.problem import CommandError, suggestion


class Commands(TyperGroup):
    """The tool itself: it imports the module of a command when that command is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The names, in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of that name, or None."""
        return command(cmd_name)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Each command with the first sentence of its help."""
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([(name, str(each.help).split("\n\n")[0]) for name, each in found])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that `args` begin with; a name that comes close is suggested."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            near = suggestion(args[0], COMMANDS) or " (see kwsniff --help)"
            raise CommandError(f"no such command: {args[0]}{near}")
        return super().resolve_command(ctx, args)
