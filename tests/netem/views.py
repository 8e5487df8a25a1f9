"""Capture points: the three stations of the link, and what other taps and other times would have shown.

Each of them has every byte that an application read.
"""

from __future__ import annotations

import heapq
import struct
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from tests.intact.packets import records
from tests.netem.link import FIN, PCAP_HEADER, RST, Tcp

SECOND = 1_000_000_000
SLOWER = 100
HOURS = 5 * 3600 * SECOND
Packet = tuple[int, bytes]
"""Nanoseconds since 1970, and the packet from its IP header on."""


def packets(path: Path) -> Iterator[Packet]:
    return ((moment, packet) for _, moment, packet, _ in records(path.read_bytes()))


def write(path: Path, found: Iterable[Packet]) -> None:
    with path.open("wb") as file:
        file.write(PCAP_HEADER)
        for moment, packet in found:
            head = struct.pack("<IIII", *divmod(moment, SECOND), len(packet), len(packet))
            file.write(head + packet)


def twice(folder: Path, _: float) -> Iterable[Packet]:
    """As a switch's mirror port of two directions shows it: each packet, and 2 µs later the same again."""
    copies = ((moment + 2_000, packet) for moment, packet in packets(folder / "middle.pcap"))
    return heapq.merge(packets(folder / "middle.pcap"), copies)


def two_taps(folder: Path, _: float) -> Iterable[Packet]:
    """On both sides of the first hop: most packets twice, some not, later ones sometimes first."""
    return heapq.merge(packets(folder / "client.pcap"), packets(folder / "middle.pcap"))


def no_ends(folder: Path, _: float) -> Iterator[Packet]:
    """Without the FINs and RSTs that carry no byte of a stream."""
    for moment, packet in packets(folder / "middle.pcap"):
        tcp = Tcp.read(packet)
        if tcp is None or tcp.length or not tcp.flags & (FIN | RST):
            yield moment, packet


def slow(folder: Path, _: float) -> Iterator[Packet]:
    """A hundred times as slow: holes and pauses of most of a minute."""
    start = None
    for moment, packet in packets(folder / "middle.pcap"):
        start = moment if start is None else start
        yield start + (moment - start) * SLOWER, packet


def hours(folder: Path, silent: float) -> Iterator[Packet]:
    """With five hours more in the silence."""
    for moment, packet in packets(folder / "middle.pcap"):
        yield moment + (HOURS if moment > silent * SECOND else 0), packet


VIEWS: dict[str, Callable[[Path, float], Iterable[Packet]] | None] = {
    "client": None,
    "middle": None,
    "broker": None,
    "twice": twice,
    "two taps": two_taps,
    "no ends": no_ends,
    "slow": slow,
    "hours": hours,
}
"""Those that are None are what the link wrote."""


def view(folder: Path, name: str, silent: float) -> Path:
    """The capture of this name in a folder that the link wrote to."""
    path = folder / f"{name.replace(' ', '-')}.pcap"
    make = VIEWS[name]
    if make is not None:
        write(path, make(folder, silent))
    return path
