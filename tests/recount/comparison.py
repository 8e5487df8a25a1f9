"""What `compare` answers: latencies, errors and clients of two halves of one input."""

from __future__ import annotations

from pathlib import Path

from tests.recount.checked import Checked
from tests.recount.command import answer
from tests.recount.truth import Truth

LATENCY = """
create or replace table {side} as select *, coalesce(api, '?') name, coalesce(nullif(client_id, ''),
    client_ip, '?') who
    from calls
"""
PROFILE = """
select name api, count(*) calls_{side},
    quantile_cont(latency_us, 0.5) filter (not waits) p50_{side}_us,
    case when count(latency_us) filter (not waits) >= 100
        then quantile_cont(latency_us, 0.99) filter (not waits) end p99_{side}_us
from {side} group by all
"""
ERRORS = """
select error, coalesce(x.name, y.name) api, coalesce(x.n, 0) count_a, coalesce(y.n, 0) count_b,
    coalesce(x.n, 0) / p.calls_a share_a, coalesce(y.n, 0) / q.calls_b share_b,
    case when x.n is null then 'new' when y.n is null then 'gone' else 'in both' end verdict
from (select error, name, count(*) n from a where error_code <> 0 group by all) x
full join (select error, name, count(*) n from b where error_code <> 0 group by all) y using (error, name)
left join profile_a p on p.api = coalesce(x.name, y.name)
left join profile_b q on q.api = coalesce(x.name, y.name)
"""
LATENCIES = """
select coalesce(a.api, b.api) api, coalesce(calls_a, 0) calls_a, coalesce(calls_b, 0) calls_b,
    p50_a_us, p50_b_us, p99_a_us, p99_b_us, p50_b_us / nullif(p50_a_us, 0) change, effect, fewer
from profile_a a full join profile_b b using (api) left join (
    select a.name api, avg(sign(b.latency_us - a.latency_us)) effect,
        least(count(distinct a.call_no), count(distinct b.call_no)) fewer
    from a join b using (name)
    where not a.waits and not b.waits and a.latency_us is not null and b.latency_us is not null
    group by all) e on e.api = coalesce(a.api, b.api)
"""
SIZES = ((0.474, "large"), (0.33, "medium"), (0.147, "small"))
CLIENTS = """
select coalesce(x.who, y.who) client, coalesce(x.n, 0) calls_a, coalesce(y.n, 0) calls_b,
    case when x.n is null then 'came' else 'went' end verdict
from (select who, count(*) n from a group by all) x full join (select who, count(*) n from b group by all) y
    using (who) where x.n is null or y.n is null
"""


def verdict(effect: float | None, fewer: int) -> str | None:
    """What docs say of an effect, and of how many calls it is."""
    if effect is None:
        return None
    if fewer < 20:
        return f"only {fewer} call{'' if fewer == 1 else 's'}"
    size = next((name for least, name in SIZES if abs(effect) >= least), None)
    return f"{'slower' if effect > 0 else 'faster'}: {size}" if size else "same"


def check(checked: Checked, path: str, parquet: Path, folder: Path) -> None:
    """The first half of the calls beside all of them, as two inputs; and both halves, as windows of one."""
    truth = Truth(parquet)
    middle = truth.one("select quantile_disc(time, 0.5) middle from calls")["middle"]
    if middle is None:
        return
    half = folder / "half.parquet"
    truth.db.sql(f"copy (select * from events where time < '{middle}' or event <> 'call') to '{half}'")
    first = f"time < '{middle}'"
    compare(checked, "compare", truth, (first, "true"), (str(half), str(parquet)))
    windows = (path, "--a", f"/{middle.isoformat()}", "--b", f"{middle.isoformat()}/")
    compare(checked, "compare --a --b", truth, (first, f"time >= '{middle}'"), windows)


def compare(
    checked: Checked, output: str, truth: Truth, sides: tuple[str, str], words: tuple[str, ...]
) -> None:
    """What it answers to `words`, beside what is right of the calls of both sides."""
    told = answer("compare", *words)
    for side, condition in zip("ab", sides, strict=True):
        truth.choose(condition)
        truth.db.sql(LATENCY.format(side=side))
        truth.db.sql(f"create or replace table profile_{side} as {PROFILE.format(side=side)}")
    rows = truth.sql(LATENCIES)
    for row in rows:
        row["verdict"] = verdict(row["effect"], row.pop("fewer"))
    checked.rows(output, told["latency"], rows, ["api"])
    checked.rows(output, told["errors"], truth.sql(ERRORS), ["error", "api"])
    checked.rows(output, told["clients"], truth.sql(CLIENTS), ["client"])
