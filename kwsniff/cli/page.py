"""Help as a page: of a command its usage, what it does, options in groups, examples; of the tool itself the
commands that there are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from kwsniff.cli.options import GROUPS

SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class HelpPage(TyperCommand):
    """A command whose help groups options by `rich_help_panel` and ends with `examples`."""

    examples: tuple[str, ...] = ()

    @classmethod
    def of(cls, name: str, function: Callable[..., None], examples: tuple[str, ...]) -> HelpPage:
        """The command that calls `function`, whose parameters are its arguments and options."""
        alone = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
        alone.command(name, cls=cls, context_settings=SETTINGS)(function)
        made = get_command(alone)
        assert isinstance(made, cls)
        made.examples = examples
        return made

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """`[OPTIONS] FILE…`: what may be repeated has dots, what may be left out has brackets."""
        return ["[OPTIONS]", *(usage(each) for each in self.params if each.param_type_name == "argument")]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Arguments, then each group of options under its heading, in the order of `GROUPS`."""
        groups: dict[str, list[tuple[str, str]]] = {title: [] for title in ("Arguments", *GROUPS)}
        for each in self.get_params(ctx):
            record = each.get_help_record(ctx)
            if record is not None:
                groups.setdefault(heading(each), []).append(record)
        for title, records in groups.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """The examples, each on a line of its own."""
        if self.examples:
            with formatter.section("Examples"):
                for line in self.examples:
                    formatter.write(f"{'':{formatter.current_indent}}{line}\n")


def usage(argument: Any) -> str:
    """An argument as the usage line has it."""
    name = str(argument.metavar or argument.name.upper()).strip("[]")
    name += "…" if argument.nargs == -1 else ""
    return name if argument.required else f"[{name}]"


def heading(parameter: Any) -> str:
    """The group that an option stands in."""
    if parameter.param_type_name == "argument":
        return "Arguments"
    panel = getattr(parameter, "rich_help_panel", None)
    return str(panel) if panel else "Options"


class Commands(TyperGroup):
    """The tool itself: it imports the module of a command when that command is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The names, in the order of the help."""
        from kwsniff.cli.commands import COMMANDS

        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of that name, or None."""
        from kwsniff.cli.commands import command

        return command(cmd_name)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Each command with the first sentence of its help."""
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([(name, str(each.help).split("\n\n")[0]) for name, each in found])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that `args` begin with; a name that comes close is suggested."""
        from kwsniff.cli.commands import COMMANDS
        from kwsniff.cli.problem import CommandError, suggestion

        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            near = suggestion(args[0], COMMANDS) or " (see kwsniff --help)"
            raise CommandError(f"no such command: {args[0]}{near}")
        return super().resolve_command(ctx, args)
