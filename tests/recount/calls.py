"""What `slow` and `errors` answer of single calls."""

from __future__ import annotations

from pathlib import Path

from tests.recount.checked import Checked
from tests.recount.command import answer
from tests.recount.truth import PARTS, Truth

TIMED = "(not waits or {waiting}) and duration_us is not null"
CODES = """
create or replace table codes as
with p as (
        select call_no, error_code code, topic, partition, null about from parts where error_code <> 0),
    listed as (
        select call_no, topics, unnest(resources) r from calls where call_no not in (select call_no from p)),
    r as (
        select call_no, r.error_code code, null partition,
            r.type = 'topic' or (r.type is null and list_contains(topics, r.name)) of_topic,
            case when of_topic then r.name end topic, r.name,
            case when of_topic is not true then concat_ws(' ', r.type, r.name) end about
        from listed where r.error_code <> 0),
    single as (select call_no, min(topic) topic from named group by all having count(*) = 1),
    w as (
        select call_no, error_code code, single.topic, null partition, case when group_id <> '' then
            'group ' || group_id when transactional_id <> '' then 'transaction ' || transactional_id end about
        from calls left join single using (call_no)
        where error_code <> 0 and call_no not in (select call_no from p union all select call_no from r))
select e.*, c.api, c.client_id client, c.client_ip address, c.time, c.response_packet
from (from p union all by name select * exclude (of_topic) from r union all by name from w) e join (from
    calls where error_code <> 0) c using (call_no)
"""
"""Each code of an answer with an error: those of its partitions, else of its resources, else its own."""


def check_slow(checked: Checked, truth: Truth, path: str, *, waiting: bool) -> None:
    """Clients by time, and the time of each call."""
    words = ["--waiting"] if waiting else []
    output = " ".join(["slow", *words])
    told = answer("slow", path, *words)
    which = TIMED.format(waiting=waiting)
    means = ", ".join(f"sum({name}_us) / count(*) {name}_us" for name in PARTS)
    rows = truth.sql(
        "select client_id client, client_ip address, api, broker, count(*) calls, sum(duration_us) total_us, "
        "quantile_cont(duration_us, 0.5) p50_us, max(duration_us) max_us, case when count(*) >= 100 then "
        f"quantile_cont(duration_us, 0.99) end p99_us, {means} from calls where {which} group by all"
    )
    checked.rows(output, told["clients"], rows, ["client", "address", "api", "broker"])
    each = ", ".join(f"{name}_us" for name in PARTS)
    slowest = truth.sql(
        f"select duration_us, latency_us, time, api, broker, client_id client, error, {each}, "
        f"connection || '#' || correlation_id call, request_packet packet from calls where {which} "
        "order by duration_us desc limit 1000"
    )
    checked.rows(output, told["calls"], slowest, ["call", "packet"])
    (left,) = truth.sql(
        "select count(*) n, count(*) filter (waits) waiting from calls where duration_us is not null"
    )
    note = next((text for text in told.get("notes", ()) if "waited on purpose" in text), "0 of 0")
    if not waiting and left["waiting"]:
        checked.equal(output, "left out", note.split()[0].replace(",", ""), str(left["waiting"]))


def check_errors(checked: Checked, truth: Truth, path: str) -> None:
    """Errors by whom and what they are about, and the sum of each code."""
    told = answer("errors", path)
    truth.db.sql(CODES)
    keys = "code error_code, api, client, address, topic, partition, about"
    rows = truth.sql(
        f"select {keys}, count(*) count, count(distinct call_no) calls, min(time) first_time, "
        f"max(time) last_time "
        "from codes group by all"
    )
    by = ["error_code", "api", "client", "address", "topic", "partition", "about"]
    checked.rows("errors", told["errors"], rows, by)
    sums = truth.sql(
        "select code error_code, count(*) count, count(distinct (client, address)) clients, "
        "count(distinct topic) topics from codes group by all"
    )
    checked.rows("errors", told["codes"], sums, ["error_code"])
    untold = truth.one(
        "select coalesce(sum(greatest(coalesce(error_count, 1) - n, 0)), 0)::bigint untold from calls join "
        "(select call_no, count(*) n from codes group by all) using (call_no)"
    )["untold"]
    note = next((text for text in told.get("notes", ()) if "more error codes" in text), "0")
    checked.equal("errors", "more codes", note.split()[0].replace(",", ""), str(untold))


def check(checked: Checked, path: str, parquet: Path, folder: Path) -> None:
    """Both answers."""
    truth = Truth(parquet)
    check_slow(checked, truth, path, waiting=False)
    check_slow(checked, truth, path, waiting=True)
    check_errors(checked, truth, path)
