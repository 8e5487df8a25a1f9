"""Compiled kernels that look at every index before they use it find none that a table lacks, and yield what
those without checks and interpreted ones yield: over samples, damage, attacks and the fuzzers' seeds."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kwsniff.capture.source import segments
from kwsniff.config import Config
from kwsniff.engine.analyze import analyze
from kwsniff.engine.machine import Machine
from kwsniff.engine.tables import FOLLOW
from kwsniff.native.code import CHECKED
from tests.damage import mutants
from tests.fuzz import targets
from tests.fuzz.corpus import seeds
from tests.fuzz.loop import Fuzzer, changed, fuzz
from tests.fuzz.targets import FAST, TARGETS
from tests.hostile.attacks import ATTACKS
from tests.hostile.wire import write
from tests.kernel.kinds import KINDS, kernels, make_checked
from tests.kernel.test_bounds import CROWDS, SMALL, TIGHT, differing
from tests.samples import names, sample
from tests.strength import ALL

pytestmark = pytest.mark.costly

SEEDS = 400 if ALL else 40
FUZZED = ("pcap", "pcapng", "link", "stream", "frames")
"""Targets that reach kernels."""


@pytest.fixture(scope="module", autouse=True)
def checked() -> None:
    """Code to run."""
    make_checked()


def events_of(paths: Iterable[str], **choices: Any) -> list[pa.Table]:
    """The events of captures, in batches of the largest size and none else."""
    config = Config(**choices)
    return list(analyze(segments([*paths], config), config))


def same_for_all(paths: Iterable[str], kinds: Iterable[str] = KINDS, **choices: Any) -> int:
    """See that the events are the same in each of these ways; how many there are."""
    first: list[Any] | None = None
    for kind in kinds:
        with kernels(kind):
            rows = [row for made in events_of(paths, **choices) for row in made.to_pylist()]
        if first is None:
            first = rows
        assert rows == first, f"{kind}: {differing(first, rows)}"
    return len(first or ())


def test_an_index_out_of_bounds_is_raised_with_its_place() -> None:
    with kernels(CHECKED):
        machine = Machine(compiled=True)
        machine.t.run[0].giver, machine.t.run[0].giving, machine.t.run[0].least = 10**6, 1, 1
        machine.t.run[0].arena_live = 1
        machine.grow("segments", 1)
        with pytest.raises(IndexError, match=r"^\w+\.py:\d+: 1000000 of 256$"):
            list(machine.act(FOLLOW, 1))


def test_a_negative_index_is_out_of_bounds() -> None:
    with kernels(CHECKED):
        machine = Machine(compiled=True)
        machine.grow("segments", 1)
        machine.t.run[0].conn, machine.t.run[0].phase = -7, 1
        with pytest.raises(IndexError, match=r"^\w+\.py:\d+: -"):
            list(machine.act(FOLLOW, 1))


def test_who_asks_for_checks_is_not_served_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kwsniff.native import code

    monkeypatch.setattr(code, "FOLDER", tmp_path)
    with kernels(CHECKED), pytest.raises(FileNotFoundError):
        Machine()


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("name", names())
def test_samples(name: str, full: bool) -> None:
    # Interpreted ones are held against the golden events elsewhere.
    assert same_for_all(sample(name).paths, KINDS[:2], full=full, records=full)


@pytest.mark.one_of(3)
@pytest.mark.parametrize("mutation", mutants.MUTATIONS)
@pytest.mark.parametrize("name", ["large-records", "kafkajs-kafka", "sasl-0.10", "midstream"])
def test_damage(mutation: str, name: str, tmp_path: Path) -> None:
    chance = random.Random(mutation + name)
    link, whole = mutants.packets(sample(name).paths[0])
    mutated = mutants.MUTATIONS[mutation](whole[:300], chance)
    same_for_all([str(mutants.write(tmp_path / "damaged.pcap", link, mutated))])


@pytest.mark.one_of(4)
@pytest.mark.parametrize("limits", ["default", "tight"])
@pytest.mark.parametrize("name", [name for name in ATTACKS if name not in CROWDS])
def test_attacks(name: str, limits: str, tmp_path: Path) -> None:
    path = write(tmp_path / "attack.pcap", ATTACKS[name](SMALL[name]))
    same_for_all([str(path)], **(TIGHT if limits == "tight" else {}))


@pytest.mark.parametrize("name", CROWDS)
def test_crowds(name: str, tmp_path: Path) -> None:
    path = write(tmp_path / "attack.pcap", ATTACKS[name](SMALL[name]))
    same_for_all([str(path)], KINDS[:2])


@pytest.mark.parametrize("target", FUZZED)
def test_seeds_of_the_fuzzers(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(target)
    # The fuzzers interpret kernels, to see their branches.
    monkeypatch.setattr(targets, "CONFIG", replace(targets.CONFIG, kernels="always"))
    with kernels(CHECKED):
        for seed in islice(seeds(target), SEEDS):
            damaged = bytearray(seed)
            for _ in range(3):
                damaged[chance.randrange(len(damaged))] = chance.randrange(256)
            for data in (seed, bytes(damaged), seed[: chance.randrange(len(seed))]):
                TARGETS[target](data)


@pytest.mark.parametrize("target", FAST)
def test_the_fuzzer_keeps_what_reaches_more_and_finds_nothing_in_seconds(target: str, tmp_path: Path) -> None:
    with kernels(CHECKED):
        assert fuzz(target, 3, tmp_path, seed=1) == 0
    assert len(list((tmp_path / target).iterdir())) > 20
    assert [each.name for each in tmp_path.iterdir()] == [target]


def test_the_fuzzer_leaves_an_input_that_breaks_the_invariant(
    tmp_path: Path,
) -> None:
    def broken(data: bytes) -> None:
        FAST["link"](data)
        assert data[-1:] != b"\n"

    with kernels(CHECKED):
        (tmp_path / "link").mkdir()
        fuzzer = Fuzzer("link", tmp_path, broken, FAST["link"], changed)
        fuzzer.take(b"\1 right")
        fuzzer.take(b"\1 wrong\n")
        fuzzer.end()
    assert fuzzer.crashes == 1
    (found,) = tmp_path.glob("link-crash-*")
    assert found.read_bytes() == b"\1 wrong\n"
