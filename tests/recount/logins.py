"""What `auth` answers: logins and how they ended, failures, refusals."""

from __future__ import annotations

from pathlib import Path

from tests.recount.calls import CODES
from tests.recount.checked import Checked
from tests.recount.command import answer
from tests.recount.truth import Truth

LOGINS = """
create or replace table logins as
with asked as (
    select connection, first(client_id order by call_no) filter (client_id <> '') client,
        first(client_ip order by call_no) address,
        count(*) filter (api_key in (17, 36) and status in ('ok', 'error')) answered,
        count(*) filter (api_key in (17, 36)) asked,
        bool_or(api_key not in (17, 18, 36)) used,
        last(error order by call_no) filter (api_key in (17, 36) and error_code <> 0) error
    from calls group by all)
select coalesce(e.connection, a.connection) connection, coalesce(e.client_ip, a.address) address, a.client,
    coalesce(e.security, 'unknown') security, e.sasl_mechanism mechanism, e.user,
    coalesce(e.client_bytes + e.broker_bytes, 0) bytes, e.first_time, e.last_time,
    case when a.error is not null then a.error
        when e.sasl_mechanism is null and coalesce(a.asked, 0) = 0 then null
        when a.used or a.answered > 1 then 'ok'
        when (e.fin or e.rst) and e.broker_missing_bytes = 0 and e.client_missing_bytes = 0
            then 'closed without an answer' end outcome
from (from ends where frames > 0 or security <> 'unknown') e full join asked a using (connection)
"""
SUMS = """
select user, coalesce(mechanism, 'none') mechanism, security, count(*) connections,
    count(*) filter (outcome = 'ok') ok, count(*) filter (outcome <> 'ok') failed,
    sum(bytes)::bigint bytes, min(first_time) first_time, max(last_time) last_time,
    coalesce(list_sort(list(distinct client) filter (client is not null)), []) clients,
    list_sort(list(distinct address)) addresses
from logins group by all
"""
REFUSALS = """
select l.user, c.client, c.address, c.api, coalesce(c.topic, c.name, q.group_id, q.transactional_id) about,
    c.code, count(*) count, min(c.time) first_time, max(c.time) last_time
from codes c join calls q using (call_no) left join logins l using (connection)
where c.code in (29, 30, 31, 53, 65) group by all
"""
"""Codes of authorization that failed: of topics, groups, the cluster, transactions, tokens."""


def check(checked: Checked, path: str, parquet: Path, folder: Path) -> None:
    """Logins, failures, refusals."""
    truth = Truth(parquet)
    truth.db.sql(LOGINS)
    truth.db.sql(CODES)
    told = answer("auth", path)
    checked.rows("auth", told["logins"], truth.sql(SUMS), ["user", "mechanism", "security"])
    failed = truth.sql("select connection, user, mechanism, client, address, outcome error from logins where "
                       "outcome <> 'ok'")  # fmt: skip
    checked.rows("auth", told["failures"], failed, ["connection"])
    names = {row["error_code"]: row["error"] for row in truth.sql("select error_code, error from calls")}
    refused = [row | {"error": names[row.pop("code")]} for row in truth.sql(REFUSALS)]
    checked.rows("auth", told["denied"], refused, ["user", "client", "address", "api", "about", "error"])
    hidden = truth.one("select count(*) n from logins where security = 'tls'")["n"]
    note = next((text for text in told.get("notes", ()) if "encrypted" in text), "0")
    checked.equal("auth", "encrypted", note.split()[0].replace(",", ""), str(hidden))
