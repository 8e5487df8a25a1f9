"""Writes docs/cli.md from the commands themselves: ``python -m kwsniff.cli.reference > docs/cli.md``.

What it writes depends on names, arguments, options and help texts alone, not on the terminal or on how this
version of typer lays out its help.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer.main

from kwsniff.cli.page import usage

HEAD = """# Command line

Made from the commands' own help by `python -m kwsniff.cli.reference`; a test fails when it is out of date.
What the formats hold, the language of `--where` and the exit codes are described in [decode.md](decode.md).
"""


def reference() -> str:
    """The whole page."""
    from kwsniff.cli.commands import loaded
    from kwsniff.cli.root import app

    root = typer.main.get_command(app)
    parts = [HEAD, *_section("kwsniff", root)]
    for name, command in loaded().items():
        parts += _section(f"kwsniff {name}", command)
    return "\n".join(parts).rstrip() + "\n"


def _section(name: str, command: Any) -> Iterator[str]:
    words = [name, "[OPTIONS]", *_arguments(command), *(["COMMAND ..."] if _is_group(command) else [])]
    line = " ".join(words)
    yield f"## {name}\n"
    yield _paragraphs(command.help or "")
    yield f"```\n{line}\n```\n"
    rows = [_row(parameter) for parameter in command.params]
    if rows:
        yield "| | |\n| --- | --- |"
        yield from rows
        yield ""
    examples = getattr(command, "examples", ())
    if examples:
        yield "\n".join(["```", *examples, "```\n"])


def _is_group(command: Any) -> bool:
    return hasattr(command, "commands")


def _paragraphs(text: str) -> str:
    paragraphs = re.split(r"\n\s*\n", text.strip())
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs) + "\n"


def _arguments(command: Any) -> list[str]:
    return [usage(each) for each in command.params if each.param_type_name == "argument"]


def _row(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        label = f"`{usage(parameter)}`"
    else:
        value = "" if parameter.is_flag else f" {parameter.metavar}"
        label = ", ".join(f"`{spelling}{value}`" for spelling in parameter.opts)
    help_text = " ".join((parameter.help or "").split())
    return f"| {label} | {help_text.replace('|', chr(92) + '|')} |"


if __name__ == "__main__":
    print(reference(), end="")
