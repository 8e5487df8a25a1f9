"""Captures made of a recorded one by leaving packets out: cut, joined mid-stream, with packets lost.

A variant is a mask over the packets: true for those that stay. The same seed leaves the same ones out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pcapfile
from numpy.typing import NDArray

SEED = 13
SECOND = 1_000_000_000
Mask = NDArray[np.bool_]


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


def lost(share: float) -> Callable[[Index], Mask]:
    """Each packet is lost with the same probability."""
    return lambda packets: np.random.default_rng(SEED).random(len(packets)) >= share


def lost_second(packets: Index) -> Mask:
    """All of one second is lost, from the middle of the recording on."""
    begin = (packets.times[0] + packets.times[-1]) // 2
    return (packets.times < begin) | (packets.times >= begin + SECOND)


def midstream(packets: Index) -> Mask:
    """The first third is lost."""
    return np.arange(len(packets)) >= len(packets) // 3


def first_packets(count: int) -> Callable[[Index], Mask]:
    return lambda packets: np.arange(len(packets)) < count


def first_bytes(size: int) -> Callable[[Index], Mask]:
    return lambda packets: packets.ends <= size


VARIANTS: dict[str, Callable[[Index], Mask]] = {
    "midstream": midstream,
    "lost-1": lost(0.01),
    "lost-2": lost(0.02),
    "lost-5": lost(0.05),
    "lost-10": lost(0.10),
    "lost-20": lost(0.20),
    "lost-second": lost_second,
    "200k": first_packets(200_000),
    "5mb": first_bytes(5_000_000),
    "100kb": first_bytes(100_000),
}


def make(source: Path, variants: dict[str, Path]) -> None:
    """Write these variants of `source`, each to its path."""
    packets = index(source)
    for name, target in variants.items():
        keep(source, target, VARIANTS[name](packets))


def keep(source: Path, target: Path, mask: Mask) -> None:
    """Write the packets for which `mask` is true."""
    with target.open("wb") as out:
        out.write(pcapfile.header(source).raw)
        last = int(np.flatnonzero(mask)[-1]) if mask.any() else -1
        for number, (time, rest) in enumerate(pcapfile.packets(source)):
            if mask[number]:
                out.write(time + rest)
            if number == last:
                break
