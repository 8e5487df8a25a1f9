"""The sections of the page, each from what the report counted or the rules found."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, tzinfo
from typing import TYPE_CHECKING, Any

from kwsniff.findings.finding import CRITICAL, NOT_SHOWN, NOTICE, OK, SEVERITIES, WARNING
from kwsniff.findings.words import duration
from kwsniff.page.layout import Line, Section, beside, columns, fitted, tied, wrapped
from kwsniff.report.cube import LEAST, PARTS
from kwsniff.report.text import bytes_text, digits, printable

if TYPE_CHECKING:
    import pyarrow as pa

    from kwsniff.findings import Finding
    from kwsniff.findings.errors import ErrorLine

Tables = Mapping[str, "pa.Table"]
Row = Mapping[str, Any]

STYLES = {CRITICAL: "bold red", WARNING: "yellow", NOTICE: "cyan"}
INDENT = 10
P99_CALLS = 100
"""With fewer calls the one percentile lies between the greatest values."""
TOP = 10
SHORT = {
    "request_transfer_us": "send", "queued_us": "queue", "throttled_us": "throttle", "waited_us": "wait",
    "broker_us": "broker", "response_transfer_us": "receive",
}  # fmt: skip
BRIEF = 2
LIKE = 2
"""Findings of one rule that are printed before those of others."""


def head(title: str, trust: str, note: str, width: int) -> Section:
    """The input, and how far to trust it."""
    lines = [Line(line, "bold") for line in wrapped(printable(title), width)]
    lines += [Line(line) for text in (trust, note) if text for line in wrapped(text, width)]
    return Section("", [], head=lines)


def findings(found: Sequence[Finding], width: int, brief: bool, calls: int) -> Section:
    """Sentences, the worst first, then what was looked at and is fine; of that no more than `BRIEF` lines if
    it is to be `brief`. Without `calls` nothing was looked at."""
    bad = [each for each in found if each.severity not in (OK, NOT_SHOWN)]
    fine = ", ".join(_about(each) for each in found if each.severity == OK)
    unseen = ", ".join(_about(each) for each in found if each.severity == NOT_SHOWN)
    blocks = [_finding(each, width) for each in varied(bad)]
    tail = _listed("ok", fine, width, brief) + _listed("not shown", unseen, width, brief)
    if not bad:
        fine = "Nothing was found that somebody should look into."
        tail.insert(0, Line(fine if calls else "There are no Kafka calls in it, so nothing was looked at."))
    return Section("Findings", blocks, least=2, tail=tail)


def varied(found: Sequence[Finding]) -> list[Finding]:
    """The same findings, but of each severity one of each rule before the second of any, and what a rule has
    more than a few of behind those of others."""
    seen: dict[tuple[str, str], int] = {}
    ranked: list[tuple[tuple[bool, int, int], Finding]] = []
    for each in found:
        times = seen[each.code, each.severity] = seen.get((each.code, each.severity), 0) + 1
        severity = list(SEVERITIES).index(each.severity)
        ranked.append(((times > LIKE, severity, times if times <= LIKE else 0), each))
    return [each for _, each in sorted(ranked, key=lambda pair: pair[0])]


def _finding(finding: Finding, width: int) -> list[Line]:
    lines = wrapped(f"{finding.severity:<{INDENT - 1}} {finding.sentence}", width, " " * INDENT)
    if finding.command:
        lines.append(f"{' ' * INDENT}> {finding.command}")
    return [Line(line, STYLES.get(finding.severity, "")) for line in lines]


def _about(finding: Finding) -> str:
    return finding.sentence.partition(":")[0]


def _listed(what: str, names: str, width: int, brief: bool) -> list[Line]:
    if not names:
        return []
    kept = ", ".join(map(tied, names.split(", ")))
    room = width - 12 * brief  # for how many more there are
    lines = wrapped(f"{what:<{INDENT - 1}} {kept}", room, " " * INDENT)
    if brief and len(lines) > BRIEF:
        more = sum(line.count(", ") for line in lines[BRIEF:]) + 1
        lines = [*lines[: BRIEF - 1], f"{lines[BRIEF - 1].rstrip(',')} and {more} more"]
    return [Line(line, "green" if what == "ok" else "dim") for line in lines]


def api(table: pa.Table, width: int) -> Section:
    """Where the time of the calls went."""
    rows = table.drop_columns(["first_time", "last_time"]).to_pylist()
    for row in rows:
        row["time_us"] = (row["duration_sum_us"] or 0.0) + (row["duration_waited_sum_us"] or 0.0)
    rows.sort(key=lambda row: (-row["time_us"], -row["calls"], row["api"] or ""))
    parts = [name for name in PARTS if any(_share(row[_sum(name)], _parted(row)) for row in rows)]
    shares = [SHORT[name] for name in parts] or ["waited"]
    headings = ["API", "calls", "errors", "time", *shares, "p50 ms", "p99 ms", "max ms"]
    cells = [_api_cells(row, parts) for row in rows]
    heading, lines = columns(headings, cells, left=(0,), shrink=((0, 12),), width=width)
    return Section(
        "Where the time went, by API", [[Line(line)] for line in lines], least=2,
        head=[Line(heading, "bold")] if rows else [],
    )  # fmt: skip


def _api_cells(row: Row, parts: Sequence[str]) -> list[str]:
    shares = [_part(row, name) for name in parts]
    if not parts:
        shares = [_share(row["duration_waited_sum_us"], row["time_us"])]
    many = row["calls"] - row["waited_calls"] >= P99_CALLS
    times = [row["latency_p50_us"], row["latency_p99_us"] if many else None, row["latency_max_us"]]
    return [
        printable(row["api"] or "(none)"), f"{row['calls']:,}", f"{row['errors']:,}" if row["errors"] else "",
        _seconds(row["time_us"]), *shares, *(_ms(each) for each in times),
    ]  # fmt: skip


def _part(row: Row, name: str) -> str:
    """A part's share of the time, with a sign if some of the broker's may have been waiting for data."""
    shown = _share(row[_sum(name)], _parted(row))
    unsure = name == "broker_us" and (row[_sum(name)] or 0.0) > (row[_sum(LEAST)] or 0.0)
    return f"≤{shown}" if shown and unsure else shown


def _busy(row: Row) -> float:
    """The time of all calls but what they waited on purpose, µs."""
    if row.get(_sum("waited_us")) is None:
        return float(row["duration_sum_us"] or 0.0)
    whole = (row["duration_sum_us"] or 0.0) + (row["duration_waited_sum_us"] or 0.0)
    return max(float(whole - row[_sum("waited_us")]), 0.0)


def _parted(row: Row) -> float:
    """The time of which it is known where it went, µs."""
    return sum((row[_sum(name)] or 0.0 for name in PARTS), 0.0)


def _sum(name: str) -> str:
    return f"{name[:-3]}_sum_us"


def errors(lines: Sequence[ErrorLine], width: int, zone: tzinfo) -> Section:
    """Errors with who got them, for what, and when."""
    headings = ["error", "API", "count", "who", "where", "first", "last"]
    rows = [
        [line.error, line.api, f"{line.calls:,}", _first(line.who), _first(line.where), *_clocks(line, zone)]
        for line in lines
    ]
    heading, texts = columns(
        headings,
        rows,
        left=(0, 1, 3, 4, 5, 6),
        shrink=_ERRORS_SHRINK,
        width=width,
    )
    return Section(
        "Errors", [[Line(text)] for text in texts], least=1, head=[Line(heading, "bold")] if rows else [],
    )  # fmt: skip


def clients(table: pa.Table, width: int) -> Section:
    """Those with most time, errors and bytes."""
    rows = table.drop_columns(["first_time", "last_time"]).to_pylist()
    for row in rows:
        row["time_us"] = _busy(row)
        row["size"] = row["request_bytes"] + row["response_bytes"]
    figures: list[tuple[str, str, Callable[[Any], str]]] = [
        ("by time not waiting", "time_us", _seconds),
        ("by errors", "errors", lambda value: f"{int(value):,}"),
        ("by bytes", "size", lambda value: bytes_text(int(value))),
    ]
    each = (width - 4) // 3
    lists = [[_top(row, name, show, each) for row in _ranked(rows, name)] for _, name, show in figures]
    lines = beside(lists, width)
    titles = beside([[title] for title, _, _ in figures], width)[0]
    return Section(
        "Clients", [[Line(line)] for line in lines], least=3, most=TOP,
        head=[Line(titles, "bold")] if rows else [],
    )  # fmt: skip


def _ranked(rows: Sequence[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    shown = [row for row in rows if row[name]]
    return sorted(shown, key=lambda row: (-row[name], row["client_id"] or "", row["client_ip"] or ""))


def _top(row: Row, name: str, show: Callable[[Any], str], width: int) -> str:
    figure = show(row[name])
    who = printable(f"{row['client_id']}@{row['client_ip']}" if row["client_id"] else str(row["client_ip"]))
    return f"{fitted(who, width - len(figure) - 1)} {figure}"


def anomalies(counts: Mapping[str, int], width: int) -> Section:
    """By code, the most frequent first."""
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    if not ranked:
        return Section("", [])
    text = "Anomalies: " + ", ".join(f"{code} {count:,}" for code, count in ranked)
    command = "kwsniff decode FILE --where 'event == \"anomaly\"'"
    return Section("", [], head=[Line(line) for line in wrapped(f"{text} > {command}", width, "  ")])


def _share(part: float | None, whole: float) -> str:
    shown = f"{100 * part / whole:.0f}%" if part and whole else ""
    return "" if shown == "0%" else shown


def _seconds(microseconds: float) -> str:
    return duration(microseconds / 1e6) if microseconds else "0"


def _ms(microseconds: float | None) -> str:
    return "" if microseconds is None else digits(microseconds / 1000)


_ERRORS_SHRINK = ((3, 22), (4, 12), (1, 12), (0, 24), (3, 12))
"""Columns of the errors and the least widths they shrink to, in turn: who, where, API, error, who."""


def _first(names: Sequence[str]) -> str:
    """The first name, and how many more there are."""
    if not names:
        return ""
    return names[0] if len(names) == 1 else f"{names[0]} +{len(names) - 1:,}"


def _clocks(line: ErrorLine, zone: tzinfo) -> list[str]:
    times = (line.entry.first.time, line.entry.last.time)
    return [datetime.fromtimestamp(time / 1e6, zone).strftime("%H:%M:%S") for time in times]
