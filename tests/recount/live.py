"""What a live session writes and serves: the tables of `--csv`, history.csv, and metrics for Prometheus. The
session's own sinks take the events of a recording in its time; a socket would need root."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from prometheus_client import parser

from kwsniff.config import Config
from kwsniff.count.naming import named
from kwsniff.live.livetable import IntervalCsv, LiveFindings
from kwsniff.live.metrics import Metrics
from kwsniff.live.session import Health
from kwsniff.run.offline import events
from kwsniff.spec.load import catalog
from tests.recount import groups, report
from tests.recount.checked import Checked, Row
from tests.recount.truth import Truth

INTERVAL_S = 1.0
STEP_US = 200_000
HISTORY = """
select h.time, coalesce(c.api, 'key ' || c.api_key) api, count(*) calls,
    count(*) filter (error_code <> 0) errors, count(*) filter (status = 'unanswered') unanswered,
    coalesce(sum(request_bytes), 0)::bigint request_bytes, coalesce(sum(response_bytes), 0)::bigint
        response_bytes,
    quantile_cont(latency_us, 0.5) filter (not waits) latency_p50_us,
    quantile_cont(latency_us, 0.95) filter (not waits) latency_p95_us,
    quantile_cont(latency_us, 0.99) filter (not waits) latency_p99_us
from (select distinct time::timestamptz as time, interval_s from history) h
join calls c on coalesce(response_end_time, request_end_time, c.time) <= h.time
    and coalesce(response_end_time, request_end_time, c.time) > h.time - to_microseconds((interval_s *
        1e6)::bigint)
group by all
"""
"""Of the calls that were completed in each interval."""
SHOWN = "coalesce(api, 'unknown') api, coalesce(client_id, '') client_id, broker"
COUNTERS = {
    "requests": "count(*) filter (status <> 'orphan')",
    "request_bytes": "coalesce(sum(request_bytes), 0)",
    "response_bytes": "coalesce(sum(response_bytes), 0)",
    "records": "coalesce(sum(record_count), 0)",
    "record_bytes": "coalesce(sum(record_bytes), 0)",
    "throttled_requests": "count(*) filter (throttle_ms > 0)",
    "throttle_seconds": "coalesce(sum(throttle_ms), 0) / 1e3",
    "waited_requests": "count(*) filter (waits)",
    "waited_seconds": "coalesce(sum(waited_us), 0) / 1e6",
}
BOUNDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
TIMED = "latency_us is not null and not waits"
BY_TOPIC = """
select coalesce(n.api, 'unknown') api, n.topic, n.requests, coalesce(p.records, 0) records,
    coalesce(p.record_bytes, 0) record_bytes
from (select c.api, n.topic, count(*) filter (c.status <> 'orphan') requests
    from named n join calls c using (call_no) group by all) n
left join (select api, topic, sum(records) records, sum(bytes) record_bytes from parts group by all) p
    on p.api is not distinct from n.api and p.topic = n.topic
