"""The pipeline's tables: its statistics from its events, its events from those of one process, and the
windows
of a stream that it follows."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from pathlib import Path

import duckdb

from tests.recount import groups, report
from tests.recount.checked import Checked
from tests.recount.command import printed
from tests.recount.truth import Truth

KINDS = {"calls": "call", "anomalies": "anomaly", "connections": "connection"}
PERCENTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999, "max": 1.0}
SECONDS = 10
WINDOW = ", ".join(
    (
        f"time_bucket(interval '{SECONDS} seconds', time) window_start",
        f"time_bucket(interval '{SECONDS} seconds', time) + interval '{SECONDS} seconds' window_end",
        "count(*) calls",
        "count(*) filter (error_code <> 0) errors",
        "count(*) filter (status = 'unanswered') unanswered",
        "count(*) filter (throttle_ms > 0) throttled_calls",
        "count(*) filter (waits) waited_calls",
        "count(distinct connection) connections",
        "coalesce(sum(request_bytes), 0)::bigint request_bytes",
        "coalesce(sum(response_bytes), 0)::bigint response_bytes",
        "coalesce(sum(record_count), 0)::bigint records",
        *(
            f"quantile_cont(latency_us, {part}) filter (not waits) latency_{name}_us"
            for name, part in PERCENTILES.items()
        ),
    )
)
WINDOWS = f"""
select {WINDOW}, null api from calls group by all
union all by name
select {WINDOW}, coalesce(api, 'key ' || api_key) api from calls where api_key is not null group by all
"""


def check(checked: Checked, captures: Iterable[Path], folder: Path) -> None:
    """One run over captures, and a stream of them that ends."""
    source, out, stream = folder / "source", folder / "results", folder / "stream"
    source.mkdir()
    for path in captures:
        shutil.copy(path, source)
    master = ["--master", "local[2]", "-q"]
    printed("pipeline", str(source), "--out", str(out), *master)
    truth = Truth(events(out, folder / "results.parquet"))
    statistics = report.read(out / "current" / "statistics")
    report.tables(checked, "pipeline statistics", truth, statistics)
    check_rows(checked, truth, source, out, folder)
    lag = truth.sql(f"select * from read_parquet('{out}/current/lag/*/*/*/*.parquet')")
    groups.check_lag(checked, "pipeline lag", truth, lag)
    printed(
        "pipeline", "--follow", str(source), "--end", "--window", f"{SECONDS}s", "--out", str(stream), *master
    )
    check_windows(checked, Truth(events(stream, folder / "stream.parquet")), stream)


def events(out: Path, parquet: Path) -> Path:
    """Events of the pipeline's tables, as a reader of their paths sees them, in one file."""
    tables = " union all by name ".join(
        f"select '{kind}' event, * from read_parquet('{out}/current/{name}/*/*/*/*.parquet')"
        for name, kind in KINDS.items()
    )
    duckdb.sql(f"copy (select * exclude (position) from ({tables}) order by position) to '{parquet}'")
    return parquet


def check_rows(checked: Checked, truth: Truth, source: Path, out: Path, folder: Path) -> None:
    """As many rows, with the same sums, as one process decodes, and as the manifest names."""
    whole = folder / "whole.parquet"
    printed("decode", str(source), "-q", "-o", str(whole))
    sums = (
        "select event, count(*) n, count(*) filter (error_code <> 0) errors, "
        "sum(request_bytes)::bigint sent, "
        "sum(response_bytes)::bigint received, sum(record_count)::bigint records, sum(latency_us) latency, "
        "sum(waited_us) waited, sum(client_bytes)::bigint client_bytes from {} group by all"
    )
    mine = truth.sql(sums.format("events"))
    checked.rows("pipeline tables", mine, truth.sql(sums.format(f"'{whole}'")), ["event"])
    manifest = json.loads((out / "manifest.json").read_text())
    for name, kind in KINDS.items():
        named = sum(file["rows"] for file in manifest["tables"][name])
        rows = next((row["n"] for row in mine if row["event"] == kind), 0)
        checked.equal("pipeline tables", f"{name} of the manifest", named, rows)


def check_windows(checked: Checked, truth: Truth, out: Path) -> None:
    """Each window of time, for all calls and for each API."""
    shown = truth.sql(
        f"select * from read_parquet('{out}/current/windows/*/*/*/*.parquet', union_by_name = true)"
    )
    for row in shown:
        row["window_start"], row["window_end"] = (str(row[name]) for name in ("window_start", "window_end"))
    right = truth.sql(WINDOWS)
    for row in right:
        row["window_start"], row["window_end"] = (str(row[name]) for name in ("window_start", "window_end"))
    checked.rows("pipeline windows", shown, right, ["window_start", "api"])
