"""What `clients` answers: who uses which topic, each client's calls, and how it writes and reads."""

from __future__ import annotations

from pathlib import Path

from tests.recount.checked import Checked
from tests.recount.command import answer
from tests.recount.groups import MEMBERS
from tests.recount.truth import Truth

REPLICA = r"(broker-\d+-fetcher-\d+|ReplicaFetcherThread-\d+-\d+)$"
WHO = "client_id client, client_ip address"
DOES = f"""case when api = 'Produce' then 'produces' when api in ('Fetch', 'ShareFetch') then
    case when api = 'Fetch' and regexp_matches(client_id, '^{REPLICA}') then 'replicates' else 'consumes'
        end end"""
USES = f"""
select {WHO}, {DOES} does, topic, count(distinct partition) partitions, sum(records)::bigint records,
    coalesce(sum(bytes), 0)::bigint record_bytes, min(time) first_time, max(time) last_time
from parts where topic is not null and api in ('Produce', 'Fetch', 'ShareFetch') group by all
"""
CLIENTS = f"""
select {WHO}, count(*) calls, count(*) filter (error_code <> 0) errors,
    coalesce(sum(request_bytes), 0)::bigint sent_bytes, coalesce(sum(response_bytes), 0)::bigint
        received_bytes,
    count(distinct connection) connections, min(time) first_time, max(time) last_time,
    list_sort(list(distinct broker_ip)) brokers, list_sort(list(distinct broker_port::text)) ports,
    coalesce(list_sort(list(distinct group_id) filter (group_id is not null
        and error_code is not null and api_key in ({MEMBERS}))), []) groups
from calls group by all
"""
SETTINGS = f"""
with parted as (
    select {WHO}, round_even(sum(bytes) / count(*), 0)::bigint batch_bytes,
        coalesce(list_sort(list(distinct codec) filter (codec is not null)), []) codecs
    from parts where api = 'Produce' and topic is not null group by all),
    wrote as (
    select {WHO}, coalesce(list_sort(list(distinct acks) filter (acks is not null)), []) acks,
        bool_or(coalesce(transactional_id, '') <> '') transactional, bool_or(api = 'InitProducerId')
            idempotent
    from calls group by all)
select w.*, p.batch_bytes, p.codecs from wrote w left join parted p
    on w.client is not distinct from p.client and w.address is not distinct from p.address
"""
ACKS = {-1: "all", 0: "0", 1: "1"}


def check(checked: Checked, path: str, parquet: Path, folder: Path) -> None:
    """Uses, clients, settings."""
    truth = Truth(parquet)
    told = answer("clients", path)
    checked.rows("clients", told["uses"], truth.sql(USES), ["client", "address", "does", "topic"])
    checked.rows("clients", told["clients"], truth.sql(CLIENTS), ["client", "address"])
    right = {(row["client"], row["address"]): row for row in truth.sql(SETTINGS)}
    for row in told["settings"]:
        mine = right[row.get("client"), row.get("address")]
        if mine["transactional"]:
            producer = "transactional"
        elif mine["idempotent"]:
            producer = "idempotent"
        else:
            producer = "plain" if mine["batch_bytes"] is not None and {0, 1} & set(mine["acks"]) else None
        for name, value in (("acks", [ACKS[each] for each in mine["acks"]]), ("codecs", mine["codecs"] or []),
                            ("batch_bytes", mine["batch_bytes"]), ("producer", producer)):  # fmt: skip
            checked.equal("clients", f"settings {row.get('client')} {name}", row.get(name), value)
