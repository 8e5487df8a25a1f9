"""Captures as they come from the field: packets lost, doubled, swapped, cut, bytes wrong. Seeded."""

from __future__ import annotations

import random
import struct
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
}