"""


def check(checked: Checked, path: str, parquet: Path, folder: Path) -> None:
    """Everything that a session tells in figures."""
    found = LiveFindings()
    out, metrics = folder / "live", Metrics("127.0.0.1:0", topics=True, lag=found.lag)
    errors = {e.code: (e.name, e.retriable) for e in catalog().errors.values()}
    tables = IntervalCsv(out, INTERVAL_S, errors=errors, findings=found)
    try:
        scraped = played(path, found, tables, metrics)
    finally:
        metrics.close()
    truth = Truth(parquet)
    report.tables(checked, "live --csv", truth, report.read(out))
    check_history(checked, truth, out / "history.csv")
    check_metrics(checked, truth, scraped)
    right = groups.check_lag(checked, "live --csv lag.csv", truth, report.rows_of(out / "lag.csv"))
    for who, keys in (("group", ("group_id",)), ("consumer", ("client_id", "client_ip"))):
        names = (*keys, "topic", "partition")
        own = [row for row in right if (row["group_id"] is None) == (who == "consumer")]
        series = {tuple("" if row[name] is None else str(row[name]) for name in names): float(row["lag"])
                  for row in own if row["lag"] is not None}  # fmt: skip
        told = {tuple(labels[name] for name in names): value
                for labels, value in scraped.get(f"{who}_lag_records", ())}  # fmt: skip
        for key in told.keys() | series.keys():
            checked.equal("live metrics", f"{who} lag {key}", told.get(key), series.get(key))


def steps(path: str) -> Iterator[tuple[pa.RecordBatch, Health]]:
    """The events of each STEP_S by when they were complete, named as a session names them."""
    table = pa.Table.from_batches(named(events([path], Config()), hold=False))
    known = pc.coalesce(
        *(table[name] for name in ("response_end_time", "request_end_time", "last_time", "time"))
    )
    known = known.cast(pa.int64()).fill_null(pc.max(known).cast(pa.int64()))
    begin, end = (pc.min_max(known)[name].as_py() for name in ("min", "max"))
    for now in range(begin, end + STEP_US, STEP_US):
        due = pc.and_(pc.greater(known, now - STEP_US), pc.less_equal(known, now))
        health = Health(interfaces=("replay",), started_ns=(begin - STEP_US) * 1000, now_ns=now * 1000)
        for batch in table.filter(due).combine_chunks().to_batches():
            yield batch, health


def played(path: str, *sinks: LiveFindings | IntervalCsv | Metrics) -> dict[str, list[tuple[Row, float]]]:
    """Let them take a recording; what is scraped at its end of the last, metrics."""
    *_, metrics = sinks
    assert isinstance(metrics, Metrics)
    for batch, health in steps(path):
        for sink in sinks:
            sink.add(batch)
            sink.tick(health)
    for sink in sinks[:-1]:
        sink.close()
    with urllib.request.urlopen(metrics.url, timeout=30) as response:
        text = response.read().decode()
    found: dict[str, list[tuple[Row, float]]] = {}
    for family in parser.text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name.removeprefix("kwsniff_"), []).append((sample.labels, sample.value))
    return found


def check_history(checked: Checked, truth: Truth, path: Path) -> None:
    """A row for each interval and API."""
    shown = report.rows_of(path)
    truth.db.sql(f"create table history as select time, interval_s from read_csv('{path}', "
    f"all_varchar = true)"
                 .replace("interval_s from", "interval_s::double interval_s from"))  # fmt: skip
    right = truth.sql(HISTORY)
    for row in right:
        row["time"] = row["time"].strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    unnamed = truth.one("select count(*) n from calls where api is null and api_key is null")["n"]
    shown = [row for row in shown if row["api"] is not None or not unnamed]
    right = [row for row in right if row["api"] is not None]
    checked.rows("live history.csv", shown, right, ["time", "api"])


def check_metrics(checked: Checked, truth: Truth, scraped: Mapping[str, Sequence[tuple[Row, float]]]) -> None:
    """Counters by API, client and broker, errors, statuses, reasons, latencies; and by topic."""
    compare(checked, truth, scraped, {f"{name}_total": how for name, how in COUNTERS.items()}, SHOWN, "true")
    single = {"errors_total": (f"{SHOWN}, error", "error_code <> 0"),
              "unanswered_requests_total": (f"{SHOWN}, unanswered_because reason",
                                            "unanswered_because <> ''"),
              "calls_total": ("coalesce(api, 'unknown') api, status", "true")}  # fmt: skip
    for name, (keys, which) in single.items():
        compare(checked, truth, scraped, {name: "count(*)"}, keys, which)
    latency = {"request_latency_seconds_sum": "sum(latency_us) / 1e6",
               "request_latency_seconds_count": "count(*)"}  # fmt: skip
    compare(checked, truth, scraped, latency, SHOWN, TIMED)
    for bound in BOUNDS:
        told = sum(value for labels, value in scraped.get("request_latency_seconds_bucket", ())
                   if float(labels["le"]) == bound)  # fmt: skip
        under = truth.one(f"select count(*) n from calls where {TIMED} and latency_us <= {bound * 1e6:.0f}")[
            "n"
        ]
        checked.equal("live metrics", f"latency le {bound}", int(told), under)
    told_codes = {labels["code"]: int(value) for labels, value in scraped.get("anomalies_total", ())}
    codes = {row["code"]: row["n"] for row in truth.sql(
        "select code, count(*) n from events where event = 'anomaly' group by all")}  # fmt: skip
    checked.equal("live metrics", "anomalies", told_codes, codes)
    topics = {(row["api"], row["topic"]): row for row in truth.sql(BY_TOPIC)}
    for name in ("requests", "records", "record_bytes"):
        found = {(labels["api"], labels["topic"]): int(value)
                 for labels, value in scraped.get(f"topic_{name}_total", ())}  # fmt: skip
        for key in topics.keys() | found.keys():
            right = topics.get(key, {}).get(name, 0)
            checked.equal("live metrics", f"topic {key} {name}", found.get(key, 0), int(right))


def compare(
    checked: Checked,
    truth: Truth,
    scraped: Mapping[str, Sequence[tuple[Row, float]]],
    metrics: Mapping[str, str],
    keys: str,
    which: str,
) -> None:
    """Metrics by their labels, each of which is a column of `keys`."""
    columns = ", ".join(f"{how} {name}" for name, how in metrics.items())
    right: dict[frozenset[tuple[str, str]], Row] = {}
    for row in truth.sql(f"select {keys}, {columns} from calls where {which} group by all"):
        labels = {name: value for name, value in row.items() if name not in metrics}
        right[frozenset(labels.items())] = row
    for name in metrics:
        told = {frozenset(labels.items()): value for labels, value in scraped.get(name, ())}
        for key in told.keys() | right.keys():
            value = float(right.get(key, {}).get(name, 0))
            checked.equal("live metrics", f"{name} {sorted(key)}", float(told.get(key, 0)), value)
