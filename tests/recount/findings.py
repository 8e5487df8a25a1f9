"""The figures that findings rest on, and that stand in their sentences."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from tests.recount.checked import Checked, Row
from tests.recount.command import printed
from tests.recount.truth import PEER, Truth

CLIENT = "coalesce(nullif(client_id, '') || '@', '') || client_ip"
SPAN = "date_diff('microsecond', min(time), max(time)) / 1e6 span_s"
BROKER = PEER.format("broker_ip", "broker_port")
RIGHT = {
    "errors": "select error subject, error_code, count(*) answers from calls where error_code <> 0 "
    "and not (error_code = 35 and api = 'ApiVersions') group by all",
    "not_authorized": f"select {CLIENT} subject, user, error_code, count(*) answers from calls "
    "where error_code <> 0 group by all",
    "quota_exceeded": f"select {CLIENT} subject, count(*) answers from calls where error_code = 89 "
    f"group by all",
    "authentication_failed": f"select {CLIENT} subject, error_code, count(*) attempts from calls "
    "where error_code <> 0 group by all",
    "throttled": f"select {CLIENT} subject, count(*) filter (throttle_ms > 0) answers, "
    "sum(throttle_ms)::double throttle_ms, max(throttle_ms) throttle_max_ms, "
    "sum(throttled_us) throttled_us from calls group by all",
    "stale_leader": f"select {CLIENT} subject, count(*) answers, {SPAN} from calls "
    "where error_code in (6, 9, 74, 75) group by all",
    "metadata_storm": f"select {CLIENT} subject, api, count(*) calls, {SPAN}, "
    "coalesce(sum(response_bytes), 0)::double response_bytes from calls "
    "where api_key in (3, 10, 60, 75) group by all",
    "api_versions_storm": f"select {CLIENT} subject, api, count(*) calls, {SPAN}, "
    "coalesce(sum(response_bytes), 0)::double response_bytes from calls where api_key = 18 group by all",
    "connection_churn": f"select {CLIENT} subject, count(*) connections, "
    "date_diff('microsecond', min(first_time), max(first_time)) / 1e6 span_s, "
    "avg(date_diff('microsecond', first_time, last_time)) / 1e6 life_s from ends "
    "where syn and broker_bytes > 0 and date_diff('microsecond', first_time, last_time) < 10e6 group by all",
    "retransmissions": f"select {CLIENT} subject, {BROKER} other, "
    "sum(client_retransmissions)::double retransmissions, "
    "sum(client_retransmissions) / sum(client_packets) ratio from ends group by all "
    f"union all select {BROKER}, {CLIENT}, sum(broker_retransmissions)::double, "
    "sum(broker_retransmissions) / sum(broker_packets) from ends group by all",
    "zero_windows": f"select {CLIENT} subject, sum(client_zero_windows)::double zero_windows, "
    "count(*) filter (client_zero_windows > 0) connections from ends group by all "
    f"union all select {BROKER}, sum(broker_zero_windows)::double, count(*) filter (broker_zero_windows > 0) "
    "from ends group by all",
    "password_in_clear": "select sasl_mechanism subject, broker_port, count(*) connections from ends "
    "where security = 'plaintext' and sasl_mechanism in ('PLAIN', 'OAUTHBEARER') group by all",
    "slow_broker": "select broker subject, api, count(*) calls, max(broker_least_us) max_us from calls "
    "where broker_least_us is not null and coalesce(error_code, 0) <> 58 group by all",
    "slow_queue": f"select {CLIENT} subject, broker, count(*) filter (queued_us > 0) queued_calls, "
    "round(sum(queued_us) filter (queued_us > 0)) queued_us from calls where queued_us is not null "
    "group by all",
    "hot_partition": "select p.topic || '[' || partition || ']' subject, sum(bytes)::double bytes, "
    "any_value(total)::double topic_bytes, any_value(n) partitions, sum(bytes) / any_value(total) "
    "share_ratio "
    "from parts p join (select topic, sum(bytes) total, count(distinct partition) filter (bytes > 0) n "
    "from parts where api = 'Produce' group by all) t using (topic) where api = 'Produce' group by all",
    "uncompressed": f"select {CLIENT} subject, topic, sum(bytes)::double record_bytes, "
    "(sum(bytes) filter (codec = 'none'))::double uncompressed_bytes from parts where api = "
    "'Produce' group by all",
    "tiny_batches": f"select {CLIENT} subject, topic, count(*) batches, avg(records) records_per_batch, "
    "avg(bytes) bytes_per_batch from parts where api = 'Produce' and bytes > 0 group by all",
    "unanswered": "select broker subject, unanswered_because, closed_by, count(*) calls from calls "
    "where status = 'unanswered' group by all",
    "plaintext_on_tls": f"select {BROKER} subject, count(*) connections from ends "
    "where tls_alert_by = 'broker' and security <> 'tls' group by all",
}
"""What each rule counts: the rows among which a finding's figures are one, by its subject."""
LOOSE = {"unanswered"}
"""Rules that leave some of the rows out: there may be fewer."""


def check(checked: Checked, path: str, parquet: Path, folder: Path) -> None:
    """Each finding of a report."""
    truth = Truth(parquet)
    for finding in json.loads(printed("report", path, "--json", "-q"))["findings"]:
        code = finding["code"]
        if code in RIGHT and finding["severity"] not in ("ok", "not_shown"):
            where = f"{code} {finding['subject']}"
            rows = [row for row in truth.sql(RIGHT[code]) if row["subject"] == finding["subject"]]
            checked.equal("findings", f"{where} there is such", bool(rows), True)
            for name, value, right in figures(finding["numbers"], rows):
                if code in LOOSE:
                    checked.equal("findings", f"{where} {name} {value}", value <= sum(right), True)
                else:
                    checked.equal("findings", f"{where} {name}", value, nearest(value, right))


def figures(numbers: Row, rows: list[Row]) -> Iterator[tuple[str, float, list[float]]]:
    """Each figure with what it may be: of the rows that agree with the others of the finding."""
    keys = [
        name for name in ("error_code", "calls", "answers") if name in numbers and rows and name in rows[0]
    ]
    agreeing = [row for row in rows if all(row[name] == numbers[name] for name in keys)] or rows
    for name, value in numbers.items():
        if agreeing and name in agreeing[0]:
            yield name, value, [float(row[name] or 0) for row in agreeing]


def nearest(value: float, right: list[float]) -> float:
    """The one that it should be."""
    return min(right, key=lambda each: abs(each - value))
