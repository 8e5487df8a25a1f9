"""The report: its summary, its tables, their windows and filters, and the page's data."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path

import duckdb

from tests.recount.checked import Checked, Row
from tests.recount.command import page, printed
from tests.recount.truth import Truth

BY_TOPIC = """
create or replace table by_topic as
with own as (
    select call_no, topic, first(error_code order by place) filter (error_code <> 0) first,
        count(*) filter (error_code <> 0) codes, sum(records) records, sum(bytes) bytes
    from (select *, row_number() over () place from parts) group by all),
    told as (select call_no from own group by call_no having max(codes) > 0),
    belonging as (
        select n.topic, n.call_no, own.codes, own.records, own.bytes,
            case when n.call_no in (from told) then coalesce(own.first, 0) else c.error_code end error_code
        from named n join calls c using (call_no) left join own using (call_no, topic))
select b.topic, c.* exclude (error_code, error_count, record_count, record_bytes), b.error_code,
    greatest(coalesce(b.codes, 0), coalesce(b.error_code <> 0, false)::int) error_count,
    b.records record_count, b.bytes record_bytes
from belonging b join calls c using (call_no)
"""
"""A call for each topic that it names, with the error, the codes and the records of that topic."""
BY_ERROR = """
select e.error_code, coalesce(e.api, '') api, count(*) / min(a.calls) api_call_ratio,
    count(distinct (client_id, client_ip)) clients_affected
from calls e join (select api_key, count(*) calls from calls group by all) a
    on a.api_key is not distinct from e.api_key
where e.error_code <> 0 group by all
"""
BUSY = "coalesce(sum(duration_us), 0) - coalesce(sum(waited_us), 0)"
"""What calls took, but for what they waited on purpose."""
SHOWN = 20
"""Names of topics and of clients in a row of errors."""


def check_report(checked: Checked, output: str, truth: Truth, words: Sequence[str]) -> None:
    """The summary and the tables by API, client, topic, broker and error."""
    report = json.loads(printed("report", *words, "--json", "-q"))
    spans = truth.spans()
    right = truth.one("select count(*) calls, count(*) filter (error_code <> 0) errors from calls")
    right |= {"covered_s": truth.seconds()}
    if spans:
        right |= {"first_time": spans[0][0], "last_time": max(last for _, last in spans)}
    for name, value in right.items():
        checked.equal(output, f"summary {name}", report["summary"][name], value)
    tables(checked, output, truth, {name: report[name] for name in TABLES})


TABLES = ("api", "client", "topic", "broker", "error")


def tables(checked: Checked, output: str, truth: Truth, shown: dict[str, list[Row]]) -> None:
    """The five tables, from wherever they are shown."""
    truth.db.sql(BY_TOPIC)
    checked.rows(output, shown["api"], truth.table("api", "api_key"), ["api_key"])
    checked.rows(output, shown["broker"], truth.table("broker"), ["broker"])
    checked.rows(output, shown["client"], truth.table("client_id", "client_ip"), ["client_id", "client_ip"])
    software = truth.sql(
        "select client_id, client_ip, string_agg(software, ';' order by software) software from "
        "(select distinct "
        "client_id, client_ip, concat_ws(' ', software_name, software_version) software from calls where "
        "software_name is not null) group by all"
    )
    named = [row for row in shown["client"] if row.get("software")]
    checked.rows(output, named, software, ["client_id", "client_ip"])
    topics = {row["topic"]: row for row in truth.table("topic", of="by_topic")}
    for row in truth.sql("select topic, count(distinct partition) partitions_seen from parts group by all"):
        topics[row["topic"]] |= row
    checked.rows(output, shown["topic"], list(topics.values()), ["topic"])
    errors(checked, output, truth, shown["error"])
    for name, of in (("api", "calls"), ("client", "calls"), ("broker", "calls"), ("topic", "by_topic")):
        by_name(checked, output, truth, shown[name], name, of)


def errors(checked: Checked, output: str, truth: Truth, shown: Sequence[Row]) -> None:
    """The table by error and API."""
    keys = ("error_code", "api")
    figures = {tuple(row[key] for key in keys): row for row in truth.table(*keys, of="calls")}
    right = []
    for row in truth.sql(BY_ERROR):
        code, api = row["error_code"], row["api"]
        row |= {k: v for k, v in figures[code, api].items() if k not in ("errors", "error_ratio")}
        topics = truth.sql(
            f"select distinct topic from by_topic join (select call_no from calls where error_code = {code}) "
            f"using (call_no) where error_code = {code} and api = '{api}' order by topic"
        )
        row |= {"topics_affected": len(topics)}
        row["topics"] = ";".join(each["topic"] for each in topics[:SHOWN]) or None
        right.append(row)
    checked.rows(output, shown, right, keys)


def by_name(checked: Checked, output: str, truth: Truth, shown: Sequence[Row], name: str, of: str) -> None:
    """Calls of a row by the name of their error, and their part of the row's calls."""
    keys = {"client": ["client_id", "client_ip"], "api": ["api_key"]}.get(name, [name])
    names = {row["error_code"]: row["error"] for row in truth.sql("select error_code, error from calls")}
    counts: dict[tuple[str, ...], dict[str, int]] = {}
    for row in truth.sql(f"select {', '.join(keys)}, error_code, count(*) n from {of} "
                         "where error_code <> 0 group by all"):  # fmt: skip
        place = counts.setdefault(tuple(str(row[key]) for key in keys), {})
        place[names.get(row["error_code"], str(row["error_code"]))] = row["n"]
    for row in shown:
        told = dict(
            each.split(" (")[0].split("=") for each in (row["errors_by_name"] or "").split("; ") if each
        )
        key = tuple(str(row.get(key)) for key in keys)
        right = {name: str(count) for name, count in counts.get(key, {}).items()}
        if not {each for each in right if each.isdigit()}:
            checked.equal(output, f"{key} errors_by_name", told, right)


