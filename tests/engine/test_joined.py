"""A capture that begins in the middle: the ends have their right roles, and from the first whole request on
nothing is missing."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from kwsniff.config import Config
from kwsniff.run.offline import events
from tests.damage.mutants import Packet, packets, write
from tests.samples import CAPTURES, Row
from tests.strength import ALL

NAMES = (
    "ipv6.pcap",
    "java-admin.pcapng",
    "kafkajs-kafka.pcap.zst",
    "kafka-python-tansu.pcap",
    "librdkafka-admin.pcapng",
    "librdkafka-errors.pcap",
    "librdkafka-transactions.pcap",
    "mock-errors.pcap",
    "mock-produce.pcapng",
    "sasl-0.10.pcap",
    "throttled.pcapng",
)
SHARE = 1 if ALL else 40
"""One of so many packets is a beginning, in every sample several; with everything, each."""
LEAST = 5


@cache
def recorded(name: str) -> tuple[int, list[Packet]]:
    return packets(str(CAPTURES / name))


def calls(path: Path | str, ports: tuple[int, ...]) -> list[Row]:
    batches = events([str(path)], Config(ports=ports))
    return [row for batch in batches for row in batch.to_pylist() if row["event"] == "call"]


@cache
def whole(name: str) -> list[Row]:
    return calls(str(CAPTURES / name), Config().ports)


def beginnings(name: str) -> list[int]:
    """Beginnings spread over a sample."""
    count = len(recorded(name)[1])
    chosen = min(max(count // SHARE, LEAST), count - 1)
    return [1 + (count - 1) * part // chosen for part in range(chosen)]


def ports_of(name: str, named: str) -> tuple[int, ...]:
    """The ports of a sample that are named."""
    clients = {row["client_port"] for row in whole(name)}
    return {
        "brokers": Config().ports,
        "none": (),
        "clients": tuple(clients),
        "both": (*Config().ports, *clients),
    }[named]


@pytest.mark.one_of(4)
@pytest.mark.parametrize("named", ["brokers", "none", "clients", "both"])
@pytest.mark.parametrize("name", NAMES)
def test_from_the_first_whole_request_on_nothing_is_missing(name: str, named: str, tmp_path: Path) -> None:
    link, everything = recorded(name)
    ports, known = ports_of(name, named), named in ("brokers", "both")
    brokers = {(row["broker_ip"], row["broker_port"]) for row in whole(name)}
    for missing in beginnings(name):
        path = write(tmp_path / "late.pcap", link, everything[missing:])
        late = calls(path, ports)
        assert {(row["broker_ip"], row["broker_port"]) for row in late} <= brokers, missing
        wanted = Counter(placed(row, missing) for row in whole(name) if provable(row, missing, known))
        assert wanted - Counter(placed(row, 0) for row in late) == Counter(), missing


def provable(row: Row, missing: int, known: bool) -> bool:
    """Whether a call is after the beginning, and of what a connection shows by itself: on a port that nobody
    named, as those of mock clusters are, an answer."""
    sent = row["request_packet"] is not None and row["request_packet"] > missing + 3
    named = known and row["broker_port"] in Config().ports
    return bool(sent and row["client_id"] and (named or row["response_packet"]))


def placed(row: Row, missing: int) -> tuple[object, ...]:
    seen = [place and place - missing for place in (row["request_packet"], row["response_packet"])]
    return (*seen, row["api"], row["api_version"], row["correlation_id"], row["client_port"])
