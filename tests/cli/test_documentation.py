"""Commands that the documentation shows are commands that there are."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from kwsniff.cli import commands as registry

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    *(page for page in sorted((ROOT / "docs").glob("*.md")) if page.name != "cli.md"),
    ROOT / "captures" / "README.md",
]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`(kwsniff [a-z][^`]*)`")
STANDS_FOR = {"FILE…": "x.pcap", "PATH…": "x", "DIR": "x", "[ATTACK]": "", "…": "x"}


def shown(page: Path) -> Iterator[str]:
    """The kwsniff commands of a page, in blocks and in sentences."""
    text = page.read_text(encoding="utf-8")
    for language, block in BLOCK.findall(text):
        if language not in ("", "sh", "bash"):
            continue
        for line in block.replace("\\\n", " ").splitlines():
            for part in re.split(r"[|&](?=\s|$)", re.sub(r"\s+#.*", "", line)):
                found = re.match(r"\s*(?:\$ )?(kwsniff [a-z-].*)", part)
                if found and not re.match(r"kwsniff live {2}", found[1]):  # the screen's head
                    yield found[1]
    yield from INLINE.findall(text.replace("\n", " "))


def parsed(command: str) -> None:
    """Raises what the command line raises for commands and options that there are not."""
    for word, meaning in STANDS_FOR.items():
        command = command.replace(word, meaning)
    name, *rest = shlex.split(command)[1:]
    registry.COMMANDS[name].make_context(name, rest)


COMMANDS = sorted({(page.name, command) for page in PAGES for command in shown(page)})


def test_there_are_commands_in_the_documentation() -> None:
    assert {command.split()[1] for _, command in COMMANDS} >= {
        "decode", "report", "pipeline", "live", "crosscheck", "protocol"
    }  # fmt: skip


@pytest.mark.parametrize(("page", "command"), COMMANDS)
def test_a_command_of_the_documentation_can_be_given(page: str, command: str) -> None:
    try:
        parsed(command)
    except Exception as error:
        # A sentence need not name the files, nor what an option takes.
        left_out = ("MissingParameter", "BadOptionUsage")
        if type(error).__name__ not in left_out or not re.fullmatch(r"kwsniff [\w-]+( -.*)?", command):
            raise
