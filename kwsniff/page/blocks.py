"""The blocks of the page as plain data: what its charts draw and its tables list, each with bounds.

Times are microseconds since 1970 in UTC, durations microseconds. Every text from the wire goes through
`printable` and is cut; what is left out is counted.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np

from kwsniff.analysis.groups import Groups
from kwsniff.analysis.rule import CLUSTER_METADATA, METADATA_ID
from kwsniff.analysis.slow import MAYBE, WHERE
from kwsniff.analysis.tabular import BYTES, COUNT, DURATION, LIST, RATIO, TEXT, TIME, AnswerField, AnswerTable
from kwsniff.count.eventrows import BROKER_LEAST
from kwsniff.count.percentiles import BUCKETS, STEP, Histogram
from kwsniff.count.timeline import Timeline
from kwsniff.output.text import printable
from kwsniff.page.sections import busy, by_share, cause, sum_of
from kwsniff.rows.events import ANOMALIES

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from kwsniff.analysis.errors import ErrorLine

Row = Mapping[str, Any]
Block = dict[str, Any]
ROWS = 300
"""Rows of a table, at most."""
LONGEST = 120
"""Characters of a text."""
LISTED = 12
"""Elements of a list in a cell."""
CHART_APIS = 16
CLIENTS, TOPICS = 30, 30
LANES = 40
TENTHS = 10
STEPS = (1, 1.25, 1.6, 2, 2.5, 3.2, 4, 5, 6.3, 8)
"""Preferred numbers (ISO 3, R10): each a quarter more than the one before."""
BARS = 1_500
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def text(value: Any) -> str | None:
    """A text from the wire as it may be shown."""
    if value is None:
        return None
    shown = printable(str(value))
    return shown if len(shown) <= LONGEST else shown[: LONGEST - 1] + "…"


def micros(moment: datetime | None) -> int | None:
    """Microseconds since 1970."""
    return None if moment is None else round(moment.timestamp() * 1e6)


def table(found: AnswerTable, names: Sequence[str] | None = None, rows: int = ROWS) -> Block:
    """A table of an answer, with the columns `names`."""
    fields = [each for each in found.fields if names is None or each.name in names]
    return {
        "columns": [[each.heading, each.kind, each.meaning] for each in fields],
        "rows": [[cell(row.get(each.name), each.kind) for each in fields] for row in found.rows[:rows]],
        "left": max(len(found.rows) - rows, 0),
    }


def cell(value: Any, kind: str) -> Any:
    if kind == LIST:
        values = list(value or ())
        more = [f"and {len(values) - LISTED:,} more"] if len(values) > LISTED else []
        return [*(text(each) for each in values[:LISTED]), *more]
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if kind == TIME:
        return micros(value)
    if kind == TEXT:
        return text(value)
    return bool(value) if isinstance(value, bool | np.bool_) else _number(value)


def _number(value: Any) -> float | int:
    return int(value) if float(value).is_integer() else round(float(value), 3)


def timeline(found: Timeline, rebalances: Iterable[int]) -> Block:
    """Counts by slot of time, with those of rebalances (by when they began)."""
    found = found.drawn()
    columns = found.columns()
    slots = Counter(time // found.width_us * found.width_us for time in rebalances)
    missing = sorted(set(slots) - set(columns["time"]))
    order = sorted([*columns["time"], *missing])
    place = {time: at for at, time in enumerate(columns["time"])}
    block: Block = {"width": found.width_us, "stretches": [list(each) for each in found.stretches()]}
    for name, values in columns.items():
        none = None if name.endswith("_us") else 0
        block[name] = order if name == "time" else [values[place[t]] if t in place else none for t in order]
    block["rebalances"] = [slots.get(time, 0) for time in order]
    return block


def slow_table(found: AnswerTable, names: Mapping[str, str]) -> AnswerTable:
    """The slowest calls, with names for topics given by uuid, and no error where there is none."""
    rows = [
        {
            **row, "topics": [names.get(topic, topic) for topic in row["topics"]],
            "error": None if row["error"] == "NONE" else row["error"],
        }
        for row in found.rows
    ]  # fmt: skip
    return AnswerTable(found.name, found.title, found.fields, rows, found.top)


def api_table(found: pa.Table) -> AnswerTable:
    """Calls, errors, latencies by API, and where the time went."""
    rows = by_share(found, "api")
    for row in rows:
        row["cause"] = cause(row, 2)
    return AnswerTable("api", "Where the time went", API, rows)


def split(found: AnswerTable) -> Block:
    """The parts of the time by API, for a chart: percent of the time of all calls."""
    known = [row for row in found.rows if row["share"]]
    rows = known[:CHART_APIS]
    parts = {where: [row.get(sum_of(name)) or 0.0 for row in rows] for name, where in WHERE.items()}
    broker = [row.get(sum_of("broker_us")) or 0.0 for row in rows]
    parts[MAYBE] = [each - least for each, least in zip(broker, parts[WHERE[BROKER_LEAST]], strict=True)]
    parts.pop(WHERE["waited_us"])
    if not any(map(any, parts.values())):
        parts = {"not waiting": [busy(row) for row in rows]}
    whole = sum(map(busy, known))
    series = [
        [label, [round(100 * each / whole, 3) for each in sums]] for label, sums in parts.items() if any(sums)
    ]
    return {"apis": [text(row["api"]) or "(none)" for row in rows], "series": series,
            "left": len(known) - len(rows)}  # fmt: skip


def latencies(found: Histogram, apis: Sequence[str]) -> Block:
    """How many calls of each API took how long, ten buckets from 1 to 10; `apis` in their order. What was
    counted in narrower buckets goes where their middle lies."""
    named = {str(key[0]): counts for key, counts in found.counts.items() if key[0] is not None}
    shown = [api for api in apis if api in named][:CHART_APIS]
    place = np.floor((np.arange(BUCKETS) + 0.5) * STEP / math.log(10) * TENTHS).astype(np.int64)
    wide = [np.bincount(place, weights=named[api]).astype(np.int64) for api in shown]
    used = [int(at) for counts in wide for at in np.flatnonzero(counts)]
    if not used:
        return {"apis": [], "edges": [], "cells": [], "left": 0}
    first, last = min(used), max(used)
    cells = [
        [int(at) - first, y, round(100 * int(counts[at]) / int(counts.sum()), 3), int(counts[at])]
        for y, counts in enumerate(wide)
        for at in np.flatnonzero(counts)
    ]
    edges = [10 ** (at // TENTHS) * STEPS[at % TENTHS] for at in range(first, last + 2)]
    return {"apis": [text(api) for api in shown], "edges": edges, "cells": cells,
            "left": len([api for api in apis if api in named]) - len(shown)}  # fmt: skip


def matrix(uses: pd.DataFrame | None) -> Block:
    """What clients carry to and from topics: the clients and topics with most bytes."""
    rows: list[dict[Any, Any]] = [] if uses is None else uses.to_dict(orient="records")
    ends = [(_who(row), CLUSTER_METADATA if row["topic"] == METADATA_ID else row["topic"]) for row in rows]
    weights: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
    for row, end in zip(rows, ends, strict=True):
        for sums, name in zip(weights, end, strict=True):
            sums[name] += int(row["record_bytes"]) * 1_000_000 + int(row["calls"])
    clients, topics = map(_heaviest, weights)
    x = {topic: at for at, topic in enumerate(topics[:TOPICS])}
    y = {client: at for at, client in enumerate(clients[:CLIENTS])}
    cells: dict[tuple[int, int], list[Any]] = {}
    for row, (client, topic) in zip(rows, ends, strict=True):
        if client in y and topic in x:
            cell = cells.setdefault((x[topic], y[client]), [0, 0, 0, 0, []])
            for place, name in enumerate(("record_bytes", "calls", "errors", "records")):
                cell[place] += int(row[name])
            cell[4].append(f"{row['api']} {int(row['calls']):,}")
    return {
        "clients": [text(each) for each in y], "topics": [text(each) for each in x],
        "cells": [[*at, *cell[:4], ", ".join(cell[4][:5])] for at, cell in sorted(cells.items())],
        "left": [len(clients) - len(y), len(topics) - len(x)],
    }  # fmt: skip


def _heaviest(weights: Counter[str]) -> list[str]:
    return sorted(weights, key=lambda name: (-weights[name], name))


def _who(row: Row) -> str:
    return f"{row['client_id']}@{row['client_ip']}" if row["client_id"] else str(row["client_ip"])


def client_table(found: pa.Table) -> AnswerTable:
    return AnswerTable("client", "Clients", CLIENT, by_share(found, "client_id", "client_ip"))


def error_table(lines: Sequence[ErrorLine]) -> AnswerTable:
    """Errors with who got them and for what."""
    rows = [
        {
            "error": line.error, "api": line.api, "calls": line.calls, "who": line.who, "where": line.where,
            "first": EPOCH + timedelta(microseconds=line.entry.first.time),
            "last": EPOCH + timedelta(microseconds=line.entry.last.time),
            "packet": line.entry.first.number if line.entry.first.number >= 0 else None,
        }
        for line in lines
    ]  # fmt: skip
    return AnswerTable("errors", "Errors", ERRORS, rows)


def anomaly_table(counts: Mapping[str, int]) -> AnswerTable:
    """Anomalies by code, the most frequent first."""
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    rows = [{"code": code, "count": count, "meaning": ANOMALIES.get(code)} for code, count in ranked]
    return AnswerTable("anomalies", "Anomalies", ANOMALY, rows)


def groups(found: Groups, last: int | None) -> Block:
    """Members of groups with what they had when; `last` is when the input ends."""
    shares = found.shares()
    lanes = list(dict.fromkeys((row["group"], row["member"]) for row in shares))
    shown = {lane: at for at, lane in enumerate(lanes[:LANES])}
    texts = list(dict.fromkeys(row["share"] for row in shares))
    bars: list[list[Any]] = []
    for row in shares:
        lane = shown.get((row["group"], row["member"]))
        until = micros(row["until"]) or last
        if lane is not None and until is not None and len(bars) < BARS:
            begin = micros(row["from"]) or until
            bars.append([lane, begin, max(until, begin), text(row["share"]), texts.index(row["share"])])
    return {"lanes": [[text(group), text(member)] for group, member in shown], "bars": bars,
            "left": len(lanes) - len(shown)}  # fmt: skip


SHARE = AnswerField("share", RATIO, "share of time", "of all calls, without waiting on purpose")
COUNTS = (
    AnswerField("calls", COUNT, "calls", "calls of any status"),
    AnswerField("errors", COUNT, "errors", "calls with a non-zero error code"),
)
HALF = AnswerField("latency_p50_us", DURATION, "p50", "half of the calls that did not wait took no longer")
SLOWEST = (
    AnswerField("latency_p99_us", DURATION, "p99", "99 of 100"),
    AnswerField("latency_max_us", DURATION, "max", "the longest"),
)
SIZES = (
    AnswerField("request_bytes", BYTES, "sent", "bytes of the requests"),
    AnswerField("response_bytes", BYTES, "received", "bytes of the responses"),
)
API = (
    AnswerField("api", TEXT, "API", "name of the API"),
    *COUNTS,
    AnswerField("unanswered", COUNT, "unanswered", "calls without a captured response"),
    SHARE,
    AnswerField("cause", TEXT, "spent in", "what most of its time went into"),
    HALF,
    AnswerField("latency_p95_us", DURATION, "p95", "95 of 100"),
    *SLOWEST,
    *SIZES,
)
CLIENT = (
    AnswerField("client_id", TEXT, "client", "as the client calls itself"),
    AnswerField("client_ip", TEXT, "address", "address it sends from"),
    AnswerField("software", TEXT, "software", "client libraries with version, as they say (KIP-511)"),
    *COUNTS,
    AnswerField("error_ratio", RATIO, "error share", "errors / calls"),
    SHARE,
    HALF,
    *SLOWEST,
    AnswerField("throttle_ms", COUNT, "throttled ms", "sum of the throttle times it was told"),
    AnswerField("in_flight_max", COUNT, "in flight", "most requests a connection had outstanding"),
    *SIZES,
)
ERRORS = (
    AnswerField("error", TEXT, "error", "name of the error code"),
    AnswerField("api", TEXT, "API", "name of the API"),
    AnswerField("calls", COUNT, "calls", "calls with this error"),
    AnswerField("who", LIST, "who", "clients that got it"),
    AnswerField("where", LIST, "where", "topics and partitions it was about"),
    AnswerField("first", TIME, "first", "time of the first"),
    AnswerField("last", TIME, "last", "time of the last"),
    AnswerField("packet", COUNT, "packet", "packet of the first, for kwsniff show"),
)
ANOMALY = (
    AnswerField("code", TEXT, "code", "what is not as it should be"),
    AnswerField("count", COUNT, "count", "how often"),
    AnswerField("meaning", TEXT, "meaning", "the same in words"),
)
