"""What is not Kafka gives no calls, on whatever port; Kafka on an odd port is found."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kwsniff.config import Config
from kwsniff.run.offline import events
from tests.damage.mutants import packets, write
from tests.foreign import CAPTURES as FOREIGN
from tests.foreign import Mutation, beheaded, moved, one_way, unchanged
from tests.samples import CAPTURES, Row

NAMES = sorted(path.name.removesuffix(".pcap.zst") for path in FOREIGN.glob("*.pcap.zst"))
PROTOCOLS = 100
"""As many as the recorder knows, and a few: what it can't record is left out of the folder."""


def rows(path: Path, **choices: object) -> list[Row]:
    return [row for batch in events([str(path)], Config(**choices)) for row in batch.to_pylist()]  # type: ignore[arg-type]


def altered(name: str, folder: Path, *mutations: Mutation) -> Path:
    """A protocol's capture after these changes."""
    link, whole = packets(str(FOREIGN / f"{name}.pcap.zst"))
    for mutation in mutations:
        whole = mutation(whole)
    return write(folder / f"{name}.pcap", link, whole)


@pytest.mark.one_of(4)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("port", [None, 9092])
@pytest.mark.parametrize("mutation", [unchanged, beheaded, one_way])
def test_other_protocols_give_no_calls(
    name: str, port: int | None, mutation: Mutation, tmp_path: Path
) -> None:
    path = altered(name, tmp_path, moved(port) if port else unchanged, mutation)
    assert [row for row in rows(path) if row["event"] == "call"] == []


def test_many_protocols_are_tried() -> None:
    assert len(NAMES) >= PROTOCOLS


def test_the_recorder_knows_what_is_tried() -> None:
    sources = (FOREIGN.parent / "exchanges").glob("*.py")
    told = "".join(source.read_text() for source in sources)
    known = re.findall(r'(?:@exchange|@made|served)\(\s*"([^"]+)"', told)
    assert set(NAMES) <= set(known)


def test_tls_on_a_kafka_port_is_counted_as_such(tmp_path: Path) -> None:
    found = rows(altered("tls", tmp_path, moved(9093)))
    assert {row["security"] for row in found if row["event"] == "connection"} == {"tls"}


@pytest.mark.parametrize("name", ["http", "ldap", "mysql", "redis", "postgres", "thrift"])
def test_a_stranger_on_a_kafka_port_is_named(name: str, tmp_path: Path) -> None:
    found = rows(altered(name, tmp_path, moved(9092)))
    codes = {row["code"] for row in found if row["event"] == "anomaly"}
    assert "not_kafka" in codes


@pytest.mark.parametrize("name", ["librdkafka-groups.pcapng", "kafka-0.10.pcap", "mock-produce.pcapng"])
def test_kafka_on_an_odd_port_is_found(name: str) -> None:
    path = CAPTURES / name
    odd = [row for row in rows(path, ports=()) if row["event"] == "call"]
    usual = [row for row in rows(path) if row["event"] == "call"]
    assert len(odd) > 0.95 * len(usual) > 0
