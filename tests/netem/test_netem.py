"""What was captured whole is told exactly as applications sent and read it, whatever the network did."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from socket import inet_aton

import pytest

from tests.intact.packets import packets as segments
from tests.intact.tcp import connections
from tests.netem.matrix import IMPAIRMENTS, Cell, carry, judge
from tests.netem.network import BROKER, CLIENT, DEVICE, Host
from tests.netem.talks import Talk
from tests.netem.views import VIEWS, packets, view

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(not Path("/dev/net/tun").exists(), reason="no TUN devices here"),
]
ROWS = {each.name: each for each in IMPAIRMENTS}
SEED = 11
SUBSET = (
    *("loss 5 %", "reordering", "late copies", "loss, no SACK", "MTU shrinks", "offload, cut", "holes"),
    *("forged RST", "forged SYN"),
)
PLACES = tuple(name for name in VIEWS if name not in ("middle", "twice"))
"""Captures that others tell less than; `python -m tests.netem` reads all."""


@pytest.mark.slow
@pytest.mark.parametrize("name", SUBSET)
def test_each_call_of_a_capture_with_every_byte_is_told_and_no_other(name: str, tmp_path: Path) -> None:
    cell = judge(carry(ROWS[name], SEED, tmp_path), tmp_path, PLACES)
    assert sum(found.calls for found in cell.outcomes.values()) > 1000
    wrong = {place: str(found) for place, found in cell.outcomes.items() if not found.is_right}
    assert not wrong


@pytest.fixture(scope="module")
def lossy(tmp_path_factory: pytest.TempPathFactory) -> tuple[Cell, Path]:
    folder = tmp_path_factory.mktemp("lossy")
    return carry(ROWS["loss 5 %"], SEED, folder), folder


@pytest.mark.parametrize("name", VIEWS)
def test_a_capture_has_every_byte_that_an_application_read(name: str, lossy: tuple[Cell, Path]) -> None:
    """By a reading of the packets that knows nothing but sequence numbers."""
    cell, folder = lossy
    seen: dict[tuple[int, int], list[bytes]] = {}
    for one in connections(segments(view(folder, name, 0))):
        for side, stream in enumerate(one.streams):
            ports = one.ends[side][1], one.ends[1 - side][1]
            seen.setdefault(ports, []).append(bytes(stream.data))
    for chain in cell.chains:
        for number, talk in enumerate(chain):
            asked, answered = _read(talk)
            assert seen[talk.port, 9092][number].startswith(asked)
            assert not answered or seen[9092, talk.port][number].startswith(answered)


def _read(talk: Talk) -> tuple[bytes, bytes]:
    """What the broker and what the client read of whole messages."""
    replied = [message.response for message in talk.messages if message.response is not None]
    return b"".join(m.request for m in talk.messages[: talk.understood]), b"".join(replied[: talk.read])


def test_all_talks_come_to_their_end(lossy: tuple[Cell, Path]) -> None:
    cell, _ = lossy
    assert not cell.problems
    whole = [talk for chain in cell.chains for talk in chain if not talk.is_cut]
    assert all(talk.understood == len(talk.messages) for talk in whole)


@contextmanager
def tcpdump(hosts: list[Host], folder: Path) -> Iterator[None]:
    """One at each host's device, writing FOLDER/ADDRESS.pcap."""
    running = []
    for host in hosts:
        path = folder / f"{host.address}.pcap"
        command = ["tcpdump", "-Z", "root", "-ni", DEVICE, "-B", "65536", "-U", "-w", path, "ip"]
        nanoseconds = "--time-stamp-precision=nano"
        running.append(host.run(subprocess.Popen, [*command, nanoseconds], stderr=subprocess.PIPE, text=True))
    try:
        for process in running:
            assert process.stderr is not None
            assert "listening on" in process.stderr.readline()
        yield
        paths = [folder / f"{host.address}.pcap" for host in hosts]
        sizes: list[int] = []
        while sizes != (sizes := [path.stat().st_size for path in paths]):  # it writes what its buffer holds
            time.sleep(1)
    finally:
        for process in running:
            process.send_signal(signal.SIGINT)
            assert "0 packets dropped by kernel" in process.communicate(timeout=20)[1]


@pytest.mark.parametrize("name", ["offload, loss", "loss, no SACK"])
def test_hosts_captures_are_those_that_tcpdump_writes_there(name: str, tmp_path: Path) -> None:
    """Packet by packet in each direction; only the moments differ."""
    row = replace(ROWS[name], kinds=("pingpong", "values", "deep requests", "churn"))
    cell = carry(row, SEED, tmp_path, lambda hosts: tcpdump(hosts, tmp_path))
    assert cell.packets > 500
    for address, station in ((CLIENT, "client"), (BROKER, "broker")):
        ours, theirs = (list(packets(tmp_path / f"{each}.pcap")) for each in (station, address))
        for source in (CLIENT, BROKER):
            sent = [
                [packet for _, packet in each if packet[12:16] == inet_aton(source)]
                for each in (ours, theirs)
            ]
            assert sent[0] == sent[1]
