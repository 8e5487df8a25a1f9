"""Writes docs/cli.md and the man page from the commands themselves::

    python -m kwsniff.cli.reference > docs/cli.md
    python -m kwsniff.cli.reference man > docs/kwsniff.1

What it writes depends on names, arguments, options and help texts alone, not on the terminal or on how this
version of click lays out its help.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import click

from kwsniff.cli.commands import COMMANDS, EXAMPLES, GROUPS
from kwsniff.cli.options import Argument
from kwsniff.cli.running import app

HEAD = """# Command line

Made from the commands' own help by `python -m kwsniff.cli.reference`; a test fails when it is out of date.
What the formats hold, the language of `--where` and the exit codes are described in [decode.md](decode.md).
"""


EXIT = (
    ("0", "Done."),
    ("1", "Findings, of upgrade-check and crosscheck only."),
    ("2", "Wrong usage, an input that cannot be read, or an output that cannot be written."),
    ("3", "Done, but part of the input was damaged; a line on standard error says what."),
    ("70", "A fault of kwsniff itself; kwsniff --debug shows the traceback."),
    ("130", "Ended by Ctrl-C."),
    ("143", "Ended by SIGTERM."),
)
SPECIAL = str.maketrans({"\\": "\\e", "-": "\\-", "'": "\\(aq", "`": "\\(ga", "^": "\\(ha", "~": "\\(ti"})
"""What roff would set otherwise than it is to be typed."""


def reference() -> str:
    parts = [HEAD]
    for name, command in _all():
        parts += _section(name, command)
    return "\n".join(parts).rstrip() + "\n"


def manual() -> str:
    """The man page, kwsniff(1)."""
    (_, root), *commands = _all()
    sections = dict(commands)
    lines = ['.TH KWSNIFF 1 "" "kwsniff" "User Commands"', ".SH NAME"]
    lines += [_roff(f"kwsniff - {root.help}").rstrip("."), ".SH SYNOPSIS"]
    lines += [".B kwsniff", _roff("[OPTIONS] COMMAND [ARGS]..."), ".SH EXAMPLES", *_typed(EXAMPLES)]
    lines += [".SH OPTIONS", *_options(root)]
    for title, names in GROUPS.items():
        lines.append(f".SH {title.upper()}")
        for name in names:
            lines += _subsection(f"kwsniff {name}", sections[f"kwsniff {name}"])
    lines += [".SH EXIT STATUS", *_tagged(EXIT), ".SH SEE ALSO", r"tcpdump(1), tshark(1), pcap\-filter(7)"]
    return "\n".join(lines) + "\n"


def _all() -> list[tuple[str, click.Command]]:
    """`kwsniff` and its commands, in the order of the help."""
    names = [name for group in GROUPS.values() for name in group]
    return [("kwsniff", app), *((f"kwsniff {name}", COMMANDS[name]) for name in names)]


def _section(name: str, command: Any) -> Iterator[str]:
    yield f"## {name}\n"
    yield "\n\n".join(_paragraphs(command)) + "\n"
    yield f"```\n{_usage(name, command)}\n```\n"
    rows = [_row(parameter) for parameter in command.params]
    if rows:
        yield "| | |\n| --- | --- |"
        yield from rows
        yield ""
    examples = getattr(command, "examples", ())
    if examples:
        yield "\n".join(["```", *examples, "```\n"])


def _subsection(name: str, command: Any) -> Iterator[str]:
    yield f".SS {_roff(_usage(name, command))}"
    for paragraph in _paragraphs(command):
        yield f".PP\n{_roff(paragraph)}"
    yield from _options(command)
    yield from _typed(command.examples)


def _options(command: Any) -> Iterator[str]:
    return _tagged([(", ".join(_spelled(each)), _help(each)) for each in command.params])


def _tagged(rows: Sequence[tuple[str, str]]) -> Iterator[str]:
    for label, text in rows:
        yield f".TP\n.B {_roff(label)}\n{_roff(text)}"


def _typed(lines: Sequence[str]) -> list[str]:
    return [".PP\n.nf", *map(_roff, lines), ".fi"]


def _roff(text: str) -> str:
    return re.sub(r"^\.", r"\\&.", text.translate(SPECIAL))


def _usage(name: str, command: Any) -> str:
    more = ["COMMAND ..."] if hasattr(command, "commands") else []
    return " ".join([name, "[OPTIONS]", *_arguments(command), *more])


def _paragraphs(command: Any) -> list[str]:
    return [" ".join(paragraph.split()) for paragraph in re.split(r"\n\s*\n", (command.help or "").strip())]


def _arguments(command: Any) -> list[str]:
    return [each.usage for each in command.params if isinstance(each, Argument)]


def _spelled(parameter: Any) -> list[str]:
    """An argument, or each spelling of an option with what it takes."""
    if isinstance(parameter, Argument):
        return [parameter.usage]
    value = "" if parameter.is_flag else f" {parameter.metavar}"
    return [f"{spelling}{value}" for spelling in parameter.opts]


def _help(parameter: Any) -> str:
    return parameter.meaning if isinstance(parameter, Argument) else str(parameter.help)


def _row(parameter: Any) -> str:
    label = ", ".join(f"`{each}`" for each in _spelled(parameter))
    return f"| {label} | {_help(parameter).replace('|', chr(92) + '|')} |"


if __name__ == "__main__":
    print(manual() if sys.argv[1:] == ["man"] else reference(), end="")
