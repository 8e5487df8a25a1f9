"""docs/findings.md, made from the rules: `python -m kwsniff.findings.reference > docs/findings.md`."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator

from kwsniff.findings import RULES
from kwsniff.findings import thresholds as module
from kwsniff.findings.finding import FINDINGS, SEVERITIES
from kwsniff.findings.thresholds import Thresholds

INTRODUCTION = """\
# Findings

What `kwsniff report` says in sentences, and what each of them means. A rule looks at calls, anomalies and
connections while they pass, in memory that does not grow with the input; when the input ends it says what
it found, with the figures it rests on, the packets that show it first and last, and the command that shows
more. Names of commands stand without their input: put your files where FILE stands.

Three answers are possible. A rule *found* something; it looked and everything was *ok*; or the capture does
*not show* what it looks at, because there is no such traffic in it or because it is encrypted. Not shown is
no praise.

Every finding is a row of findings.csv (`kwsniff report FILE --csv DIR`) and of the array `findings` of
`kwsniff report FILE --json`, so are the other two answers. In JSON `numbers` is an object and `evidence` a
list. This page is made from the rules by `python -m kwsniff.findings.reference`.
"""


def page() -> str:
    """The whole page."""
    return "\n".join([INTRODUCTION, *_severities(), *_columns(), *_rules(), *_thresholds()])


def _severities() -> Iterator[str]:
    yield "| severity | |\n| --- | --- |"
    yield from (f"| {name.replace('_', ' ')} | {meaning} |" for name, meaning in SEVERITIES.items())
    yield ""


def _columns() -> Iterator[str]:
    yield "## findings.csv\n\n| column | type | meaning |\n| --- | --- | --- |"
    for field in FINDINGS:
        yield f"| `{field.name}` | {field.type} | {field.metadata[b'doc'].decode()} |"
    yield ""


def _rules() -> Iterator[str]:
    yield "## The rules\n"
    for rule in RULES:
        yield f"### {rule.code}\n\n{inspect.getdoc(rule)}\n"
        yield f"On the page: {rule.about}. Not shown by a capture with {rule.missing}.\n"


def _thresholds() -> Iterator[str]:
    yield "## Thresholds\n"
    yield "`kwsniff report --threshold slow_ms=250` and `kwsniff live --threshold ...` take others, and so do"
    yield "`Config.thresholds` in Python and `Findings(Thresholds(...))`.\n"
    yield "| threshold | default | meaning |\n| --- | ---: | --- |"
    documents = thresholds()
    for name, text in documents.items():
        yield f"| `{name}` | {getattr(Thresholds(), name):,} | {text} |"


def thresholds() -> dict[str, str]:
    """What is said of each threshold where it is declared."""
    (declared,) = (
        node for node in ast.parse(inspect.getsource(module)).body if isinstance(node, ast.ClassDef)
    )
    found = {}
    for field, text in zip(declared.body, declared.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            assert isinstance(text, ast.Expr)
            assert isinstance(text.value, ast.Constant)
            found[field.target.id] = " ".join(str(text.value.value).split())
    return found


if __name__ == "__main__":
    print(page())
