"""The events of one input in DuckDB, as views that formulas of docs are written over."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb

Row = dict[str, Any]
PARTS = ("request_transfer", "queued", "throttled", "waited", "broker", "response_transfer", "broker_least")
PERCENTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999, "max": 1.0}
STATUSES = ("no_reply_expected", "unanswered", "orphan", "undecoded", "truncated")
PEER = "case when {0} like '%:%' then '[' || {0} || ']' else {0} end || ':' || {1}"
FETCHES = "(1, 78)"
"""Fetch and ShareFetch."""

NAMES = """
create view names as select uuid, min(name) name from (
    select unnest(topics) name, unnest(topic_ids) uuid from events
    union all select p.topic, p.topic_id from (select unnest(partitions) p from events))
where name is not null and uuid is not null group by uuid
"""
"""Topics by uuid, from whatever message in the input gives both."""

VIEWS = f"""
create or replace table calls as
    select *, coalesce(waited_us, 0) > 0 waits, coalesce(error_code, 0) <> 0 failed,
        {PEER.format("broker_ip", "broker_port")} broker,
        row_number() over (order by position) call_no
    from numbered where event = 'call' and ({{condition}});
create or replace table parts as
    select c.* exclude (partitions, asked, topics, topic_ids, resources, error_code), c.error_code call_error,
        coalesce(p.topic, n.name, p.topic_id) topic, p.*  exclude (topic)
    from (select *, unnest(partitions) p from calls) c left join names n on n.uuid = p.topic_id;
create or replace table named as
    select distinct call_no, topic from (
        select t.call_no, coalesce(t.name, n.name, t.uuid) topic
            from (select call_no, unnest(topics) name, unnest(topic_ids) uuid from calls) t
            left join names n on n.uuid = t.uuid
        union all select call_no, topic from parts)
    where topic is not null;
"""


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
        f"max(broker_us) filter (waits and api_key in {FETCHES}) wait_overrun_max_us",
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


class Truth:
    """The events of one input, and what was chosen of them.

    `calls` are the chosen calls, `parts` a row for each of their partitions, `named` the topics that each of
    them names, `ends` all connections.
    """

    def __init__(self, parquet: Path, since: datetime | None = None, until: datetime | None = None) -> None:
        self.db = duckdb.connect()
        self.db.sql("set timezone='UTC'")
        bounds = [f"time >= '{since.isoformat()}'"] if since else []
        bounds += [f"time < '{until.isoformat()}'"] if until else []
        self.db.sql(f"create table events as select * from '{parquet}'")
        self.db.sql("create view numbered as select *, rowid as position from events")
        self.db.sql("create view ends as select * from events where event = 'connection'")
        self.db.sql(NAMES)
        self.since, self.until = since, until
        self.choose(" and ".join(bounds) or "true")

    def choose(self, condition: str) -> None:
        """Take only calls for which a condition in SQL holds."""
        self.db.sql(VIEWS.format(condition=condition))
        self.db.sql("create or replace table calls as select * from calls")

    def sql(self, text: str) -> list[Row]:
        """Rows of a query."""
        return list(self.db.sql(text).to_arrow_table().to_pylist())

    def one(self, text: str) -> Row:
        """The only row of a query."""
        (row,) = self.sql(text)
        return row

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
        """How long the captures are, together."""
        covered, end = timedelta(0), None
        for first, last in self.spans():
            begin = first if end is None else max(first, end)
            covered += max(last - begin, timedelta(0))
            end = last if end is None else max(end, last)
        return covered / timedelta(seconds=1)

    def table(self, *keys: str, of: str = "calls") -> list[Row]:
        """The figures by columns of the calls."""
        return self.sql(f"select {', '.join(keys)}, {figures(self.seconds())} from {of} group by all")
