"""README.md and the pages of docs show what commands print and what the rules say.

`pytest --update-golden` accepts what commands print now."""

from __future__ import annotations

import dataclasses
import inspect
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from kwsniff.analysis.findings import FINDINGS, RULES, Rule
from kwsniff.analysis.lag import LAG
from kwsniff.analysis.rule import SEVERITIES, Thresholds
from tests.analysis.conftest import QUIET, Ended, files
from tests.cli.picture import REPORT, drawn, words
from tests.samples import names, sample

# Every `$ kwsniff` of the pages is run

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)
TABLE = re.compile(r"\| ---.*\n((?:\| .*\n)+)")
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


# The page of findings


def thresholds() -> dict[str, str]:
    """What is said of each threshold where it is declared."""
    declared = re.findall(r'    (\w+): \w+ = \S+\n    """(.*?)"""', inspect.getsource(Thresholds), re.DOTALL)
    return {name: " ".join(text.split()) for name, text in declared}


def columns(fields: pa.Schema) -> list[str]:
    return [f"| `{field.name}` | {field.type} | {field.metadata[b'doc'].decode()} |" for field in fields]


def test_the_page_of_findings_is_what_the_rules_say(request: pytest.FixtureRequest) -> None:
    place = DOCS / "findings.md"
    rules = [
        f"### {each.code}\n\n{inspect.getdoc(each)}\n\nOn the page: {each.about}. Not shown by a capture "
        f"with {each.missing}.\n"
        for each in RULES
    ]
    limits = [
        f"| `{name}` | {getattr(Thresholds(), name):,} | {text} |" for name, text in thresholds().items()
    ]
    grave = [f"| {name.replace('_', ' ')} | {meaning} |" for name, meaning in SEVERITIES.items()]
    made = place.read_text(encoding="utf-8")
    made = made.replace(made[made.index("### ") : made.index("\n## The figures")], "\n".join(rules))
    for found, table in zip(
        TABLE.findall(made), (grave, columns(FINDINGS), columns(LAG), limits), strict=True
    ):
        made = made.replace(found, "\n".join(table) + "\n")
    if request.config.getoption("--update-golden"):
        place.write_text(made, encoding="utf-8")
    assert made == place.read_text(encoding="utf-8"), "pytest --update-golden accepts what the rules say"


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_every_rule_says_what_it_means_and_what_to_do(rule: type[Rule]) -> None:
    assert len(inspect.getdoc(rule) or "") > 80
    assert rule.missing
    assert rule.several.endswith(".")
    assert len(rule.about) <= 20


def test_every_threshold_is_documented_and_codes_are_unique() -> None:
    assert list(thresholds()) == [field.name for field in dataclasses.fields(Thresholds)]
    assert len({rule.code for rule in RULES}) == len({rule.about for rule in RULES}) == len(RULES)


GOLDEN = Path(__file__).parents[1] / "data" / "answers"
ANSWERS = {
    "audit-java-admin": "audit java-admin",
    "auth-sasl": "auth sasl",
    "clients-java-groups": "clients java-groups",
    "clients-librdkafka-produce": "clients librdkafka-produce",
    "compare-kafka-python": "compare kafka-python-kafka kafka-python-tansu",
    "errors-librdkafka-admin": "errors librdkafka-admin --full",
    "errors-librdkafka-errors": "errors librdkafka-errors --full",
    "follow-static": "follow librdkafka-groups static",
    "groups-librdkafka": "groups librdkafka-groups",
    "show-join": "show librdkafka-groups JoinGroup",
    "slow-throttled": "slow throttled",
    "upgrade-kafka-0.8": "upgrade-check --target 4.0 kafka-0.8",
    "upgrade-sasl-0.10": "upgrade-check --target 4.3 sasl-0.10",
}
"""Commands by what they printed is called; samples stand for their files, an API for its first call."""


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_is_as_it_was(
    name: str, kwsniff: Callable[..., Ended], request: pytest.FixtureRequest
) -> None:
    command, *given = ANSWERS[name].split()
    words = [file for word in given for file in (files(word) if word in names() else [word])]
    if given[-1] == "JoinGroup":
        call = next(row for row in sample(given[0]).calls if row["api"] == given[-1])
        words[-1] = str(call["response_packet"])
    ended = kwsniff(command, *words, *([] if command in QUIET else ["-q"]))
    assert ended.code == (name == "upgrade-kafka-0.8"), ended.err
    assert all(len(line) <= 100 for line in ended.out.splitlines())
    path = GOLDEN / f"{name}.txt"
    if request.config.getoption("--update-golden"):
        path.write_text(ended.out, encoding="utf-8")
    assert ended.out == path.read_text(encoding="utf-8")
