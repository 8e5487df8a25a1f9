"""A fact that is shown in two places is the same in both."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pyarrow import csv

from kwsniff.config import Config
from kwsniff.count.naming import named
from kwsniff.live.livetable import IntervalCsv, LiveFindings
from kwsniff.live.metrics import Metrics
from kwsniff.live.screen.lastminute import ScreenStatistics
from kwsniff.live.session import Health
from kwsniff.run.offline import events
from tests.answers.conftest import Ended, kwsniff
from tests.recount.command import page
from tests.samples import sample

__all__ = ["kwsniff"]


@pytest.fixture
def told(kwsniff: Callable[..., Ended]) -> Callable[..., Any]:
    def invoke(*words: str) -> Any:
        ended = kwsniff(*words)
        assert ended.code in (0, 1), ended.err
        return json.loads(ended.out)

    return invoke


@pytest.mark.parametrize("name", ["stuck-consumer", "rebalance-timeout", "java-groups"])
def test_the_lag_of_a_finding_is_that_of_the_command_it_suggests(name: str, told: Callable[..., Any]) -> None:
    path = sample(name).paths[0]
    behind = [
        each
        for each in told("report", path, "--json", "-q")["findings"]
        if each["code"] == "consumer_falls_behind" and each["severity"] == "warning"
    ]
    assert bool(behind) == (name == "stuck-consumer")
    for each in behind:
        words = [path if word == "FILE" else word for word in shlex.split(each["command"])[1:]]
        rows = told(*words, "-f", "json", "-q")["lag"]
        key = "commit_lag" if "committed" in each["numbers"] else "lag"
        assert each["numbers"]["lag_last"] in {row[key] for row in rows}
        assert f"{max(row[key] for row in rows):,} records" in each["finding"]


@pytest.mark.parametrize("name", ["stuck-consumer", "slow-reader", "java-groups", "kafka-0.10-clients"])
def test_lag_is_the_same_wherever_it_is_shown(
    name: str, told: Callable[..., Any], kwsniff: Callable[..., Ended], tmp_path: Path
) -> None:
    """`groups`, the tables of `report --csv` and of `live --csv`, metrics, and the live screen."""
    path = sample(name).paths[0]
    rows = told("groups", path, "-f", "json", "-q", "--top", "0")["lag"]
    commits = {(row["group"], row["topic"], row["partition"]): row.get("commit_lag") for row in rows
               if row["commits"] and row.get("commit_lag") is not None}  # fmt: skip
    fetches = {(row["client"], row["address"], row["topic"], row["partition"]): row.get("lag") for row in rows
               if row.get("lag") is not None}  # fmt: skip
    assert fetches or name == "kafka-0.10-clients"
    kwsniff("report", path, "-q", "--csv", str(tmp_path / "report"))
    found = LiveFindings()
    tables = IntervalCsv(tmp_path / "live", findings=found)
    metrics = Metrics("127.0.0.1:0", lag=found.lag)
    screen = ScreenStatistics(found.lag)
    for sink in (found, tables, metrics, screen):
        for batch in named(events([path], Config()), hold=False):
            sink.add(batch)
        sink.tick(Health((), 0, int(batch["time"].cast("int64")[-1].as_py()) * 1000))
    tables.close()
    metrics.close()
    for place in ("report", "live"):
        shown = csv.read_csv(tmp_path / place / "lag.csv").to_pylist()
        told_lag = [row for row in shown if row["lag"] not in ("", None)]
        assert {(row["group_id"], row["topic"], row["partition"]): row["lag"] for row in told_lag
                if row["group_id"]} == commits  # fmt: skip
        assert {(row["client_id"], row["client_ip"], row["topic"], row["partition"]): row["lag"]
                for row in told_lag if not row["group_id"]} == fetches  # fmt: skip
    for who, right in (("group", commits), ("consumer", fetches)):
        (family,) = (each for each in metrics.collect() if each.name == f"kwsniff_{who}_lag_records")
        series = {tuple(each.labels.values()): each.value for each in family.samples}
        assert series == {tuple(map(str, key)): lag for key, lag in right.items()}
    groups = screen.snapshot().groups or {}
    for by, right in (("group", commits), ("client", fetches)):
        for key, lag in zip(groups[by].keys, groups[by].lag.tolist(), strict=True):
            own = [lag for of, lag in right.items() if key is not None and of[0] == key[0]]
            assert math.isnan(lag) if not own else lag == sum(own), (by, key)


@pytest.mark.parametrize(
    "name", ["kafka-0.8", "kafka-0.10-clients", "librdkafka-groups", "midstream", "sasl-0.10"]
)
def test_who_would_not_work_with_kafka_4_is_told_alike(name: str, told: Callable[..., Any]) -> None:
    paths = sample(name).paths
    (finding,) = (e for e in told("report", *paths, "--json", "-q")["findings"] if e["code"] == "old_client")
    clients = told("upgrade-check", *paths, "--target", "4.0", "-f", "json", "-q")["clients"]
    breaking = {
        f"{row.get('client', '')}@{row['address']}".lstrip("@")
        for row in clients
        if row["verdict"] == "breaks"
    }
    if finding["severity"] == "notice":
        assert finding["numbers"]["clients"] == len(breaking)
        assert all(each in finding["finding"] or len(breaking) > 3 for each in breaking)
    else:
        assert not breaking


ALL = ("librdkafka-groups", "java-groups", "librdkafka-errors", "kafka-0.8", "lossy-network", "throttled")


def summed(rows: list[dict[str, Any]], name: str, *keys: str) -> dict[tuple[Any, ...], float]:
    """Sums of a column by others, without those that are nothing."""
    found: dict[tuple[Any, ...], float] = {}
    for row in rows:
        key = tuple(row.get(each) or "" for each in keys)
        found[key] = found.get(key, 0) + (row.get(name) or 0)
    return {key: value for key, value in found.items() if value}


@pytest.mark.parametrize("name", [*ALL, "sasl", "midstream"])
def test_calls_errors_and_waiting_are_alike_in_every_table(
    name: str, told: Callable[..., Any], tmp_path: Path
) -> None:
    """The summary, the tables by API, client, broker and error, `clients`, `slow`, and the page's
    timeline."""
    paths = sample(name).paths
    report = told("report", *paths, "--json", "-q")
    clients = told("clients", *paths, "-f", "json", "-q", "--top", "0")["clients"]
    for column in ("calls", "errors"):
        for table in ("api", "client", "broker"):
            assert sum(row[column] for row in report[table]) == report["summary"][column], (table, column)
        assert sum(row[column] for row in clients) == report["summary"][column], column
        mine = summed(report["client"], column, "client_id", "client_ip")
        assert summed(clients, column, "client", "address") == mine
    assert sum(row["calls"] for row in report["error"]) == report["summary"]["errors"]
    for column in ("unanswered", "waited_calls", "throttle_ms", "orphan", "truncated"):
        sums = {sum(row[column] for row in report[table]) for table in ("api", "client", "broker")}
        assert len(sums) == 1, column
    sent = summed(report["client"], "request_bytes", "client_id", "client_ip")
    assert summed(clients, "sent_bytes", "client", "address") == sent
    took = summed(told("slow", *paths, "-f", "json", "-q", "--top", "0")["clients"], "total_us", "api")
    assert took == pytest.approx(summed(report["api"], "duration_sum_us", "api"))
    timeline = page(paths[0], tmp_path)["timeline"]
    for column in ("calls", "errors"):
        assert sum(timeline[column]) == report["summary"][column]
    assert sum(timeline["unanswered"]) == sum(row["unanswered"] for row in report["api"])


@pytest.mark.parametrize("name", ["librdkafka-errors", "mock-errors", "java-admin", "sasl", "stale-leader"])
def test_a_finding_counts_the_answers_that_the_table_of_errors_has(
    name: str, told: Callable[..., Any], tmp_path: Path
) -> None:
    paths = sample(name).paths
    report = told("report", *paths, "--json", "-q")
    calls = summed(report["error"], "calls", "error", "api")
    shown = {(row[0], row[1]): row[2] for row in page(paths[0], tmp_path)["tables"]["errors"]["rows"]}
    assert shown == calls
    findings = [each for each in report["findings"] if each["code"] == "errors" and each["numbers"]]
    assert findings or name not in ("librdkafka-errors", "java-admin")
    for each in findings:
        right = sum(n for (error, api), n in calls.items() if error == each["subject"]
                    and (error, api) != ("UNSUPPORTED_VERSION", "ApiVersions"))  # fmt: skip
        assert each["numbers"]["answers"] == right
        assert f" in {right:,} answer" in each["finding"]


@pytest.mark.parametrize("name", ["kafka-0.10", "kafka-0.8", "kafkajs-tansu", "lossy-network"])
def test_what_is_said_of_requests_and_packets_is_what_the_events_have(
    name: str, told: Callable[..., Any]
) -> None:
    paths = sample(name).paths
    report = told("report", *paths, "--json", "-q")
    rows = sample(name).events()
    for each in report["findings"]:
        if each["code"] == "unanswered" and each["numbers"]:
            broker = next(row for row in report["broker"] if row["broker"] == each["subject"])
            assert each["numbers"]["calls"] <= broker["unanswered"]
            assert f" did not answer {each['numbers']['calls']:,} " in each["finding"]
        if each["code"] == "retransmissions" and each["numbers"]:
            side = "client" if "client_retransmissions" in each["command"] else "broker"
            again = sum(row[f"{side}_retransmissions"] or 0 for row in rows if row["event"] == "connection"
                        and (row["client_id"] or "") in each["finding"])  # fmt: skip
            assert each["numbers"]["retransmissions"] == again
            assert f" sent {again} packets again " in each["finding"]


@pytest.mark.parametrize("name", ["java-groups", "librdkafka-produce", "kafka-python-kafka", "sasl-0.10"])
def test_a_client_runs_the_same_software_wherever_it_is_named(name: str, told: Callable[..., Any]) -> None:
    paths = sample(name).paths
    report = told("report", *paths, "--json", "-q")["client"]
    clients = told("clients", *paths, "-f", "json", "-q", "--top", "0")["clients"]
    upgrade = told("upgrade-check", *paths, "--target", "4.0", "-f", "json", "-q", "--top", "0")["clients"]
    software = {(row["client_id"] or "", row["client_ip"]): row["software"] for row in report}
    for row in (*clients, *upgrade):
        assert row.get("software") == software[row.get("client") or "", row["address"]], row


@pytest.mark.parametrize(
    "name", ["librdkafka-groups", "java-groups", "rebalance-leave", "java-streams", "stuck-consumer"]
)
def test_what_a_group_did_is_on_the_page_as_groups_has_it(
    name: str, told: Callable[..., Any], tmp_path: Path
) -> None:
    paths = sample(name).paths
    groups = told("groups", *paths, "-f", "json", "-q", "--top", "0")
    tables = page(paths[0], tmp_path)["tables"]
    shown = [(row[1], row[3], row[6]) for row in tables["rebalances"]["rows"]]
    assert shown == [(row["group"], row.get("generation"), row["trigger"]) for row in groups["rebalances"]]

    def micros(text: str) -> int:
        return round(datetime.fromisoformat(text).timestamp() * 1e6)

    seen = sorted((row[0], row[1], row[6], row[7]) for row in tables["members"]["rows"])
    assert seen == sorted(
        (row["group"], row["client"], micros(row["first_time"]), micros(row["last_time"]))
        for row in groups["members"]
    )


def test_a_group_rebalanced_as_often_as_its_finding_says(told: Callable[..., Any]) -> None:
    for name in ("rebalance-leave", "rebalance-timeout"):
        paths = sample(name).paths
        (finding,) = (
            e for e in told("report", *paths, "--json", "-q")["findings"] if e["code"] == "rebalances"
        )
        rows = told("groups", *paths, "-f", "json", "-q", "--top", "0")["rebalances"]
        assert finding["numbers"]["rebalances"] == len(rows)
        assert f" rebalanced {len(rows)} times " in finding["finding"]
