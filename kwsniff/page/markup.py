"""The markup of the page: headings, findings, trust, and places for what the script draws. Every text that
comes from outside is escaped here."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from kwsniff.analysis.bytestream import FramedMessage, messages_of_calls
from kwsniff.analysis.findings import Fact, facts
from kwsniff.analysis.rule import NOT_SHOWN, OK, SEVERITIES
from kwsniff.analysis.tree import UNKNOWN, Node, tree_of
from kwsniff.config import Config
from kwsniff.output.text import printable

if TYPE_CHECKING:
    from kwsniff.analysis.findings import Finding


FIRST, FINDINGS = 8, 100
"""Whom a fact is about: so many are seen at once, and on the page."""
LONGEST = 2_000


def escaped(text: str) -> str:
    """Text as it may stand in an element or a quoted attribute."""
    return html.escape(text, quote=True)


class Part(NamedTuple):
    """One block of the page."""

    name: str
    title: str
    command: str
    inner: str
    about: str = ""

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
    return f'<div class="chart" data-chart="{name}" role="img" aria-label="{escaped(label)}"></div>'


def table(name: str) -> str:
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


# The fields of messages as rows that a page can show: bounded, and with nothing that is to stay hidden.

Row = dict[str, Any]
Tree = dict[str, Any]
FIELDS = 140
"""Fields shown of one message."""
LONGEST_VALUE = 160
"""Characters shown of one value."""
PACKETS = 6


def read_again(
    paths: Sequence[str], slowest: Sequence[Row], groups: Sequence[Row], config: Config
) -> dict[int, list[Tree]]:
    """Read captures a second time for what stands in the messages of some calls: the trees of `slowest` by
    their place in the list; those of `groups` get their bodies. Raises CaptureError."""
    trees: dict[int, list[Tree]] = {}
    calls = [*slowest, *groups]
    for number, direction, message in messages_of_calls(paths, calls, config):
        call = calls[number]
        if number < len(slowest):
            trees.setdefault(number, []).append(of_message(call, direction, message))
        elif not message.missing:
            with suppress(KeyError):
                call[direction] = tree_of(message.data, call["api_key"], call["api_version"], direction).body
    return {number: sorted(found, key=lambda tree: tree["what"]) for number, found in trees.items()}


def of_message(call: Mapping[str, Any], direction: str, message: FramedMessage) -> Tree:
    """The tree of one message: `what` it is, its size, packets and `fields` (depth, offset, bytes, name,
    type, value), how many are left out (`more`), and what is wrong with it (`problem`)."""
    shown: Tree = {
        "what": direction, "bytes": len(message.data), "packets": message.packets[:PACKETS],
        "more_packets": max(len(message.packets) - PACKETS, 0), "fields": [], "more": 0, "problem": "",
    }  # fmt: skip
    try:
        tree = tree_of(message.data, call["api_key"], call["api_version"], direction)
    except KeyError:
        return shown | {"problem": UNKNOWN}
    nodes = [(node, depth) for node, depth, _ in tree.walk()]
    shown["fields"] = [_field(node, depth, message.data) for node, depth in nodes[:FIELDS]]
    shown["more"] = max(len(nodes) - FIELDS, 0)
    missing = "bytes are missing from the capture, so what stands behind them is not so"
    shown["problem"] = missing if message.missing else printable(tree.problem)
    return shown


def _field(node: Node, depth: int, data: bytes) -> list[Any]:
    return [depth, node.start, node.hex(data), printable(node.name), node.kind, _value(node)]


def _value(node: Node) -> str:
    if node.children:
        return ""
    text = _text(node.value)
    return f"{text}  {node.meaning}" if node.meaning else text


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = printable(text)
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 1] + "…"


def of_bodies(call: Mapping[str, Any]) -> list[Tree]:
    """The trees of a call of EVENTS whose bodies were kept; they have no offsets."""
    found = []
    for direction in ("request", "response"):
        if call.get(direction):
            fields = list(_json_fields(orjson.loads(call[direction]), 0))
            found.append({
                "what": direction, "bytes": call[f"{direction}_bytes"], "packets": [], "more_packets": 0,
                "fields": fields[:FIELDS], "more": max(len(fields) - FIELDS, 0), "problem": "",
            })  # fmt: skip
    return found


def _json_fields(value: Any, depth: int) -> Iterator[list[Any]]:
    items = value.items() if isinstance(value, dict) else ((f"[{at}]", each) for at, each in enumerate(value))
    for name, inner in items:
        if isinstance(inner, dict | list) and inner:
            yield [depth, None, "", printable(name), "", ""]
            yield from _json_fields(inner, depth + 1)
        else:
            yield [depth, None, "", printable(name), "", _text(inner)]
