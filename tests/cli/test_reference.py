"""Commands, options and what is said of them: help, man page, completion, documentation, spelling."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kwsniff.cli import commands as registry
from kwsniff.cli.commands import COMMANDS, EXAMPLES
from kwsniff.cli.commands import GROUPS as COMMAND_GROUPS
from kwsniff.cli.options import ARGUMENTS, GROUPS
from kwsniff.cli.problem import DAMAGED, DONE, FINDINGS, INTERNAL, INTERRUPTED, TERMINATED, USAGE
from kwsniff.cli.reference import manual, reference
from kwsniff.cli.running import run
from tests.cli.conftest import ROOT, Ended, Said, call, connection, process
from tests.samples import CAPTURES

# Reference

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


@pytest.mark.parametrize("name", ["", *sorted({*COMMANDS} - {"live", "pipeline", "crosscheck", "mcp"})])
def test_examples_run_as_they_stand(
    name: str, folder: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that need no root, Spark, Wireshark or assistant."""
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


# Completion


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


# Commands that the documentation shows are commands that there are

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


SHOWN = sorted({(page.name, command) for page in PAGES for command in shown(page)})


def test_there_are_commands_in_the_documentation() -> None:
    assert {command.split()[1] for _, command in SHOWN} >= {
        "decode", "report", "pipeline", "live", "crosscheck", "protocol"
    }  # fmt: skip


@pytest.mark.parametrize(("page", "command"), SHOWN)
def test_a_command_of_the_documentation_can_be_given(page: str, command: str) -> None:
    try:
        parsed(command)
    except Exception as error:
        # A sentence need not name the files, nor what an option takes.
        left_out = ("MissingParameter", "BadOptionUsage")
        if type(error).__name__ not in left_out or not re.fullmatch(r"kwsniff [\w-]+( -.*)?", command):
            raise


# What kwsniff says where its output alone would leave people guessing

Run = Callable[..., Ended]
Capture = Callable[..., str]
NONE = ("--where", "latency_us > 1e9")


def test_decode_says_that_the_filter_left_no_row(kwsniff: Run, capture: Capture) -> None:
    path = capture(call(), call(), connection())
    ended = kwsniff("decode", path, "-q", *NONE)
    assert (ended.code, ended.out, ended.err) == (0, "", "kwsniff: --where left none of 3 rows\n")
    assert kwsniff("decode", path, "-q", "--where", "latency_us > 1").err == ""
    assert kwsniff("decode", capture(name="empty"), "-q", *NONE).err == ""


def test_a_report_says_that_the_filter_left_no_call(kwsniff: Run, capture: Capture) -> None:
    path = capture(call(), call(), connection())
    assert kwsniff("report", path, "-q", *NONE).err == "kwsniff: --where left none of 2 calls\n"
    assert kwsniff("report", path, "-q", "--where", "latency_us > 1").err == ""
    assert kwsniff("report", capture(connection(), name="no calls"), "-q", *NONE).err == ""


HINT = "only a part (…, +n, n errors): -f jsonl or csv has all of it, --full the bodies, too"
PARTITIONS = [{"topic": "t", "partition": number} for number in range(9)]


@pytest.mark.parametrize(
    "columns",
    [{"topics": list("abcdefghi")}, {"topics": ["t"], "partitions": PARTITIONS}, {"error_count": 2}],
    ids=["topics", "partitions", "errors"],
)
def test_lines_that_cannot_show_all_say_how_to_see_it(
    columns: dict[str, object], kwsniff: Run, capture: Capture
) -> None:
    path = capture(call(**columns), call())
    assert f"kwsniff: 1 line shows {HINT}\n" in kwsniff("decode", path).err
    assert HINT not in kwsniff("decode", path, "-q").err
    assert HINT not in kwsniff("decode", path, "-f", "jsonl").err
    assert f"2 lines show {HINT}" in kwsniff("decode", path, path).err


def test_lines_that_show_all_say_nothing_of_it(kwsniff: Run, capture: Capture) -> None:
    row = call(topics=list("abcdefgh"), partitions=PARTITIONS[:8], error_count=1)
    assert HINT not in kwsniff("decode", capture(row)).err
