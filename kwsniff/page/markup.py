"""The markup of the page: headings, findings, trust, and places for what the script draws. Every text that
comes from outside is escaped here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kwsniff.analysis.finding import NOT_SHOWN, OK, SEVERITIES
from kwsniff.analysis.findings import Fact, facts
from kwsniff.output.text import printable
from kwsniff.page.document import escaped

if TYPE_CHECKING:
    from kwsniff.analysis.findings import Finding

FIRST, FINDINGS = 8, 100
"""Whom a fact is about: so many are seen at once, and on the page."""
LONGEST = 2_000


class Part:
    """One block of the page."""

    def __init__(self, name: str, title: str, command: str, inner: str, about: str = "") -> None:
        self.name, self.title, self.command, self.inner, self.about = name, title, command, inner, about

    def markup(self) -> str:
        """The block with its heading and the command that makes it again."""
        about = f'<p class="about">{escaped(self.about)}</p>' if self.about else ""
        return (
            f'<section id="{self.name}"><h2>{escaped(self.title)}</h2>{about}\n{self.inner}\n'
            f"{command_line(self.command)}</section>"
        )


def command_line(command: str) -> str:
    """A command to be copied."""
    return f'<p class="command"><code>{escaped(command)}</code></p>' if command else ""


def chart(name: str, label: str) -> str:
    """The place of a chart."""
    return f'<div class="chart" data-chart="{name}" role="img" aria-label="{escaped(label)}"></div>'


def table(name: str) -> str:
    """The place of a table."""
    return f'<div class="table" data-table="{name}"></div>'


def note(said: str) -> str:
    """A line beside a block, if there is anything to say."""
    return f'<p class="note">{escaped(said)}</p>' if said else ""


def head(name: str, title: str, parts: Sequence[Part], facts: Mapping[str, str]) -> str:
    """What was read (`name`, with which `title` begins), its figures, and the way to the blocks."""
    links = "".join(f'<a href="#{part.name}">{escaped(part.title)}</a>' for part in parts)
    shown = "".join(
        f"<div><dt>{escaped(what)}</dt><dd>{escaped(value)}</dd></div>" for what, value in facts.items()
    )
    rest = title.removeprefix(name).lstrip(",: ")
    return (
        f"<header><h1>{escaped(name or 'Kafka traffic')}</h1><p>{escaped(rest)}</p><dl>{shown}</dl>"
        f"<nav>{links}</nav></header>\n"
        "<noscript><p>Charts and tables need JavaScript, all of which is in this file.</p></noscript>"
    )


def findings(found: Sequence[Finding], calls: int) -> str:
    """The facts in sentences with whom they are about, the worst first, then what was fine and what was not
    shown."""
    items = [_fact(each) for each in facts(found)]
    if not items:
        fine = "Nothing was found to look into." if calls else "There are no Kafka calls in it."
        items = [f'<li class="ok"><span class="badge">{"ok" if calls else "none"}</span><p>{fine}</p></li>']
    return f'<ul class="findings">{"".join(items)}</ul>{_rest(found)}'


def _fact(fact: Fact) -> str:
    about = _concerned(fact.found[:FIRST]) if fact.found[1:] else ""
    more, left = fact.found[FIRST:FINDINGS], len(fact.found) - FINDINGS
    if more:
        said = note(f"{left:,} more are left out") if left > 0 else ""
        about += f"<details><summary>{len(more):,} more</summary>{_concerned(more)}{said}</details>"
    return (
        f'<li class="{fact.severity}"><span class="badge">{fact.severity}</span><div>'
        f"<p>{escaped(_cut(fact.sentence))}</p>{about}{command_line(fact.command)}</div></li>"
    )


def _concerned(found: Sequence[Finding]) -> str:
    rows = (
        f"<tr><th>{escaped(_cut(each.subject))}</th><td>{escaped(_cut(each.brief))}</td></tr>"
        for each in found
    )
    return f'<table class="concerned">{"".join(rows)}</table>'


def _rest(found: Sequence[Finding]) -> str:
    lines = []
    for severity, words in ((OK, "Looked at and fine"), (NOT_SHOWN, "Not shown by this capture")):
        names = [each.sentence.partition(":")[0] for each in found if each.severity == severity]
        if names:
            lines.append(
                f'<p class="rest" title="{escaped(SEVERITIES[severity])}"><b>{words}:</b> '
                f"{escaped(', '.join(names))}</p>"
            )
    return "".join(lines)


def _cut(sentence: str) -> str:
    shown = printable(sentence)
    return shown if len(shown) <= LONGEST else shown[:LONGEST] + "…"
