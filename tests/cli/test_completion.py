from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kwsniff.cli.commands import COMMANDS
from tests.cli.conftest import ROOT, process


def completed(words: str) -> list[str]:
    """What bash is offered behind these words."""
    asked = {"_KWSNIFF_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    offered = process(module="kwsniff", env=asked).stdout.decode().split()
    return [each.removeprefix("plain,") for each in offered]


def test_commands_are_completed() -> None:
    assert set(completed("kwsniff ")) == set(COMMANDS)
    assert completed("kwsniff upg") == ["upgrade-check"]


def test_options_are_completed() -> None:
    assert completed("kwsniff clients --si") == ["--since"]
    assert "--where" in completed("kwsniff decode --")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_a_script_of_its_own(shell: str) -> None:
    ended = process("completion", shell, module="kwsniff")
    assert ended.returncode == 0
    assert f"{shell}_complete" in ended.stdout.decode()


def test_bash_completes_with_its_script(tmp_path: Path) -> None:
    bash = shutil.which("bash")
    assert bash
    program = tmp_path / "kwsniff"
    program.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m kwsniff "$@"\n')
    program.chmod(0o755)
    commands = (
        'eval "$(kwsniff completion bash)"; COMP_WORDS=(kwsniff fol); COMP_CWORD=1; '
        "_kwsniff_completion kwsniff; echo $COMPREPLY"
    )
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    command = [bash, "-c", commands]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert ended.stdout == "follow\n"


def test_a_shell_that_is_not_known_is_an_error() -> None:
    ended = process("completion", "csh", module="kwsniff")
    assert ended.returncode == 2
    assert b"no completion for 'csh'" in ended.stderr
