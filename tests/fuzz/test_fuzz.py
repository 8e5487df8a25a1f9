"""Every target keeps its invariant on its seeds, and on seeds cut or with a few wrong bytes."""

from __future__ import annotations

import random
from itertools import islice
from pathlib import Path

import pytest

from tests.fuzz.corpus import seeds
from tests.fuzz.targets import TARGETS
from tests.strength import ALL

SEEDS = 25 if ALL else 8
FOUND = sorted((Path(__file__).parent / "found").iterdir())


@pytest.mark.parametrize("target", TARGETS)
def test_a_target_takes_its_seeds_whole_cut_and_damaged(target: str) -> None:
    chance = random.Random(target)
    given = list(islice(seeds(target), SEEDS))
    assert given
    for seed in given:
        damaged = bytearray(seed)
        for _ in range(3):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        for data in (seed, bytes(damaged), seed[: chance.randrange(len(seed))]):
            TARGETS[target](data)


@pytest.mark.parametrize("found", FOUND, ids=lambda path: path.name)
def test_a_target_takes_what_broke_it_once(found: Path) -> None:
    TARGETS[found.name.split("-")[0]](found.read_bytes())
