"""Captures as they come from the field: packets lost, doubled, swapped, cut, bytes wrong. Seeded."""

from __future__ import annotations

import random
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kwsniff.capture.source import blocks
from kwsniff.config import Config


@dataclass(frozen=True)
class Packet:
    """One packet of a capture."""

    time_ns: int
    data: bytes
    size: int
    """On the wire."""


Mutation = Callable[[list[Packet], random.Random], list[Packet]]


def packets(path: str) -> tuple[int, list[Packet]]:
    """Link type and packets of a capture."""
    found: list[Packet] = []
    link = 1
    for block in blocks(path, Config()):
        data = bytes(block.data)
        link = int(block.linktype) if not hasattr(block.linktype, "__len__") else int(block.linktype[0])
        for offset, caplen, origlen, time in zip(
            block.offset.tolist(),
            block.caplen.tolist(),
            block.origlen.tolist(),
            block.time_ns.tolist(),
            strict=True,
        ):
            found.append(Packet(time, data[offset : offset + caplen], origlen))
    return link, found


def write(path: Path, link: int, mutant: list[Packet]) -> Path:
    """A pcap file with nanoseconds."""
    parts = [struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262_144, link)]
    for packet in mutant:
        seconds, nanoseconds = divmod(packet.time_ns, 1_000_000_000)
        parts.append(struct.pack("<IIII", seconds, nanoseconds, len(packet.data), packet.size))
        parts.append(packet.data)
    path.write_bytes(b"".join(parts))
    return path


def dropped(share: float) -> Mutation:
    return lambda whole, chance: [packet for packet in whole if chance.random() >= share]


def duplicated(share: float) -> Mutation:
    return lambda whole, chance: [p for packet in whole for p in [packet] * (1 + (chance.random() < share))]


def swapped(share: float) -> Mutation:
    def mutate(whole: list[Packet], chance: random.Random) -> list[Packet]:
        moved = list(whole)
        for index in range(len(moved) - 1):
            if chance.random() < share:
                moved[index], moved[index + 1] = moved[index + 1], moved[index]
        return moved

    return mutate


def cut(length: int) -> Mutation:
    return lambda whole, chance: [Packet(p.time_ns, p.data[:length], p.size) for p in whole]


def without_first_half(whole: list[Packet], chance: random.Random) -> list[Packet]:
    return whole[len(whole) // 2 :]


def flipped(share: float) -> Mutation:
    """Wrong bytes, the headers included."""

    def mutate(whole: list[Packet], chance: random.Random) -> list[Packet]:
        wrong = []
        for packet in whole:
            data = bytearray(packet.data)
            for index in range(len(data)):
                if chance.random() < share:
                    data[index] = chance.randrange(256)
            wrong.append(Packet(packet.time_ns, bytes(data), packet.size))
        return wrong

    return mutate


def one_side(side: int) -> Mutation:
    """Only the packets of one direction, told apart by the ports in the packet."""

    def mutate(whole: list[Packet], chance: random.Random) -> list[Packet]:
        return [packet for packet in whole if _from_lower_port(packet.data) == bool(side)]

    return mutate


def _from_lower_port(data: bytes) -> bool:
    """Whether the source port is the lower one, as that of a broker is. Samples are Ethernet or cooked."""
    for start in (14, 16, 20, 4, 0):
        if len(data) > start + 40 and data[start] >> 4 == 4 and data[start + 9] == 6:
            at = start + (data[start] & 15) * 4
        elif len(data) > start + 60 and data[start] >> 4 == 6 and data[start + 6] == 6:
            at = start + 40
        else:
            continue
        return data[at : at + 2] < data[at + 2 : at + 4]
    return True


def merged(whole: list[Packet], chance: random.Random) -> list[Packet]:
    """Two captures of the same traffic, the second a few microseconds later and without some packets."""
    second = [Packet(p.time_ns + 5_000, p.data, p.size) for p in whole if chance.random() >= 0.1]
    return sorted(whole + second, key=lambda packet: packet.time_ns)


def reordered(window: int) -> Mutation:
    """Every packet up to `window` places away from where it was."""

    def mutate(whole: list[Packet], chance: random.Random) -> list[Packet]:
        places = sorted((index + chance.random() * window, index) for index in range(len(whole)))
        return [whole[index] for _, index in places]

    return mutate


def by_editcap(share: float) -> Mutation:
    """Wrong bytes as editcap makes them, by its own chance and seed."""

    def mutate(whole: list[Packet], chance: random.Random) -> list[Packet]:
        with tempfile.TemporaryDirectory() as folder:
            before = write(Path(folder) / "before.pcap", 1, whole)
            after = Path(folder) / "after.pcap"
            seed = str(chance.randrange(1 << 31))
            subprocess.run(
                ["editcap", "-F", "nsecpcap", "-E", str(share), "--seed", seed, before, after],
                check=True, capture_output=True,
            )  # fmt: skip
            return packets(str(after))[1]

    return mutate


MUTATIONS: dict[str, Mutation] = {
    "1 % of packets dropped": dropped(0.01),
    "5 % of packets dropped": dropped(0.05),
    "20 % of packets dropped": dropped(0.2),
    "10 % of packets duplicated": duplicated(0.1),
    "10 % of packets swapped": swapped(0.1),
    "cut to 64 bytes": cut(64),
    "cut to 96 bytes": cut(96),
    "cut to 128 bytes": cut(128),
    "cut to 256 bytes": cut(256),
    "first half missing": without_first_half,
    "0.1 % of bytes wrong": flipped(0.001),
    "1 % of bytes wrong": flipped(0.01),
    "5 % of bytes wrong": flipped(0.05),
    "client's packets only": one_side(0),
    "broker's packets only": one_side(1),
    "two captures merged": merged,
    "reordered by up to 5": reordered(5),
    "30 % of packets duplicated": duplicated(0.3),
    "0.1 % of bytes wrong (editcap)": by_editcap(0.001),
    "1 % of bytes wrong (editcap)": by_editcap(0.01),
    "5 % of bytes wrong (editcap)": by_editcap(0.05),
}
if shutil.which("editcap") is None:
    MUTATIONS = {name: how for name, how in MUTATIONS.items() if "editcap" not in name}
