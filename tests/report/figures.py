"""Every number that report, its windows and filters, the page's data, slow and errors show, calculated again
by DuckDB from the Parquet of `kwsniff decode`, by the formulas of docs/report.md and docs/answers.md: nothing
of kwsniff but its command line.

`python -m tests.report.figures [CAPTURE ...]` prints how many figures of each output were checked, and how
many were wrong.
"""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb

CAPTURES = Path(__file__).parents[2] / "captures"
Row = dict[str, Any]
PARTS = ("request_transfer", "queued", "throttled", "waited", "broker", "response_transfer", "broker_least")
PERCENTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999, "max": 1.0}
STATUSES = ("no_reply_expected", "unanswered", "orphan", "undecoded", "truncated")
PEER = "case when {0} like '%:%' then '[' || {0} || ']' else {0} end || ':' || {1}"
FETCH = "(1, 78)"


def run(*words: str) -> str:
    """What a command prints."""
    ended = subprocess.run([sys.executable, "-m", "kwsniff", *words], capture_output=True, text=True)
    assert ended.returncode in (0, 1, 3), ended.stderr
    return ended.stdout


def figures(seconds: float) -> str:
    """The columns of the report's tables over the calls of a group, in SQL."""
    columns = [
        "count(*) calls",
        f"count(*) / {seconds} calls_per_s" if seconds else "null calls_per_s",
        "coalesce(sum(request_bytes), 0) request_bytes",
        "coalesce(sum(response_bytes), 0) response_bytes",
        "coalesce(sum(record_count), 0) records",
        "coalesce(sum(record_bytes), 0) record_bytes",
        "coalesce(sum(waits::int), 0) waited_calls",
        f"max(broker_us) filter (waits and api_key in {FETCH}) wait_overrun_max_us",
        "coalesce(sum(duration_us) filter (not waits), 0) duration_sum_us",
        "coalesce(sum(duration_us) filter (waits), 0) duration_waited_sum_us",
        "count(*) filter (error_code <> 0) errors",
        "count(*) filter (error_code <> 0) / count(*) error_ratio",
        "coalesce(sum(error_count), 0) error_codes",
        "count(*) filter (throttle_ms > 0) throttled_calls",
        "coalesce(sum(throttle_ms), 0) throttle_ms",
        "coalesce(max(throttle_ms), 0) throttle_max_ms",
        "max(in_flight) in_flight_max",
        "min(coalesce(request_time, response_time)) first_time",
        "max(coalesce(response_end_time, response_time, request_end_time, request_time)) last_time",
    ]
    for prefix, column, which in (
        ("latency", "latency_us", "not waits"),
        ("duration", "duration_us", "not waits"),
        ("waited", "latency_us", "waits"),
    ):
        columns += [
            f"quantile_cont({column}, {part}) filter ({which}) {prefix}_{name}_us"
            for name, part in PERCENTILES.items()
        ]
    columns += [f"sum({name}_us) {name}_sum_us" for name in PARTS]
    columns += [f"count(*) filter (status = '{name}') {name}" for name in STATUSES]
    return ", ".join(columns)


class Checked:
    """Counts what was compared, and keeps what differs."""

    def __init__(self) -> None:
        self.figures: Counter[str] = Counter()
        self.amiss: Counter[str] = Counter()
        self.wrong: list[str] = []

    def equal(self, output: str, where: str, shown: Any, right: Any) -> None:
        self.figures[output] += 1
        if not same(shown, right):
            self.amiss[output] += 1
            self.wrong.append(f"{output} {where}: {shown!r}, right is {right!r}")

    def rows(self, output: str, shown: Sequence[Row], right: Sequence[Row], keys: Sequence[str]) -> None:
        """Compare rows by their keys, all columns of the right ones."""
        theirs = {tuple(str(row.get(key)) for key in keys): row for row in shown}
        mine = {tuple(str(row.get(key)) for key in keys): row for row in right}
        self.equal(output, "rows", sorted(theirs), sorted(mine))
        for key in theirs.keys() & mine.keys():
            for name, value in mine[key].items():
                if name not in keys:
                    self.equal(output, f"{key} {name}", theirs[key].get(name), value)


