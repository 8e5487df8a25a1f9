"""What is not Kafka gives no calls, on whatever port; Kafka on an odd port is found."""

from __future__ import annotations

import struct
import tempfile
from pathlib import Path

import pytest

from kwsniff.config import Config
from kwsniff.offline import events
from tests.damage.mutants import Packet, packets, write
from tests.samples import CAPTURES, Row

FOREIGN = Path(__file__).parent.parent / "data" / "foreign"
NAMES = sorted(path.stem for path in FOREIGN.glob("*.pcap"))
ETHERNET_IP = 14


def rows(path: Path, **choices: object) -> list[Row]:
    return [row for batch in events([str(path)], Config(**choices)) for row in batch.to_pylist()]  # type: ignore[arg-type]


def moved(path: Path, port: int) -> Path:
    """The capture with the server on another port."""
    link, whole = packets(str(path))
    changed = []
    for packet in whole:
        data = bytearray(packet.data)
        at = ETHERNET_IP + (data[ETHERNET_IP] & 15) * 4
        for place in (at, at + 2):
            if 18_000 <= int.from_bytes(data[place : place + 2]) < 18_010:
                data[place : place + 2] = struct.pack(">H", port)
        changed.append(Packet(packet.time_ns, bytes(data), packet.size))
    return write(Path(tempfile.mkdtemp()) / path.name, link, changed)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("port", [None, 9092, 9094, 389, 443, 3306])
def test_other_protocols_give_no_calls(name: str, port: int | None) -> None:
    path = FOREIGN / f"{name}.pcap"
    found = rows(path if port is None else moved(path, port))
    assert [row for row in found if row["event"] == "call"] == []


def test_seven_protocols_are_tried() -> None:
    assert NAMES == ["http", "ldap", "mysql", "postgres", "redis", "thrift", "tls"]


def test_tls_on_a_kafka_port_is_counted_as_such() -> None:
    found = rows(moved(FOREIGN / "tls.pcap", 9093))
    assert [row["security"] for row in found if row["event"] == "connection"] == ["tls"]


@pytest.mark.parametrize("name", ["http", "ldap", "mysql", "redis", "postgres", "thrift"])
def test_a_stranger_on_a_kafka_port_is_named(name: str) -> None:
    found = rows(moved(FOREIGN / f"{name}.pcap", 9092))
    codes = {row["code"] for row in found if row["event"] == "anomaly"}
    assert "not_kafka" in codes


@pytest.mark.parametrize("name", ["librdkafka-groups.pcapng", "kafka-0.10.pcap", "mock-produce.pcapng"])
def test_kafka_on_an_odd_port_is_found(name: str) -> None:
    path = CAPTURES / name
    odd = [row for row in rows(path, ports=()) if row["event"] == "call"]
    usual = [row for row in rows(path) if row["event"] == "call"]
    assert len(odd) > 0.95 * len(usual) > 0
