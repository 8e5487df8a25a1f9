from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kwsniff.cli.commands import COMMANDS, EXAMPLES
from kwsniff.cli.commands import GROUPS as COMMAND_GROUPS
from kwsniff.cli.options import ARGUMENTS, GROUPS
from kwsniff.cli.problem import DAMAGED, DONE, FINDINGS, INTERNAL, INTERRUPTED, TERMINATED, USAGE
from kwsniff.cli.reference import manual, reference
from kwsniff.cli.running import run
from tests.cli.conftest import ROOT, Ended, Said, call, process
from tests.samples import CAPTURES

DECODE = (ROOT / "docs/decode.md").read_text()


def test_the_page_of_the_command_line_is_what_the_commands_say() -> None:
    assert (ROOT / "docs/cli.md").read_text() == reference(), (
        "run python -m kwsniff.cli.reference > docs/cli.md"
    )


def test_the_man_page_is_what_the_commands_say() -> None:
    assert (ROOT / "docs/kwsniff.1").read_text() == manual(), (
        "run python -m kwsniff.cli.reference man > docs/kwsniff.1"
    )


@pytest.mark.skipif(not shutil.which("man"), reason="man is not installed")
def test_man_shows_every_command_as_it_is_typed() -> None:
    environment = {"PATH": os.environ["PATH"], "MANWIDTH": "100", "LC_ALL": "C.UTF-8", "GROFF_NO_SGR": "1"}
    command = ["man", "--warnings", "-P", "cat", "-l", str(ROOT / "docs/kwsniff.1")]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert shown.stderr == ""
    page = re.sub(r".\x08", "", shown.stdout)
    for example in (*EXAMPLES, *(each for name in COMMANDS for each in COMMANDS[name].examples)):
        assert f" {example}\n" in page
    for code in (DONE, FINDINGS, USAGE, DAMAGED, INTERNAL, INTERRUPTED, TERMINATED):
        assert re.search(rf"^ +{code} ", page, re.M)


def test_the_help_begins_with_three_examples_and_names_each_command_in_its_group_on_one_line() -> None:
    shown = process("--help", module="kwsniff", env={"COLUMNS": "80"}).stdout.decode()
    sections = dict(re.findall(r"^(\w[^\n]*):\n((?:  .*\n)+)", shown, re.M))
    assert list(sections) == ["Examples", *COMMAND_GROUPS, "Options"]
    assert sections["Examples"].count("\n") == 3
    for group, names in COMMAND_GROUPS.items():
        assert [line.split()[0] for line in sections[group].splitlines()] == list(names)


@pytest.mark.parametrize("name", ["--help", *sorted(COMMANDS)])
def test_help_fits_eighty_columns(name: str, said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = said(name, *(["--help"] if name in COMMANDS else [])).stdout.decode()
    assert [line for line in shown.splitlines() if len(line) > 80] == []


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_and_option_has_help(name: str) -> None:
    assert COMMANDS[name].help
    assert [each.name for each in COMMANDS[name].params if not each.meaning] == []


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_shows_two_examples_of_itself_that_can_be_given(name: str) -> None:
    page = COMMANDS[name]
    assert len(page.examples) >= 2
    for example in page.examples:
        program, command, *rest = shlex.split(example)
        assert (program, command) == ("kwsniff", name)
        page.make_context(name, rest)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the examples of the help read."""
    made = tmp_path_factory.mktemp("examples")
    (made / "captures").mkdir()
    (made / "results" / "events").mkdir(parents=True)
    groups, produce = (CAPTURES / f"librdkafka-{name}.pcapng" for name in ("groups", "produce"))
    for capture, names in ((groups, ("trace", "before", "captures/a")), (produce, ("after", "captures/b"))):
        for name in names:
            (made / f"{name}.pcapng").symlink_to(capture)
    for capture, name in ((groups, "monday"), (groups, "results/events/all"), (produce, "tuesday")):
        assert run(["decode", "-q", str(capture), "-o", str(made / f"{name}.parquet")]) == DONE
    return made


@pytest.mark.parametrize("name", ["", *sorted({*COMMANDS} - {"live", "pipeline", "crosscheck"})])
def test_examples_run_as_they_stand(
    name: str, folder: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that need no root, Spark or Wireshark."""
    monkeypatch.chdir(folder)
    for example in COMMANDS[name].examples if name else EXAMPLES[:2]:
        ended = said(*shlex.split(example)[1:])
        assert ended.returncode in (DONE, FINDINGS), (example, ended.stderr)


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_the_options_of_a_command_stand_in_groups(name: str) -> None:
    ungrouped = [each.name for each in COMMANDS[name].params if each.group not in (ARGUMENTS, *GROUPS)]
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
