"""The report as a page to send to somebody: one file, without any network.

`Pass` takes EVENTS batches and merges with what others took of other parts; `Page` is what one input shows.
Charts are drawn by Apache ECharts, which is part of the file.
"""

from __future__ import annotations

import base64
import hashlib
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kwsniff.analysis.errors import ErrorLine
from kwsniff.analysis.findings import NEEDED as FINDINGS
from kwsniff.analysis.findings import Finding, Findings, facts
from kwsniff.analysis.groups import Groups
from kwsniff.analysis.report import Report
from kwsniff.analysis.rule import CRITICAL, WARNING, about_input
from kwsniff.analysis.slow import CALLS
from kwsniff.analysis.tabular import DURATION, TEXT, TIME, AnswerTable
from kwsniff.analysis.trust import TrustTotals, paragraph
from kwsniff.config import Config
from kwsniff.count.eventrows import EventBatch
from kwsniff.count.spans import Coverage
from kwsniff.count.store import NEEDED as STATISTICS
from kwsniff.count.store import CallStore
from kwsniff.output.text import printable
from kwsniff.output.units import duration
from kwsniff.page import blocks, markup
from kwsniff.page.gathered import NEEDED as GATHERED
from kwsniff.page.gathered import SHOWN, Gathered
from kwsniff.page.layout import named, title
from kwsniff.page.markup import Part, Tree, chart, escaped, note, table
from kwsniff.spec.load import catalog

if TYPE_CHECKING:
    from kwsniff.count.where.period import Window


__all__ = ["NEEDED", "Gathered", "Page", "Pass"]

NEEDED = frozenset(STATISTICS) | FINDINGS | GATHERED
"""Columns of EVENTS that the page is made from."""
TABLES = ("api", "client")
EXACT = 250_000
"""Values of a metric up to which percentiles of a `Pass` are exact."""
TIMELINE = ("-f", "csv", "--columns", "time,status,error,throttle_ms")
SLOW_COLUMNS = ("time", "api", "client", "broker", "topics", "duration_us", "latency_us", "mostly", "error")
GROUPS = ("time", "group", "kind", "generation", "duration_us", "members", "trigger", "reasons", "after")
MEMBERS = (
    *("group", "client", "address", "instance", "generation", "assignment"),
    *("first_time", "last_time", "end"),
)


