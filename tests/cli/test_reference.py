from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kwsniff.cli.commands import loaded
from kwsniff.cli.options import GROUPS
from kwsniff.cli.page import heading
from kwsniff.cli.problem import DAMAGED, DONE, FINDINGS, INTERNAL, INTERRUPTED, USAGE
from kwsniff.cli.reference import reference
from tests.cli.conftest import ROOT, Ended, call

COMMANDS: dict[str, Any] = loaded()
DECODE = (ROOT / "docs/decode.md").read_text()


def test_the_page_of_the_command_line_is_what_the_commands_say() -> None:
    assert (ROOT / "docs/cli.md").read_text() == reference(), (
        "run python -m kwsniff.cli.reference > docs/cli.md"
    )


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_and_option_has_help(name: str) -> None:
    assert COMMANDS[name].help
    assert [each.name for each in COMMANDS[name].params if not each.help] == []


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_shows_two_examples_of_itself_that_can_be_given(name: str) -> None:
    page = COMMANDS[name]
    assert len(page.examples) >= 2
    for example in page.examples:
        program, command, *rest = shlex.split(example)
        assert (program, command) == ("kwsniff", name)
        page.make_context(name, rest)


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_the_options_of_a_command_stand_in_groups(name: str) -> None:
    ungrouped = [each.name for each in COMMANDS[name].params if heading(each) not in ("Arguments", *GROUPS)]
    assert ungrouped == []


def test_every_exit_code_is_in_the_guide() -> None:
    for code in (DONE, FINDINGS, USAGE, DAMAGED, INTERNAL, INTERRUPTED):
        assert f"| {code} |" in DECODE


def test_every_command_line_in_the_guide_runs(
    kwsniff: Callable[..., Ended], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("trace.pcap").write_text(json.dumps(call()) + "\n")
    lines = re.findall(r"^kwsniff (decode (?!--follow).*)$", DECODE, re.M)
    assert len(lines) >= 3
    for line in lines:
        assert kwsniff(*shlex.split(line.split(" | ")[0])).code == 0, line
