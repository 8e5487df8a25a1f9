"""README.md, docs/answers.md and docs/questions.md show what commands print: every `$ kwsniff` of them is
run, those of docs from the folder of the samples. docs/report.svg shows the report of today.

`pytest --update-golden` writes what they print now.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.answers.conftest import QUIET, Ended
from tests.cli.picture import REPORT, drawn, words

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)
PROMPT = re.compile(r"^\$ (kwsniff [^\n]*)\n", re.MULTILINE)


@pytest.mark.parametrize("name", ["README.md", "docs/answers.md", "docs/questions.md"])
def test_every_output_in_the_page_is_what_its_command_prints(
    kwsniff: Callable[..., Ended],
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    place = ROOT / name
    if place.parent == ROOT:
        monkeypatch.chdir(ROOT)
    page = place.read_text(encoding="utf-8")

    def told(line: str) -> str:
        words = shlex.split(line)[1:]
        ended = kwsniff(*words, *([] if words[0] in LOUD else ["-q"]))
        assert ended.code in (0, 1), (line, ended.err)
        return f"$ {line}\n{ended.out}"

    def now(found: re.Match[str]) -> str:
        return "```console\n" + "\n".join(map(told, PROMPT.findall(found[1]))) + "```"

    assert len(BLOCK.findall(page)) >= 2
    made = BLOCK.sub(now, page)
    if request.config.getoption("--update-golden"):
        place.write_text(made, encoding="utf-8")
    assert made == place.read_text(encoding="utf-8")


def test_the_picture_shows_the_report(
    kwsniff: Callable[..., Ended], request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "80")
    printed = kwsniff(*REPORT).out
    place = DOCS / "report.svg"
    if request.config.getoption("--update-golden"):
        place.write_text(drawn(printed), encoding="utf-8")
    assert words(place.read_text(encoding="utf-8")) == words(drawn(printed))


LOUD = (*QUIET, "report")
"""Without -q: the page has the summary in it."""


def test_fourteen_questions_are_answered_by_at_most_two_commands_each() -> None:
    parts = (DOCS / "questions.md").read_text(encoding="utf-8").split("\n## ")[1:]
    assert [part.split(".")[0] for part in parts] == [str(number) for number in range(1, 15)]
    assert all(1 <= len(PROMPT.findall(part)) <= 2 for part in parts)