def check_html(checked: Checked, truth: Truth, path: str, folder: Path) -> None:
    """The sums of the timeline in the page's data."""
    data = page(path, folder)
    right = truth.one(
        "select count(*) calls, count(*) filter (error_code <> 0) errors, count(*) filter (status = "
        "'unanswered') unanswered, coalesce(sum(throttle_ms), 0) throttle_ms from calls "
        "where time is not null"
    )
    for name, value in right.items():
        checked.equal("report --html", f"timeline {name}", sum(data["timeline"][name]), value)
    failed = truth.sql(
        "select error, coalesce(api, '') api, count(*) calls from calls where error_code <> 0 group by all"
    )
    shown = {(row[0], row[1] or ""): row[2] for row in data["tables"]["errors"]["rows"]}
    right = {(row["error"], row["api"]): row["calls"] for row in failed}
    checked.equal("report --html", "calls by error and API", shown, right)
    for table, keys in (("api", ["api"]), ("client", ["client_id", "client_ip"])):
        shown = data["tables"][table]
        at = [column[0] for column in shown["columns"]].index("share of time")
        shares = {tuple(row[: len(keys)]): row[at] for row in shown["rows"]}
        rows = truth.sql(f"select {', '.join(keys)}, {BUSY} busy from calls group by {', '.join(keys)}")
        whole = sum(row["busy"] for row in rows)
        for row in rows:
            key = tuple(row[name] for name in keys)
            share = round(row["busy"] / whole, 3) if whole else 0
            if key in shares:
                near = abs((shares[key] or 0) - share) <= 0.0011  # three digits are shown
                told = share if near else shares[key]
                checked.equal("report --html", f"{table} {key} share", told, share)


def windows(truth: Truth) -> Iterator[tuple[datetime, datetime]]:
    """The middle third of the input, in whole seconds."""
    spans = truth.spans()
    if spans:
        first, last = spans[0][0], max(end for _, end in spans)
        third = (last - first) / 3
        since = (first + third).replace(microsecond=0)
        until = (last - third).replace(microsecond=0) + timedelta(seconds=1)
        yield since, until


def check(checked: Checked, path: str, parquet: Path, folder: Path) -> None:
    """All that `kwsniff report` shows."""
    truth = Truth(parquet)
    check_report(checked, "report", truth, [path])
    check_html(checked, truth, path, folder)
    truth.choose("api = 'Fetch' or latency_us > 2000")
    check_report(checked, "report --where", truth, [path, "--where", "api == 'Fetch' or latency > 2ms"])
    for since, until in windows(truth):
        bounds = ["--since", since.isoformat(), "--until", until.isoformat()]
        check_report(checked, "report --since --until", Truth(parquet, since, until), [path, *bounds])


def read(folder: Path) -> dict[str, list[Row]]:
    """Tables as CSV files have them, with numbers in place of their digits."""
    return {name: rows_of(folder / f"{name}.csv") for name in TABLES}


def rows_of(path: Path) -> list[Row]:
    """Rows of a CSV file; nothing is null, an empty text is in quotes."""
    how = "all_varchar = true, header = true, nullstr = '', allow_quoted_nulls = false, delim = ','"
    table = duckdb.sql(
        f"select * from read_csv('{path}', {how}, quote = '\"', escape = '\"')"
    ).to_arrow_table()
    return [{name: _value(name, text) for name, text in row.items()} for row in table.to_pylist()]


TEXTS = (
    *TABLES, "client_id", "client_ip", "group_id", "software", "topics", "clients", "errors_by_name", "time",
    "retriable",
)  # fmt: skip


def _value(name: str, text: str | None) -> str | int | float | None:
    if not text or name in TEXTS or name.endswith("_time"):
        return text
    return float(text) if "." in text or "e" in text.lower() else int(text)
