"""What is left of a capture when part of it is missing, doubled, out of order or wrong."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from kwsniff.config import Config
from kwsniff.rows.events import ANOMALIES, STATUSES
from kwsniff.run.offline import events
from tests.damage.mutants import MUTATIONS, packets, write
from tests.samples import Row, sample

SAMPLES = ["librdkafka-groups", "kafka-0.10", "java-groups", "mock-produce", "large-records"]
HARMLESS = {"10 % of packets duplicated", "10 % of packets swapped"}
HEADERS_KEPT = {"cut to 128 bytes", "cut to 256 bytes"}

Call = tuple[int, int, int | None, int | None, int]


def rows_of(path: str | Path, ports: tuple[int, ...] = Config().ports) -> list[Row]:
    config = Config(ports=ports)
    return [row for batch in events([str(path)], config) for row in batch.to_pylist()]


def requests(rows: list[Row]) -> Counter[Call]:
    """Requests by what identifies them: client and broker port, API, version, correlation id."""
    return Counter(
        (row["client_port"], row["broker_port"], row["api_key"], row["api_version"], row["correlation_id"])
        for row in rows
        if row["event"] == "call" and row["status"] != "orphan"
    )


@pytest.mark.one_of(3)
@pytest.mark.parametrize("mutation", MUTATIONS)
@pytest.mark.parametrize("name", SAMPLES)
def test_a_mutant_is_read_to_its_end_and_invents_nothing(name: str, mutation: str, tmp_path: Path) -> None:
    (original,) = sample(name).paths
    link, whole = packets(original)
    mutant = MUTATIONS[mutation](whole, random.Random(f"{name}, {mutation}"))
    before = requests(rows_of(original))
    # Bodies that were cut prove nothing: of what they are the ports have to tell.
    ports = tuple({call[1] for call in before}) if mutation in HEADERS_KEPT else Config().ports
    rows = rows_of(write(tmp_path / "mutant.pcap", link, mutant), ports)
    after = requests(rows)
    assert {row["status"] for row in rows if row["event"] == "call"} <= set(STATUSES)
    assert {row["code"] for row in rows if row["event"] == "anomaly"} <= set(ANOMALIES)
    if "bytes wrong" not in mutation:
        assert after <= before
    if mutation in HARMLESS | HEADERS_KEPT:
        assert after == before


@pytest.mark.parametrize("name", SAMPLES)
def test_doubled_and_swapped_packets_cost_no_answer(name: str, tmp_path: Path) -> None:
    (original,) = sample(name).paths
    link, whole = packets(original)
    before = Counter(row["status"] for row in rows_of(original) if row["event"] == "call")
    for mutation in HARMLESS:
        mutant = MUTATIONS[mutation](whole, random.Random(f"{name}, {mutation}"))
        rows = rows_of(write(tmp_path / "mutant.pcap", link, mutant))
        assert Counter(row["status"] for row in rows if row["event"] == "call") == before


@pytest.mark.parametrize(("share", "least"), [(0.01, 0.95), (0.05, 0.9), (0.2, 0.7)])
def test_a_lost_packet_costs_little_more_than_what_it_carried(
    share: float, least: float, tmp_path: Path
) -> None:
    kept = there = 0
    mutation = MUTATIONS[f"{share:.0%}".replace("%", " % of packets dropped")]
    for name in SAMPLES:
        (original,) = sample(name).paths
        link, whole = packets(original)
        mutant = write(tmp_path / "mutant.pcap", link, mutation(whole, random.Random(name)))
        kept += requests(rows_of(mutant)).total()
        there += requests(rows_of(original)).total()
    assert kept / there > least