@dataclass
class Page:
    """What one input shows."""

    paths: Sequence[str]
    report: Report
    """With the tables `api` and `client`, and `uses`."""
    findings: Sequence[Finding]
    errors: Sequence[ErrorLine]
    anomalies: Mapping[str, int]
    trust: str
    gathered: Gathered
    trees: Mapping[int, list[Tree]] = field(default_factory=dict)
    """Those of the slowest calls, by their place."""
    where: str | None = None
    """What chose the calls, for the commands; and"""
    options: Sequence[str] = ()
    """what else did, as options of commands."""
    notes: Sequence[str] = ()

    def read_again(self, config: Config) -> None:
        """Read the captures for what stands in the messages of the slowest calls and of groups: without it
        the page has neither their fields nor assignments, unless the events came with bodies. Raises
        CaptureError."""
        slowest, groups = self.gathered.slowest.rows(), self.gathered.groups.rows
        wanted = [row for row in groups if row["request"] is None or row["response"] is None]
        self.trees = markup.read_again(self.paths, slowest, wanted, config)

    def html(self) -> str:
        """The text of the file: what does not fit is left out, the trees of the fastest calls first."""
        found, kept = dict(self.trees), len(self.trees)
        while True:
            page = self._html(found)
            if len(page.encode()) <= MOST_BYTES or not found:
                return page
            kept //= 2
            found = {number: found[number] for number in sorted(found)[:kept]}

    def _html(self, trees_of: Mapping[int, list[Tree]]) -> str:
        groups = Groups()
        groups.learn(self.report.topic_names)
        groups.take(self.gathered.groups.batch())
        groups.see(self.gathered.groups.seen())
        api = blocks.api_table(self.report.arrow["api"])
        data, parts = self._blocks(api, groups, trees_of)
        heading = title([printable(path) for path in self.paths], self.report)
        trust = note(self.trust) + "".join(note(each) for each in (*self.notes, self.report.note))
        found = about_input(self.findings, self.paths, self.options, self.where)
        said = markup.findings(found, self.report.total("calls"))
        parts.insert(0, Part("findings", "Findings", self._command("report"), said))
        anomalies = f"<details><summary>Anomalies</summary>{table('anomalies')}</details>"
        again = self._command("decode", where='event == "anomaly"') if self.anomalies else ""
        trust += anomalies if self.anomalies else ""
        parts.insert(0, Part("trust", "How far to trust it", again or self._command("report"), trust))
        data["tables"]["anomalies"] = blocks.table(blocks.anomaly_table(self.anomalies))
        head = markup.head(named([printable(path) for path in self.paths]), heading, parts, self._facts())
        foot = (
            "<footer>Made by kwsniff. Times are UTC. Charts: Apache ECharts 6, Apache License 2.0.</footer>"
        )
        body = "\n".join([head, "<main>", *(part.markup() for part in parts), "</main>", foot])
        return document(f"kwsniff: {heading}", body, data)

    def _blocks(
        self, api: AnswerTable, groups: Groups, found: Mapping[int, list[Tree]]
    ) -> tuple[dict[str, Any], list[Part]]:
        """The data of all charts and tables, and the blocks that show them."""
        rebalances, members, _ = groups.tables()
        begins = [at for row in rebalances.rows if (at := blocks.micros(row["time"])) is not None]
        slow = blocks.slow_table(self.gathered.slowest.table(), self.report.topic_names)
        clients = blocks.client_table(self.report.arrow["client"])
        uses = blocks.matrix(self.report.uses)
        names = [str(row["api"]) for row in api.rows]
        data = {
            "timeline": blocks.timeline(self.gathered.timeline, begins),
            "split": blocks.split(api),
            "latency": blocks.latencies(self.gathered.latencies, names),
            "matrix": uses,
            "groups": blocks.groups(groups, blocks.micros(self.report.last_time)),
            "slow": self._opened(slow, found),
            "tables": {
                "api": blocks.table(api), "client": blocks.table(clients),
                "errors": blocks.table(blocks.error_table(self.errors)),
                "rebalances": blocks.table(rebalances, GROUPS), "members": blocks.table(members, MEMBERS),
                "slow": blocks.table(slow, SLOW_COLUMNS),
            },
        }  # fmt: skip
        return data, self._parts(data, bool(rebalances.rows or members.rows))

    def _parts(self, data: Mapping[str, Any], has_groups: bool) -> list[Part]:
        wide = self._command("report", "--by", "api", "--wide")
        left = data["matrix"]["left"]
        more = f"{left[0]:,} more clients and {left[1]:,} more topics are left out" if any(left) else ""
        parts = [
            Part("timeline", "Timeline", self._command("decode", *TIMELINE),
                 chart("timeline", "calls, latency, bytes, errors, rebalances and throttling over time")),
            Part("time", "Where the time went", wide,
                 chart("split", "parts of the time of the calls, by API") + table("api"),
                 "Percent of the time of all calls; what they waited on purpose, as a Fetch does for data, "
                 "is left out."),
            Part("latency", "How long calls took", self._command("slow", "--table", "clients", "--top", "0"),
                 chart("latency", "how many calls of each API took how long"),
                 "From the end of a request to the beginning of its response. Calls that waited on purpose, "
                 "as a Fetch does for data, are not counted."),
            Part("uses", "Who uses which topic", self._command("clients", "--table", "uses", "--top", "0"),
                 chart("matrix", "record data by client and topic") + note(more)),
            Part("clients", "Clients", self._command("report", "--by", "client", "--wide"), table("client")),
        ]  # fmt: skip
        if has_groups:
            drawn = (
                chart("groups", "what members of groups were given when") if data["groups"]["bars"] else ""
            )
            beyond = self.gathered.groups.beyond
            said = f"{beyond:,} more calls of groups were not looked at" if beyond else ""
            parts.append(
                Part("groups", "Groups", self._command("groups"),
                     drawn + table("rebalances") + "<h3>Members</h3>" + table("members") + note(said))
            )  # fmt: skip
        if self.errors:
            parts.append(Part("errors", "Errors", self._command("errors"), table("errors")))
        parts.append(self._slow_part(data))
        return parts

    def _slow_part(self, data: Mapping[str, Any]) -> Part:
        waited = self.gathered.waited
        about = f"{waited:,} calls that waited on purpose are not among them." if waited else ""
        with_trees = sum(bool(each["trees"]) for each in data["slow"])
        short = len(data["slow"]) - with_trees
        said = ""
        if short and data["slow"]:
            said = f"{short:,} of these calls have no fields here: the command beside each shows them."
        command = self._command("slow", "--top", str(SHOWN))
        return Part("slow", "Slowest calls", command, table("slow") + note(said), about)

    def _opened(self, slow: AnswerTable, found: Mapping[int, list[Tree]]) -> list[dict[str, Any]]:
        """What each of the slowest calls opens to."""
        opened = []
        for number, row in enumerate(slow.rows):
            path = str(row["capture"]) if row["capture"] else self._files
            show = shlex.join(["kwsniff", "show", printable(path), str(row["call"])])
            details = [
                [f.heading, f.kind, blocks.cell(row.get(f.name), f.kind)]
                for f in CALLS
                if f.name not in SLOW_COLUMNS
                and f.kind in (TEXT, DURATION, TIME)
                and row.get(f.name) is not None
            ]
            opened.append({
                "command": show, "trees": found.get(number, markup.of_bodies(row)), "details": details,
            })  # fmt: skip
        return opened

    def _facts(self) -> dict[str, str]:
        clients = len(self.report.arrow["client"])
        found = sum(each.severity in (CRITICAL, WARNING) for each in facts(self.findings))
        latency = {
            f"latency {name}": duration(value / 1e6)
            for name, value in self.report.latency_us.items()
            if value is not None
        }
        return {
            "calls": f"{self.report.total('calls'):,}",
            **({"TLS exchanges (estimated)": f"{self.report.exchanges:,}"} if self.report.exchanges else {}),
            "calls with errors": f"{self.report.total('errors'):,}",
            "unanswered": f"{self.report.total('unanswered'):,}", **latency, "clients": f"{clients:,}",
            "anomalies": f"{sum(self.anomalies.values()):,}", "findings to look into": f"{found:,}",
        }  # fmt: skip

    @property
    def _files(self) -> str:
        if len(self.paths) > 3:
            return "FILE…"
        return shlex.join(printable(path) for path in self.paths) or "FILE"

    def _command(self, name: str, *options: str, where: str | None = None) -> str:
        chosen = where if where is not None else self.where
        more = ["--where", printable(chosen)] if chosen else []
        more += map(printable, self.options)
        return " ".join(filter(None, ["kwsniff", name, self._files, shlex.join([*options, *more])]))


