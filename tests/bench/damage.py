"""Damage a capture as a bad tap does: packets lost, packets out of order. The same seed, the same damage."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pcapfile

LOSS = 0.01
SWAP = 0.01
SEED = 4


@dataclass
class Damage:
    """What was done, in packets."""

    kept: int = 0
    lost: int = 0
    swapped: int = 0


def damage(source: Path, target: Path, *, loss: float = LOSS, swap: float = SWAP, seed: int = SEED) -> Damage:
    """Write `source` without a share `loss` of its packets, a share `swap` of the rest after its successor.

    Times stay where they are: the file's times rise as a capture's do, and what moves is the packet.
    """
    done = Damage()
    header = pcapfile.header(source)
    rng = random.Random(seed)
    with target.open("wb") as out:
        out.write(header.raw)
        for time, packet in _swapped(_kept(pcapfile.packets(source), loss, rng, done), swap, rng, done):
            out.write(time + packet)
    return done


def _kept(
    packets: Iterator[tuple[bytes, bytes]], loss: float, rng: random.Random, done: Damage
) -> Iterator[tuple[bytes, bytes]]:
    for each in packets:
        if rng.random() < loss:
            done.lost += 1
        else:
            done.kept += 1
            yield each


def _swapped(
    packets: Iterator[tuple[bytes, bytes]], swap: float, rng: random.Random, done: Damage
) -> Iterator[tuple[bytes, bytes]]:
    for time, packet in packets:
        after = next(packets, None) if rng.random() < swap else None
        if after is None:
            yield time, packet
        else:
            done.swapped += 1
            yield time, after[1]
            yield after[0], packet
