"""The sections of the page, each from what the report counted or the rules found."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, tzinfo
from typing import TYPE_CHECKING, Any

from kwsniff.analysis.findings import Fact, facts
from kwsniff.analysis.rule import CRITICAL, NOT_SHOWN, NOTICE, OK, WARNING
from kwsniff.count.eventrows import BROKER_LEAST, PARTS
from kwsniff.output.text import GAP, cell_width, fitted, printable
from kwsniff.output.units import bytes_text, digits, duration
from kwsniff.page.layout import (
    WIDTH,
    Line,
    Section,
    beside,
    columns,
    is_logarithmic,
    sparkline,
    tied,
    wrapped,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from kwsniff.analysis.errors import ErrorLine
    from kwsniff.analysis.findings import Finding
    from kwsniff.count.timeline import Timeline

Tables = Mapping[str, "pa.Table"]
Row = Mapping[str, Any]

STYLES = {CRITICAL: "bold red", WARNING: "yellow", NOTICE: "cyan"}
INDENT = 10
TRUSTED = {"high": "green", "limited": "yellow", "low": "bold red"}
TOP = 10
SHORT = {
    "request_transfer_us": "send", "queued_us": "queue", "throttled_us": "throttle", "waited_us": "wait",
    "broker_us": "broker", "response_transfer_us": "receive",
}  # fmt: skip
BRIEF = 2
LIKE = 3
"""Whom a fact is about: so many are named where there is little room."""


def head(title: str, trust: str, note: str, width: int) -> Section:
    """The input, and how far to trust it: the verdict first."""
    lines = [Line(line, "bold") for line in wrapped(printable(title), width)]
    verdict, _, counters = trust.partition(". ")
    if verdict:
        level = next((style for word, style in TRUSTED.items() if verdict.startswith(f"Trust: {word}")), "")
        lines += [Line(line, level) for line in wrapped(f"{verdict}.", width)]
    lines += [Line(line) for text in (counters, note) if text for line in wrapped(text, width)]
    return Section("", [], head=lines)


def findings(found: Sequence[Finding], width: int, top: int | None, calls: int) -> Section:
    """A sentence for each fact with whom it is about, the worst first, then what was looked at and is fine:
    no more than `BRIEF` lines of that, and `LIKE` of whom, unless `top` rows of each are asked for (0: all).
    Without `calls` nothing was looked at."""
    fine = ", ".join(_about(each) for each in found if each.severity == OK)
    unseen = ", ".join(_about(each) for each in found if each.severity == NOT_SHOWN)
    blocks = [_fact(each, width, LIKE if top is None else top or len(each.found)) for each in facts(found)]
    tail = _listed("ok", fine, width, top is None) + _listed("not shown", unseen, width, top is None)
    if not blocks:
        fine = "Nothing was found that somebody should look into."
        tail.insert(0, Line(fine if calls else "There are no Kafka calls in it, so nothing was looked at."))
    return Section("Findings", blocks, least=6, tail=tail)


def _fact(fact: Fact, width: int, most: int) -> list[Line]:
    style = STYLES.get(fact.severity, "")
    lines = [
        Line(line, style)
        for line in wrapped(f"{fact.severity:<{INDENT - 1}} {fact.sentence}", width, " " * INDENT)
    ]
    if len(fact.found) > 1:
        lines += [Line(line) for line in _concerned(fact.found, width, most)]
    if fact.command:
        lines.append(Line(f"{' ' * INDENT}> {fact.command}", "dim"))
    return lines


def _concerned(found: Sequence[Finding], width: int, most: int) -> list[str]:
    """Whom a fact is about, with the figures of each."""
    shown = [printable(each.subject) for each in found[:most]]
    wide = min(max(map(cell_width, shown)), (width - INDENT) // 3)
    left, hanging = " " * (INDENT + 2), " " * (wide + GAP)
    lines = []
    for subject, each in zip(shown, found, strict=False):
        row = f"{tied(fitted(subject, wide) + ' ' * GAP)}{each.brief}"
        lines += [left + line for line in wrapped(row, width - len(left), hanging)]
    if len(found) > most:
        lines.append(f"{left}and {len(found) - most:,} more")
    return lines


def course(timeline: Timeline | None, width: int, zone: tzinfo) -> Section:
    """What happened when: a line of bars each, with the range of their values."""
    if timeline is None:
        return Section("", [])
    strip = timeline.strip(width - NAMES - RANGE)
    seconds, columns = strip.width / 1e6, strip.columns
    if len(columns["calls"]) < 2:
        return Section("", [])
    lines = []
    for name, source, show, per_s in COURSE:
        values = [each / seconds if per_s and each is not None else each for each in columns[source]]
        known = [each for each in values if each is not None]
        if any(known):
            scale = ", log" if is_logarithmic(values) else ""
            said = f"{show(min(known))} to {show(max(known))}{scale}"
            lines.append(f"{name:<{NAMES}}{sparkline(values)}  {said}")
    day = "%Y-%m-%d " if strip.last - strip.first > 86_400_000_000 else ""
    first, last = (_clock(each, zone, day) for each in (strip.first, strip.last))
    room = len(columns["calls"]) - len(first) - len(last)
    if room > 0:
        lines.append(f"{'':<{NAMES}}{first}{' ' * room}{last}")
    left = f", {duration(strip.left / 1e6)} without calls left out" if strip.left else ""
    title = f"What happened when (a bar is {duration(seconds)}{left})"
    return Section(title, [], head=[Line(line) for line in lines])


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
    """Where the time of the calls went that did not wait on purpose."""
    rows = by_share(table, "api")
    figures: list[tuple[str, list[str]]] = [
        ("API", [printable(row["api"] or "(none)") for row in rows]),
        ("calls", [f"{row['calls']:,}" for row in rows]),
        ("errors", [_some(row["errors"]) for row in rows]),
        ("no answer", [_some(row["unanswered"]) for row in rows]),
        ("p50", [_ms(row["latency_p50_us"]) for row in rows]),
        ("p95", [_ms(row["latency_p95_us"]) for row in rows]),
        ("max", [_ms(row["latency_max_us"]) for row in rows]),
        ("share", [_part(row["share"]) for row in rows]),
        ("spent in", [cause(row, 2 if width >= WIDTH else 1) for row in rows]),
    ]
    title = "Where the time went (ms, waiting on purpose left out)"
    return _table(title, figures, (("API", 16), ("spent in", 12), ("API", 10)), width, least=2)


def _table(
    title: str,
    parts: Sequence[tuple[str, list[str]]],
    shrink: Sequence[tuple[str, int]],
    width: int,
    least: int,
) -> Section:
    """Columns with their cells as a section, but those without any; `shrink` become narrower in turn."""
    shown = dict(each for each in parts if any(each[1]))
    names = list(shown)
    narrower = [(names.index(name), size) for name, size in shrink if name in shown]
    left = [place for place, name in enumerate(names) if name in LEFT]
    rows = list(zip(*shown.values(), strict=True))
    heading, lines = columns(names, rows, left, narrower, width)
    head = [Line(heading, "bold")] if rows else []
    return Section(title, [[Line(line)] for line in lines], least=least, head=head)


def cause(row: Row, most: int) -> str:
    """The one or two parts that most of the time went into, with a sign if some of the broker's may have
    been waiting for data."""
    parts = {name: row[sum_of(name)] or 0.0 for name in PARTS if name != "waited_us"}
    whole = sum(parts.values())
    unsure = parts["broker_us"] > (row[sum_of(BROKER_LEAST)] or 0.0)
    ranked = sorted(parts, key=lambda name: -parts[name])[:most]
    shown = [(name, _share(parts[name], whole)) for name in ranked]
    sign = {"broker_us": "≤"} if unsure else {}
    return ", ".join(f"{SHORT[name]} {sign.get(name, '')}{share}" for name, share in shown if share)


def _some(count: int) -> str:
    return f"{count:,}" if count else ""


def busy(row: Row) -> float:
    """The time of all calls but what they waited on purpose, µs."""
    if row.get(sum_of("waited_us")) is None:
        return float(row["duration_sum_us"] or 0.0)
    whole = (row["duration_sum_us"] or 0.0) + (row["duration_waited_sum_us"] or 0.0)
    return max(float(whole - row[sum_of("waited_us")]), 0.0)


def by_share(table: pa.Table, *names: str) -> list[dict[str, Any]]:
    """Rows of a table of the report with their `share` of the time of all, without waiting on purpose: the
    greatest first, then those with the most calls, then by `names`."""
    rows: list[dict[str, Any]] = table.drop_columns(["first_time", "last_time"]).to_pylist()
    whole = sum(map(busy, rows))
    for row in rows:
        row["share"] = busy(row) / whole if whole else 0.0
    rows.sort(key=lambda row: (-row["share"], -row["calls"], *(str(row[name] or "") for name in names)))
    return rows


def sum_of(name: str) -> str:
    """The column of the report that sums up a part of the time."""
    return f"{name[:-3]}_sum_us"


def errors(lines: Sequence[ErrorLine], width: int, zone: tzinfo) -> Section:
    """Errors with who got them, for what, and when, where there is room for that."""
    parts = [
        ("error", [line.error for line in lines]),
        ("API", [line.api for line in lines]),
        ("count", [f"{line.calls:,}" for line in lines]),
        ("who", [_first(line.who) for line in lines]),
        ("where", [_first(line.where) for line in lines]),
    ]
    if width >= WIDTH:
        parts.append(("first", [_clock(line.entry.first.time, zone) for line in lines]))
        parts.append(("last", [_clock(line.entry.last.time, zone) for line in lines]))
    shrink = (("who", 18), ("where", 12), ("API", 14), ("who", 14), ("error", 24), ("API", 10), ("who", 10))
    return _table("Errors", parts, shrink, width, least=1)


def clients(table: pa.Table, width: int) -> Section:
    """Those with most time that was not waiting on purpose, errors and bytes."""
    rows = by_share(table, "client_id", "client_ip")
    for row in rows:
        row["size"] = row["request_bytes"] + row["response_bytes"]
    figures: list[tuple[str, str, Callable[[Any], str]]] = [
        ("by share of the time", "share", _part),
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


def anomalies(counts: Mapping[str, int], again: str, width: int) -> Section:
    """By code, the most frequent first, and the command that shows them."""
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    if not ranked:
        return Section("", [])
    text = "Anomalies: " + ", ".join(f"{code} {count:,}" for code, count in ranked)
    lines = [*wrapped(text, width, "  "), f"  > {again}"]
    return Section("", [], head=[Line(line) for line in lines])


def _share(part: float | None, whole: float) -> str:
    shown = f"{100 * part / whole:.0f}%" if part and whole else ""
    return "" if shown == "0%" else shown


def _part(share: float) -> str:
    """A share that is not nothing, though it may be little."""
    return (_share(share, 1) or "<1%") if share else ""


def _ms(microseconds: float | None) -> str:
    return "" if microseconds is None else digits(microseconds / 1000)


def _first(names: Sequence[str]) -> str:
    """The first name, and how many more there are."""
    if not names:
        return ""
    return names[0] if len(names) == 1 else f"{names[0]} +{len(names) - 1:,}"


def _clock(time: int, zone: tzinfo, day: str = "") -> str:
    return datetime.fromtimestamp(time / 1e6, zone).strftime(f"{day}%H:%M:%S")


COURSE: tuple[tuple[str, str, Callable[[float], str], bool], ...] = (
    ("calls/s", "calls", digits, True),
    ("p50 ms", "p50_us", _ms, False),
    ("p95 ms", "p95_us", _ms, False),
    ("bytes/s", "bytes", lambda value: bytes_text(round(value)), True),
    ("errors", "errors", digits, False),
    ("no answer", "unanswered", digits, False),
)
"""Lines of the course: name, column of the timeline, how its values are told, and whether they are rates."""
LEFT = frozenset(("API", "spent in", "error", "who", "where", "first", "last"))
"""Columns that are aligned to the left."""
NAMES, RANGE = 11, 25
"""Widths of what stands beside the bars."""
