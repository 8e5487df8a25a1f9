from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scapy.utils import RawPcapReader

from kwsniff.config import Config
from kwsniff.count.where.predicate import compile_where
from kwsniff.run.offline import events
from tests.analysis.conftest import Ended, files
from tests.samples import CAPTURES, sample


def raw(path: Path) -> list[bytes]:
    with RawPcapReader(str(path)) as packets:
        return [data for data, _ in packets]


def calls_in(path: Path) -> dict[str, dict[str, Any]]:
    rows = [row for batch in events([str(path)], Config()) for row in batch.to_pylist()]
    return {f"{row['connection']}#{row['correlation_id']}": row for row in rows if row["event"] == "call"}


def extracted(kwsniff: Callable[..., Ended], name: str, where: str, out: Path) -> Path:
    ended = kwsniff("extract", *files(name), "--where", where, "-o", str(out))
    assert (ended.code, ended.out) == (0, "")
    return out


@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("librdkafka-errors", "error != None"),
        ("librdkafka-groups", 'api == "JoinGroup"'),
        ("ipv6", 'api == "Produce"'),
        ("kafka-0.10", 'api == "Fetch" and latency > 10ms'),
    ],
)
def test_the_packets_of_the_calls_and_of_the_handshakes_are_in_it(
    name: str, where: str, kwsniff: Callable[..., Ended], tmp_path: Path
) -> None:
    predicate = compile_where(where)
    packets: set[int] = set()
    connections: set[str] = set()
    for batch in events(sample(name).paths, Config()):
        for row in batch.filter(predicate(batch)).to_pylist():
            if row["event"] == "call":
                packets |= {row["request_packet"], row["response_packet"]} - {None}
                connections.add(row["connection"])
    everything = raw(CAPTURES / files(name)[0])
    out = extracted(kwsniff, name, where, tmp_path / "x.pcapng")
    chosen = raw(out)
    assert packets
    assert not [number for number in packets if everything[number - 1] not in chosen]
    # A connection's id depends on its ends and its beginning, so the handshakes are there.
    found = calls_in(out)
    assert {row["connection"] for row in found.values()} == connections
    ends = [row for batch in events([str(out)], Config()) for row in batch.to_pylist() if row["syn"]]
    assert {row["connection"] for row in ends} == connections


def test_every_packet_is_one_of_the_capture_in_its_order(
    kwsniff: Callable[..., Ended], tmp_path: Path
) -> None:
    out = extracted(kwsniff, "librdkafka-groups", 'api == "JoinGroup"', tmp_path / "x.pcapng")
    everything, chosen = raw(CAPTURES / files("librdkafka-groups")[0]), raw(out)
    assert 0 < len(chosen) < len(everything) / 4
    rest = iter(everything)
    assert all(any(packet == each for each in rest) for packet in chosen)


def test_what_was_not_asked_for_is_not_in_it(kwsniff: Callable[..., Ended], tmp_path: Path) -> None:
    out = extracted(kwsniff, "librdkafka-errors", 'error == "MESSAGE_TOO_LARGE"', tmp_path / "x.pcapng")
    assert len(raw(out)) == 5
    assert {row["api"] for row in calls_in(out).values()} == {"Produce"}


def test_comments_say_what_was_seen(kwsniff: Callable[..., Ended], tmp_path: Path) -> None:
    out = extracted(kwsniff, "librdkafka-errors", 'error == "MESSAGE_TOO_LARGE"', tmp_path / "x.pcapng")
    data = out.read_bytes()
    assert b"kwsniff: handshake of the connection (packet " in data
    asked = b"kwsniff: Produce v10 request #2, client 'too-large', topics small"
    assert asked + b" (packet 69 of librdkafka-errors.pcap)" in data
    assert b"kwsniff: Produce v10 response #2, MESSAGE_TOO_LARGE, latency 2.874 ms (packet 71 " in data


@pytest.mark.tshark
def test_tshark_reads_packets_and_comments(kwsniff: Callable[..., Ended], tmp_path: Path) -> None:
    assert shutil.which("tshark")
    out = extracted(kwsniff, "librdkafka-errors", 'error == "MESSAGE_TOO_LARGE"', tmp_path / "x.pcapng")
    fields = ["-T", "fields", "-e", "tcp.flags.syn", "-e", "frame.comment"]
    ended = subprocess.run(["tshark", "-r", str(out), *fields], capture_output=True, text=True, check=True)
    rows = [line.split("\t") for line in ended.stdout.splitlines()]
    assert [row[0] for row in rows] == ["1", "1", "0", "0", "0"]
    assert all(row[1].startswith("kwsniff: ") for row in rows)


def test_where_no_call_is_found_nothing_is_written(kwsniff: Callable[..., Ended], tmp_path: Path) -> None:
    out = tmp_path / "x.pcapng"
    ended = kwsniff("extract", *files("ipv6"), "--where", "latency > 1h", "-o", str(out))
    assert ended.code == 0
    assert "no call was found" in ended.err
    assert not out.exists()


def test_an_input_is_never_overwritten(kwsniff: Callable[..., Ended]) -> None:
    [name] = files("ipv6")
    before = (CAPTURES / name).read_bytes()
    assert kwsniff("extract", name, "-o", name).code == 2
    assert (CAPTURES / name).read_bytes() == before


def test_a_rotation_gives_one_file(kwsniff: Callable[..., Ended], tmp_path: Path) -> None:
    out = tmp_path / "x.pcapng"
    assert kwsniff("extract", *files("rotation"), "--where", 'api == "Produce"', "-o", str(out)).code == 0
    produced = {row["api"] for row in calls_in(out).values()}
    assert produced == {"Produce"}