def same(shown: Any, right: Any) -> bool:
    if isinstance(right, datetime):
        return shown is not None and datetime.fromisoformat(shown) == right.astimezone(UTC)
    if isinstance(right, float) or isinstance(shown, float):
        if shown is None or right is None:
            return (shown is None or math.isnan(shown)) and (right is None or math.isnan(right))
        return math.isclose(shown, right, rel_tol=1e-9, abs_tol=1e-6)
    return bool(shown == right)


class Truth:
    """The events of one input, and what was chosen of them."""

    def __init__(self, parquet: Path, since: datetime | None = None, until: datetime | None = None) -> None:
        self.db = duckdb.connect()
        self.db.sql("set timezone='UTC'")
        bounds = [f"time >= '{since.isoformat()}'"] if since else []
        bounds += [f"time < '{until.isoformat()}'"] if until else []
        self.db.sql(f"create view events as from '{parquet}'")
        self.since, self.until = since, until
        self.choose(" and ".join(bounds) or "true")

    def choose(self, condition: str) -> None:
        self.db.sql(
            "create or replace view calls as select *, coalesce(waited_us, 0) > 0 waits, "
            f"{PEER.format('broker_ip', 'broker_port')} broker from events "
            f"where event = 'call' and ({condition})"
        )

    def sql(self, text: str) -> list[Row]:
        return list(self.db.sql(text).to_arrow_table().to_pylist())

    def spans(self) -> list[tuple[datetime, datetime]]:
        """What each capture covers, in the window."""
        rows = self.sql(
            "select min(coalesce(request_time, response_time, first_time)) a, max(coalesce("
            "response_end_time, response_time, request_end_time, request_time, last_time)) b "
            "from events group by capture"
        )
        found = []
        for row in rows:
            if row["a"] is None or row["b"] is None:
                continue
            first, last = max(row["a"], self.since or row["a"]), min(row["b"], self.until or row["b"])
            if first <= last:
                found.append((first, last))
        return sorted(found)

    def seconds(self) -> float:
        covered, end = timedelta(0), None
        for first, last in self.spans():
            begin = first if end is None else max(first, end)
            covered += max(last - begin, timedelta(0))
            end = last if end is None else max(end, last)
        return covered / timedelta(seconds=1)

    def table(self, *keys: str) -> list[Row]:
        """The figures by columns of the calls."""
        return self.sql(f"select {', '.join(keys)}, {figures(self.seconds())} from calls group by all")


def check_report(checked: Checked, output: str, truth: Truth, words: Sequence[str]) -> None:
    """The summary and the tables by API, client and broker."""
    report = json.loads(run("report", *words, "--json", "-q"))
    spans = truth.spans()
    (whole,) = truth.sql("select count(*) calls, count(*) filter (error_code <> 0) errors from calls")
    right: Row = {**whole, "covered_s": truth.seconds()}
    if spans:
        right |= {"first_time": spans[0][0], "last_time": max(last for _, last in spans)}
    for name, value in right.items():
        checked.equal(output, f"summary {name}", report["summary"][name], value)
    checked.rows(output, report["api"], truth.table("api", "api_key"), ["api_key"])
    checked.rows(output, report["client"], truth.table("client_id", "client_ip"), ["client_id", "client_ip"])
    checked.rows(output, report["broker"], truth.table("broker"), ["broker"])


