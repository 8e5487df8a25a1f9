"""Help as a page: usage of a command, what it does, options in groups, examples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperCommand
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
            write_examples(formatter, self.examples)


def write_examples(formatter: Any, examples: tuple[str, ...]) -> None:
    """A section of examples, each on a line of its own however long it is."""
    with formatter.section("Examples"):
        for line in examples:
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
