"""Wherever a capture is cut, its splits come to the events of one process."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kwsniff.config import Config
from kwsniff.run.plan import Split
from tests.damage.mutants import MUTATIONS, packets, write
from tests.parts.compare import SMALL, cut_at, differences
from tests.parts.cutting import plan
from tests.samples import names, sample
from tests.strength import ALL, examples

FEW = ["librdkafka-groups", "kafka-0.10-clients", "rotation", "sasl", "tls", "snaplen-128"]
SEVEN = [0.07, 0.19, 0.33, 0.48, 0.6, 0.77, 0.93]


@pytest.mark.one_of(4)
@pytest.mark.parametrize("name", names())
def test_every_sample_cut_in_seven_places(name: str) -> None:
    paths = sample(name).paths
    differences(paths, cut_at(paths, SEVEN))


@pytest.mark.one_of(3)
@pytest.mark.parametrize("count", [1, 2, 50])
@pytest.mark.parametrize("name", FEW)
def test_any_number_of_cuts(name: str, count: int) -> None:
    paths = sample(name).paths
    differences(paths, cut_at(paths, [(2 * index + 1) / (2 * count + 1) for index in range(count)]))


@given(
    name=st.sampled_from(names()),
    fractions=st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=9),
    full=st.booleans(),
)
@settings(max_examples=examples(25))
def test_any_cut(name: str, fractions: list[float], full: bool) -> None:
    config = Config(block_packets=50, block_bytes=1 << 13, full=full)
    paths = sample(name).paths
    differences(paths, cut_at(paths, fractions, config), config)


@pytest.mark.slow
@given(name=st.sampled_from(names()), fractions=st.lists(st.floats(0, 1, exclude_max=True), max_size=60))
@settings(max_examples=examples(400))
def test_any_cut_at_length(name: str, fractions: list[float]) -> None:
    paths = sample(name).paths
    differences(paths, cut_at(paths, fractions))


@pytest.mark.one_of(8)
@pytest.mark.parametrize("mutation", sorted(MUTATIONS))
@pytest.mark.parametrize("name", ["librdkafka-groups", "kafka-0.8"])
def test_damaged_traffic_cut_anywhere(name: str, mutation: str, tmp_path: Path) -> None:
    for seed in range(2 if ALL else 1):
        damaged_and_cut(name, mutation, seed, tmp_path)


def test_a_part_of_damaged_traffic_that_first_meets_a_version_in_a_search(tmp_path: Path) -> None:
    """Behind a lost packet comes the first OffsetCommit v0 of its part; earlier parts had others."""
    damaged_and_cut("kafka-0.8", "1 % of packets dropped", 0, tmp_path)


def damaged_and_cut(name: str, mutation: str, seed: int, tmp_path: Path) -> None:
    """Decode a sample that was damaged, cut in six places."""
    chance = random.Random(seed)
    link, everything = packets(sample(name).paths[0])
    mutant = write(tmp_path / f"{seed}.pcap", link, MUTATIONS[mutation](everything, chance))
    differences([str(mutant)], cut_at([str(mutant)], [chance.random() for _ in range(6)]))


def test_a_capture_in_files_of_a_hundred_packets(tmp_path: Path) -> None:
    link, everything = packets(sample("librdkafka-errors").paths[0])
    paths = []
    for index, first in enumerate(range(0, len(everything), 100)):
        paths.append(str(tmp_path / f"part{index}.pcap"))
        write(Path(paths[-1]), link, everything[first : first + 100])
    assert len(paths) > 3
    differences(paths, [Split(path) for path in paths])
    differences(paths, [Split(paths[0]), Split(paths[1], more=tuple(paths[2:]))])


@pytest.mark.one_of(3)
@pytest.mark.parametrize("name", ["librdkafka-groups", "kafka-0.8", "midstream"])
def test_a_split_of_many_small_files(name: str, tmp_path: Path) -> None:
    link, everything = packets(sample(name).paths[0])
    paths = []
    for index, first in enumerate(range(0, len(everything), 15)):
        paths.append(str(tmp_path / f"part{index}.pcap"))
        write(Path(paths[-1]), link, everything[first : first + 15])
    groups = [paths[first : first + 7] for first in range(0, len(paths), 7)]
    differences(paths, [Split(group[0], more=tuple(group[1:])) for group in groups])


def test_files_given_out_of_order_are_read_in_order() -> None:
    paths = sample("rotation").paths
    assert len(paths) > 1
    in_order = plan(paths, SMALL, 1)
    assert plan(paths[::-1], SMALL, 1) == in_order
    differences(paths, in_order)