def check_slow(checked: Checked, truth: Truth, path: str) -> None:
    """Clients by time, and the time of each slowest call."""
    answer = json.loads(run("slow", path, "-f", "json", "-q", "--top", "0"))
    means = ", ".join(f"sum({name}_us) / count(*) {name}_us" for name in PARTS)
    rows = truth.sql(
        "select client_id client, client_ip address, api, broker, count(*) calls, sum(duration_us) total_us, "
        "quantile_cont(duration_us, 0.5) p50_us, max(duration_us) max_us, case when count(*) >= 100 then "
        f"quantile_cont(duration_us, 0.99) end p99_us, {means} from calls "
        "where not waits and duration_us is not null group by all"
    )
    checked.rows("slow", answer["clients"], rows, ["client", "address", "api", "broker"])
    slowest = truth.sql(
        "select duration_us, latency_us from calls where not waits and duration_us is not null "
        "order by duration_us desc limit 1000"
    )
    for shown, right in zip(answer["calls"], slowest, strict=True):
        checked.equal("slow", "calls duration_us", shown["duration_us"], right["duration_us"])


def check_html(checked: Checked, truth: Truth, path: str, folder: Path) -> None:
    """The sums of the timeline, and the tables by API and client in the page's data."""
    page = folder / "page.html"
    run("report", path, "-q", "--html", str(page))
    found = re.search(
        r'<script type="application/json" id="data">(.*?)</script>', page.read_text(), re.DOTALL
    )
    assert found is not None
    data = json.loads(found[1])
    (right,) = truth.sql(
        "select count(*) calls, count(*) filter (error_code <> 0) errors, count(*) filter (status = "
        "'unanswered') unanswered, coalesce(sum(throttle_ms), 0) throttle_ms from calls "
        "where time is not null"
    )
    for name, value in right.items():
        checked.equal("html", f"timeline {name}", sum(data["timeline"][name]), value)


def check_errors(checked: Checked, truth: Truth, path: str) -> None:
    """Errors: how many calls had each, by API, client and topic or partition."""
    answer = json.loads(run("errors", path, "-f", "json", "-q", "--top", "0"))
    calls = truth.sql(
        "select error_code, api, client_id client, client_ip address, count(*) calls from calls "
        "where error_code <> 0 group by all"
    )
    right = {(row["error_code"], row["api"], row["client"], row["address"]): row["calls"] for row in calls}
    shown = {(row["error_code"], row["api"], row.get("client"), row["address"]) for row in answer["errors"]}
    checked.equal("errors", "who got which", len(right.keys() - shown), 0)


def windows(truth: Truth) -> Iterator[tuple[datetime, datetime]]:
    """The middle third of the input, in whole seconds."""
    spans = truth.spans()
    if spans:
        first, last = spans[0][0], max(end for _, end in spans)
        third = (last - first) / 3
        since = (first + third).replace(microsecond=0)
        until = (last - third).replace(microsecond=0) + timedelta(seconds=1)
        yield since, until


def check(path: str, checked: Checked) -> None:
    """All outputs of one capture."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        parquet = folder / "events.parquet"
        run("decode", path, "-q", "-o", str(parquet))
        truth = Truth(parquet)
        check_report(checked, "report", truth, [path])
        check_slow(checked, truth, path)
        check_html(checked, truth, path, folder)
        check_errors(checked, truth, path)
        truth.choose("api = 'Fetch' or latency_us > 2000")
        check_report(checked, "report --where", truth, [path, "--where", "api == 'Fetch' or latency > 2ms"])
        for since, until in windows(truth):
            bounds = ["--since", since.isoformat(), "--until", until.isoformat()]
            check_report(checked, "report --since --until", Truth(parquet, since, until), [path, *bounds])


def main(paths: Sequence[str]) -> int:
    """Print the table."""
    checked = Checked()
    for path in paths or sorted(map(str, CAPTURES.glob("*.pcap*"))):
        check(path, checked)
    print(f"{'output':<28}{'figures':>10}{'wrong':>8}")
    for output, count in checked.figures.items():
        wrong = checked.amiss[output]
        print(f"{output:<28}{count:>10,}{wrong:>8,}")
    for line in checked.wrong[:50]:
        print(line)
    return 1 if checked.wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