class Pass:
    """Everything that the page needs, from EVENTS alone, in one pass: bounded, pickles, merges."""

    def __init__(self, exact: int = EXACT, coverage: Coverage | None = None) -> None:
        """`exact`: values of a metric up to which percentiles are exact: calls, and topics that calls
        name. `coverage`: of the whole input, where it takes some rows only; then it has to `see` all."""
        self.store = CallStore(0, exact, coverage=coverage)
        self._takes_all = coverage is None
        self.findings = Findings()
        self.trust = TrustTotals()
        self.gathered = Gathered()

    def take(self, batch: pa.RecordBatch, *, findings: bool = True) -> None:
        """Take one EVENTS batch, in its order; without `findings` in any order."""
        if not batch.num_rows:
            return
        events = EventBatch(batch)
        if self._takes_all:
            self.trust.add(batch)
        self.store.add(events)
        self.gathered.take(events)
        if findings:
            self.findings.take(events)

    def see(self, batch: pa.RecordBatch, window: Window | None) -> None:
        """See rows of which it takes some, those in `window` if there is one."""
        self.store.coverage.take(EventBatch(batch))
        self.trust.add(batch if window is None else window.seen(batch))

    def merge(self, other: Pass) -> None:
        """Take what another one took, of batches that come after those of this one."""
        self.trust.merge(other.trust)
        self.store.merge(other.store)
        self.findings.merge(other.findings)
        self.gathered.merge(other.gathered)

    def page(self, paths: Sequence[str]) -> Page:
        """What was taken, as a page; it is finished by this. `paths` are what the events are of."""
        errors = catalog().error_kinds
        report = Report.from_store(self.store, errors=errors, only=TABLES, uses=True)
        return Page(
            paths, report, self.findings.found(errors), self.findings.errors(errors), self.trust.anomalies,
            paragraph(self.trust), self.gathered,
        )  # fmt: skip


# One self-contained file: the data of the page, what draws it, and a policy that lets nothing else in.
#
# The Content Security Policy forbids every request to a network, and any script or style but those whose
# digests it names. Data stands in a script element of type application/json, which is never run; `<`, `>` and
# `&` are escaped in it, so that no text can end the element. Scripts make elements and text, never markup.

ASSETS = Path(__file__).parent / "assets"
LIBRARY = "echarts.min.js"
MOST_BYTES = 4_900_000
"""Of the whole file."""
_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


@cache
def asset(name: str) -> str:
    """The text of one of the files that every page has."""
    return (ASSETS / name).read_text(encoding="utf-8")


def script_json(data: Any) -> str:
    """JSON that may stand in a script element."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for char, escape in _ESCAPES.items():
        text = text.replace(char, escape)
    return text


def document(title: str, body: str, data: Any) -> str:
    """The page: `title` is text, `body` markup whose texts are escaped, `data` what the script draws."""
    style, library, script = asset("page.css"), asset(LIBRARY), asset("page.js")
    policy = "; ".join(
        [
            "default-src 'none'", f"script-src {_digest(library)} {_digest(script)}",
            f"style-src {_digest(style)}", "img-src data:", "base-uri 'none'", "form-action 'none'",
        ]
    )  # fmt: skip
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<meta name="referrer" content="no-referrer">\n'
        f"<title>{escaped(title)}</title>\n<style>{style}</style>\n</head>\n<body>\n{body}\n"
        f'<script type="application/json" id="data">{script_json(data)}</script>\n'
        f"<script>{library}</script>\n<script>{script}</script>\n</body>\n</html>\n"
    )


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
