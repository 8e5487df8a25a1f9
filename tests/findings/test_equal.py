"""A fact that is shown in two places is the same in both."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from typing import Any

import pytest

from tests.answers.conftest import Ended, kwsniff
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
        assert f"{max(row[key] for row in rows):,} behind" in each["finding"]


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
