"""What `audit` and `upgrade-check` answer: how many changes of what, and the calls of each version."""

from __future__ import annotations

from pathlib import Path

from tests.recount.checked import Checked
from tests.recount.command import answer
from tests.recount.truth import Truth

VERSIONS = """
select client_id client, client_ip address, api, api_version version, count(*) calls
from calls where api_version is not null and (latency_us is not null or status = 'no_reply_expected')
group by all
"""
APIS = """
select client_id client, client_ip address, count(distinct api_key) filter (api_key not in (18, 71, 72)) apis
from calls where api_version is not null and (latency_us is not null or status = 'no_reply_expected')
group by all
"""


def check(checked: Checked, path: str, parquet: Path, folder: Path) -> None:
    """Both answers."""
    truth = Truth(parquet)
    check_audit(checked, truth, path)
    check_upgrade(checked, truth, path)


def check_audit(checked: Checked, truth: Truth, path: str) -> None:
    """How many lines each call has that the columns give resources of, and that no other call has one."""
    changes = answer("audit", path)["changes"]
    shown: dict[tuple[str, int], list[str]] = {}
    for row in changes:
        shown.setdefault((row["api"], row["packet"]), []).append(row["result"])
    rows = truth.sql("select api, request_packet packet, resources, status, error, error_code from calls")
    for row in rows:
        told = shown.get((row["api"], row["packet"]))
        if told is None or not row["resources"]:
            continue
        where = f"{row['api']} {row['packet']}"
        codes = {(each["type"], each["name"]): each["error_code"] for each in row["resources"]}
        checked.equal("audit", f"{where} lines", len(told), len(codes))
        if row["status"] in ("ok", "error"):
            whole = bool(row["error_code"]) and not any(codes.values())
            refused = sum(bool(code) or whole for code in codes.values())
            checked.equal("audit", f"{where} refused", sum(result != "ok" for result in told), refused)


def check_upgrade(checked: Checked, truth: Truth, path: str) -> None:
    """Calls of each version that a target does not serve, and how many APIs each client uses."""
    told = answer("upgrade-check", path, "--target", "4.0")
    keys = ["client", "address", "api", "version"]
    right = {tuple(row[key] for key in keys): row["calls"] for row in truth.sql(VERSIONS)}
    for row in told["apis"]:
        key = tuple(row.get(key) for key in keys)
        checked.equal("upgrade-check", f"{key} calls", row["calls"], right.get(key))
    counts = {(row["client"], row["address"]): row["apis"] for row in truth.sql(APIS)}
    for row in told["clients"]:
        who = row.get("client"), row["address"]
        checked.equal("upgrade-check", f"{who} APIs", row["apis"], counts.get(who))
