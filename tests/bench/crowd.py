"""The same number of packets from more clients: a recorded capture's packets with other addresses.

The first packets of each of the hundred busiest connections, from the SYN on, once for each copy; a copy's
clients have an address of their own. All copies of a packet follow each other, so that neighbours in the file
belong to different connections, as with so many clients at once. Checksums are left as they were.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tests.bench import pcapfile

CONNECTIONS = 100
SIZES = (100, 1_000, 10_000, 100_000)
LENGTHS, ETHERNET, SOURCE, TARGET, TCP = 8, 14, 12, 16, 20
NETWORK = 10
"""Of the copies' clients: 10.0.0.0/8; the recorded ones have 127.0.0.0/8."""


@dataclass(frozen=True)
class Packet:
    """A packet of a chosen connection; `client` is the place of the client's address in the record."""

    time: bytes
    record: bytes
    client: int

    def of(self, copy: int) -> bytes:
        """The packet as this copy's client sent or got it."""
        address = bytes((NETWORK, *copy.to_bytes(3, "big")))
        return self.time + self.record[: self.client] + address + self.record[self.client + 4 :]


def make(
    source: Path, folder: Path, ports: list[int], packets: int = 1_000_000
) -> dict[int, tuple[Path, int]]:
    """For each number of connections a capture in `folder`, and how many packets it has: about `packets`.

    `source` is a capture of loopback (Ethernet, IPv4 without options).
    """
    counts = Counter(_ends(record, ports)[0] for _, record in pcapfile.packets(source))
    chosen = dict(counts.most_common(CONNECTIONS))
    made = {}
    for size in SIZES:
        path, copies = folder / f"crowd-{size}.pcap", size // CONNECTIONS
        limit = _limit(list(chosen.values()), packets // copies)
        with path.open("wb") as out:
            _write(out, source, {ends: min(count, limit) for ends, count in chosen.items()}, ports, copies)
        made[size] = path, copies * sum(min(count, limit) for count in chosen.values())
    return made


def _write(out: IO[bytes], source: Path, room: dict[bytes, int], ports: list[int], copies: int) -> None:
    """Write so many copies of the packets of each connection that has `room` for more."""
    out.write(pcapfile.header(source).raw)
    for time, record in pcapfile.packets(source):
        ends, client = _ends(record, ports)
        if room.get(ends):
            room[ends] -= 1
            packet = Packet(time, record, client)
            out.writelines(packet.of(copy) for copy in range(copies))


def _limit(counts: list[int], packets: int) -> int:
    """So many packets of each connection at most are `packets` in all, or nearly."""
    limits = range(1, max(counts) + 1)
    return max(bisect_right(limits, packets, key=lambda limit: sum(min(each, limit) for each in counts)), 1)


def _ends(record: bytes, ports: list[int]) -> tuple[bytes, int]:
    """A connection's ends, client first, and the place of the client's address."""
    at = LENGTHS + ETHERNET
    source, target = record[at + SOURCE : at + SOURCE + 4], record[at + TARGET : at + TARGET + 4]
    source_port, target_port = record[at + TCP : at + TCP + 2], record[at + TCP + 2 : at + TCP + 4]
    if int.from_bytes(target_port, "big") in ports:
        return source + source_port + target + target_port, at + SOURCE
    return target + target_port + source + source_port, at + TARGET
