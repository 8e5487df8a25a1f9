"""What `groups` answers: how far consumers are behind, their commits, and when members were seen."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.recount.checked import Checked, Row
from tests.recount.command import answer, printed
from tests.recount.report import rows_of
from tests.recount.truth import Truth

MEMBERS = "0, 1, 8, 28, 9, 11, 12, 13, 14, 68, 76, 88"
"""APIs of groups, but for those that only ask about them."""
LOGS = f"""
create or replace table tails as
select topic, partition, last("end" order by response_time, call_no) "end" from (
    select *, case when api = 'Fetch' and high_watermark >= 0 then high_watermark
        when api = 'Produce' and error_code = 0 and base_offset >= 0 and records > 0 then base_offset +
            records
        end "end" from parts)
where "end" is not null group by all;
create or replace table starts as
select topic, partition, last(log_start_offset order by response_time, call_no) start
from parts where log_start_offset > 0 group by all;
create or replace table positions as
select client_id client, client_ip address, topic, partition, last(fetch_offset order by time, call_no)
    position
from (
    select client_id, client_ip, api, topic, partition, fetch_offset, time, call_no from parts
    union all
    select client_id, client_ip, api, coalesce(a.topic, n.name, a.topic_id), a.partition, a.fetch_offset,
        time, call_no
    from (select *, unnest(asked) a from calls) left join names n on n.uuid = a.topic_id)
where api = 'Fetch' and fetch_offset >= 0 group by all;
create or replace table commits as
select group_id "group", topic, partition, last(committed_offset order by time, call_no) committed,
    count(*) commits, max(time) last_commit
from parts where api in ('OffsetCommit', 'TxnOffsetCommit') and error_code = 0 and committed_offset >= 0
group by all;
create or replace table told as
select "group", coalesce(names.name, topic) topic, partition, committed from (
    select coalesce(g ->> 'group_id', group_id) "group",
        coalesce(t ->> 'name', t ->> 'topic', t ->> 'topic_id') topic, (p ->> 'partition_index')::int
            partition,
        first((p ->> 'committed_offset')::bigint order by call_no) committed
    from (select *, unnest(from_json(t -> 'partitions', '["json"]')) p from (
        select *, unnest(from_json(g -> 'topics', '["json"]')) t from (
            select *, unnest(coalesce(from_json(response::json -> 'groups', '["json"]'), [response::json])) g
            from calls where api = 'OffsetFetch' and response is not null)))
    where (p ->> 'committed_offset')::bigint >= 0 group by all)
left join names on names.uuid = topic;
create or replace table members as
select distinct client_id client, client_ip address, group_id "group" from calls
where group_id <> '' and error_code is not null and api_key in ({MEMBERS});
"""
LAG = """
with fetched as (
    select p.*, m."group" from positions p left join members m
        on m.client is not distinct from p.client and m.address is not distinct from p.address),
shown as (
    select "group", topic, partition, client, address, position from fetched
    union all by name select c."group", c.topic, c.partition, null client, null address, null position
    from commits c anti join fetched f using ("group", topic, partition))
select r.*, "end" high_watermark,
    greatest("end" - greatest(position, coalesce(start, 0)), 0) lag,
    coalesce(c.committed, case when position is not null then t.committed end) known,
    greatest("end" - greatest(known, coalesce(start, 0)), 0) commit_lag,
    coalesce(c.commits, 0) commits, c.last_commit
from shown r left join tails e using (topic, partition) left join starts s using (topic, partition)
    left join commits c using ("group", topic, partition) left join told t using ("group", topic, partition)
"""
BEHIND = """
select "group" group_id, null client_id, null client_ip, topic, partition, "end" high_watermark,
    committed "offset", greatest("end" - greatest(committed, coalesce(start, 0)), 0) lag, last_commit "time"
from commits left join tails using (topic, partition) left join starts using (topic, partition)
union all by name
select client client_id, address client_ip, topic, partition, "end" high_watermark, position "offset",
    greatest("end" - greatest(position, coalesce(start, 0)), 0) lag
from positions left join tails using (topic, partition) left join starts using (topic, partition)
"""
OF_MEMBERS = f"""
select group_id "group", member_id member, min(time) first_time, max(time) last_time
from calls where group_id <> '' and member_id <> '' and error_code is not null and api_key in ({MEMBERS})
group by all
"""
GENERATIONS = """
select group_id "group", generation, count(distinct member_id) members
from calls where api = 'JoinGroup' and error_code = 0 and group_id <> '' group by all
"""


def check_lag(checked: Checked, output: str, truth: Truth, shown: Sequence[Row]) -> list[Row]:
    """The table `lag`, from wherever it is shown; what is right."""
    truth.db.sql(LOGS)
    right = truth.sql(BEHIND)
    for row in right:
        row["lag"] = None if row["high_watermark"] is None else row["lag"]
        if row["time"] is None:
            del row["time"]
    checked.rows(output, shown, right, ["group_id", "client_id", "client_ip", "topic", "partition"])
    return right


def check(checked: Checked, path: str, parquet: Path, folder: Path) -> None:
    """The lag of each partition that somebody fetches or commits."""
    truth = Truth(parquet)
    truth.db.sql(LOGS)
    told = answer("groups", path)
    rows = truth.sql(LAG)
    for row in rows:
        row["committed"] = row.pop("known")
        if row["position"] is None:
            row["lag"] = None
        if row["committed"] is None or row["high_watermark"] is None:
            row["commit_lag"] = None
        if row["high_watermark"] is None:
            row["lag"] = None
    checked.rows("groups", told["lag"], rows, ["group", "topic", "partition", "client", "address"])
    checked.rows("groups", told["members"], truth.sql(OF_MEMBERS), ["group", "member"])
    printed("report", path, "-q", "--csv", str(folder / "csv"))
    check_lag(checked, "report --csv lag.csv", truth, rows_of(folder / "csv" / "lag.csv"))
    classic = [row for row in told["rebalances"] if row["kind"] == "classic"]
    checked.rows("groups", classic, truth.sql(GENERATIONS), ["group", "generation"])
