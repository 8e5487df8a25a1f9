"""A fact that is shown in two places is the same in both."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Callable
from typing import Any

import pytest

from kwsniff.config import Config
from kwsniff.count.naming import named
from kwsniff.live.livetable import LiveFindings
from kwsniff.live.screen.lastminute import ScreenStatistics
from kwsniff.live.session import Health
from kwsniff.run.offline import events
from tests.analysis.conftest import Ended, kwsniff
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


FETCHER = ("client", "address", "topic", "partition")


@pytest.mark.parametrize("name", ["stuck-consumer", "slow-reader", "java-groups", "kafka-0.10-clients"])
def test_lag_on_the_live_screen_is_that_of_groups(name: str, told: Callable[..., Any]) -> None:
    """`tests.recount` has the other places: tables of `report --csv` and `live --csv`, and metrics."""
    path = sample(name).paths[0]
    rows = told("groups", path, "-f", "json", "-q", "--top", "0")["lag"]
    committed = (row for row in rows if row["commits"] and row.get("commit_lag") is not None)
    commits = {(row["group"], row["topic"], row["partition"]): row["commit_lag"] for row in committed}
    fetched = (row for row in rows if row.get("lag") is not None)
    fetches = {tuple(row[each] for each in FETCHER): row["lag"] for row in fetched}
    assert fetches or name == "kafka-0.10-clients"
    found = LiveFindings()
    screen = ScreenStatistics(found.lag)
    for sink in (found, screen):
        for batch in named(events([path], Config()), hold=False):
            sink.add(batch)
        sink.tick(Health((), 0, int(batch["time"].cast("int64")[-1].as_py()) * 1000))
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


@pytest.mark.parametrize("name", ["java-groups", "librdkafka-produce", "kafka-python-kafka", "sasl-0.10"])
def test_a_client_runs_the_same_software_wherever_it_is_named(name: str, told: Callable[..., Any]) -> None:
    paths = sample(name).paths
    report = told("report", *paths, "--json", "-q")["client"]
    clients = told("clients", *paths, "-f", "json", "-q", "--top", "0")["clients"]
    upgrade = told("upgrade-check", *paths, "--target", "4.0", "-f", "json", "-q", "--top", "0")["clients"]
    software = {(row["client_id"] or "", row["client_ip"]): row["software"] for row in report}
    for row in (*clients, *upgrade):
        assert row.get("software") == software[row.get("client") or "", row["address"]], row


def test_a_group_rebalanced_as_often_as_its_finding_says(told: Callable[..., Any]) -> None:
    for name in ("rebalance-leave", "rebalance-timeout"):
        paths = sample(name).paths
        (finding,) = (
            e for e in told("report", *paths, "--json", "-q")["findings"] if e["code"] == "rebalances"
        )
        rows = told("groups", *paths, "-f", "json", "-q", "--top", "0")["rebalances"]
        assert finding["numbers"]["rebalances"] == len(rows)
        assert f" rebalanced {len(rows)} times " in finding["finding"]
