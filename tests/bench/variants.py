"""Captures made of a recorded one as a bad tap does: cut, joined mid-stream, packets lost or out of order.

A variant is the packets that stay, by their number and in their new order. The same seed leaves the same ones
out.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tests.bench import pcapfile

SEED = 13
SECOND = 1_000_000_000
Order = NDArray[np.int64]


@dataclass(frozen=True)
class Index:
    """Where the packets of a pcap file begin, and when they were captured."""

    ends: NDArray[np.int64]
    """The byte after each packet's record."""
    times: NDArray[np.int64]
    """Nanoseconds since 1970."""

    def __len__(self) -> int:
        return len(self.times)


def index(path: Path) -> Index:
    """Raises SystemExit when `path` is no pcap file."""
    per_second = pcapfile.header(path).per_second
    lengths, stamps = [], bytearray()
    for time, rest in pcapfile.packets(path):
        lengths.append(len(time) + len(rest))
        stamps += time
    seconds, fraction = np.frombuffer(bytes(stamps), "<u4").astype(np.int64).reshape(-1, 2).T
    ends = pcapfile.HEADER + np.cumsum(np.array(lengths, np.int64))
    return Index(ends, seconds * SECOND + fraction * (SECOND // per_second))


def lost(share: float) -> Callable[[Index], Order]:
    """Each packet is lost with the same probability."""
    return lambda packets: np.flatnonzero(np.random.default_rng(SEED).random(len(packets)) >= share)


def damaged(packets: Index) -> Order:
    """One packet in a hundred is lost, one in a hundred of the others comes after the one behind it."""
    order = lost(0.01)(packets)
    chance = np.random.default_rng(SEED + 1).random(len(order) // 2) < 0.02
    first = 2 * np.flatnonzero(chance)
    order[first], order[first + 1] = order[first + 1], order[first].copy()
    return order


def lost_second(packets: Index) -> Order:
    """All of one second is lost, from the middle of the recording on."""
    begin = (packets.times[0] + packets.times[-1]) // 2
    return np.flatnonzero((packets.times < begin) | (packets.times >= begin + SECOND))


VARIANTS: dict[str, Callable[[Index], Order]] = {
    "midstream": lambda packets: np.arange(len(packets) // 3, len(packets)),
    **{f"lost-{percent}": lost(percent / 100) for percent in (1, 2, 5, 10, 20)},
    "lost-second": lost_second,
    "damaged": damaged,
    "200k": lambda packets: np.arange(min(200_000, len(packets))),
    "5mb": lambda packets: np.flatnonzero(packets.ends <= 5_000_000),
    "100kb": lambda packets: np.flatnonzero(packets.ends <= 100_000),
}


def make(source: Path, variants: dict[str, Path]) -> None:
    """Write these variants of `source`, each to its path."""
    packets = index(source)
    for name, target in variants.items():
        keep(source, target, packets, VARIANTS[name](packets))


def keep(source: Path, target: Path, packets: Index, order: Order) -> None:
    """Write these packets. Times stay where they are and rise: what moves is the packet."""
    starts = np.concatenate([[pcapfile.HEADER], packets.ends])
    with source.open("rb") as file, target.open("wb") as out:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        out.write(data[: pcapfile.HEADER])
        for slot, packet in zip(np.sort(order), order, strict=True):
            out.write(data[starts[slot] : starts[slot] + pcapfile.TIME])
            out.write(data[starts[packet] + pcapfile.TIME : starts[packet + 1]])
