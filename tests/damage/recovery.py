"""How many requests are found in damaged captures, beside what tshark finds in the same files.

As a script, `python -m tests.damage.recovery [--tshark] [--seeds=N] [SAMPLE...]`, it makes the table of
docs/reliability.md.
A mutant is a sample, damaged in one way with one seed. Compared are requests by (packet, API, version,
correlation id) of the API versions that tshark 4.0 knows.
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kwsniff.config import Config
from kwsniff.run.offline import events
from tests.damage.mutants import MUTATIONS, packets, write
from tests.samples import names, sample, tshark_finds

TSHARK_KNOWS = {0: 8, 1: 11, 3: 9}
"""Newest version of Produce, Fetch and Metadata that tshark 4.0 dissects."""
Request = tuple[int, ...]


@dataclass
class Tally:
    """Of one kind of damage."""

    files: int = 0
    there: int = 0
    ours: int = 0
    knowable: int = 0
    """Of ours, those of API versions that tshark knows."""
    theirs: int = 0
    alone: int = 0
    """Requests that tshark found and we did not."""
    less: list[str] = field(default_factory=list)
    """Mutants in which tshark found more, of the versions it knows."""


def ours(path: Path, ports: Sequence[int]) -> set[Request]:
    """Requests as kwsniff finds them."""
    config = Config(ports=tuple(ports))
    return {
        (row["request_packet"], row["correlation_id"], row["api_key"], row["api_version"])
        for batch in events([str(path)], config)
        for row in batch.to_pylist()
        if row["event"] == "call" and row["status"] != "orphan"
    }


def theirs(path: Path, ports: Sequence[int]) -> set[Request]:
    """Requests as tshark finds them."""
    found = tshark_finds(path, ports)
    return {each for each in found if each[3] <= TSHARK_KNOWS.get(each[2], 99)}


def by_call(found: set[Request]) -> Counter[Request]:
    """Without packet numbers, which change when packets are dropped or doubled."""
    return Counter((corr, key, version) for _, corr, key, version in found)


def mutants(
    chosen: Sequence[str], folder: Path, seeds: int = 1
) -> Iterator[tuple[str, str, Path, Sequence[int]]]:
    """Sample, damage, file and ports."""
    for name in chosen:
        recorded = sample(name)
        link, whole = packets(recorded.paths[0])
        for damage, mutate in MUTATIONS.items():
            for seed in range(seeds):
                mutant = mutate(whole, random.Random(f"{name}, {damage}, {seed}"))
                yield name, damage, write(folder / "mutant.pcap", link, mutant), recorded.note["ports"]


def recovered(chosen: Sequence[str], tshark: bool, seeds: int = 1) -> dict[str, Tally]:
    """The tally of every kind of damage."""
    tallies: dict[str, Tally] = {damage: Tally() for damage in MUTATIONS}
    before = {name: by_call(ours(Path(sample(name).paths[0]), sample(name).note["ports"])) for name in chosen}
    with tempfile.TemporaryDirectory() as folder:
        for name, damage, path, ports in mutants(chosen, Path(folder), seeds):
            tally, there = tallies[damage], before[name]
            found = by_call(ours(path, ports)) & there
            tally.files += 1
            tally.there += there.total()
            tally.ours += found.total()
            knowable = sum(count for call, count in found.items() if call[2] <= TSHARK_KNOWS.get(call[1], 99))
            tally.knowable += knowable
            if tshark:
                seen = by_call(theirs(path, ports)) & there
                tally.theirs += seen.total()
                tally.alone += (seen - found).total()
                if seen.total() > knowable:
                    tally.less.append(f"{name}: {knowable} of {seen.total()}")
    return tallies


def main() -> None:
    arguments = [argument for argument in sys.argv[1:] if not argument.startswith("-")]
    tshark = "--tshark" in sys.argv
    seeds = next((int(each[8:]) for each in sys.argv if each.startswith("--seeds=")), 1)
    tallies = recovered(arguments or names(), tshark, seeds)
    print("| damage | requests | kwsniff finds | of versions tshark knows | tshark finds | tshark alone |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for damage, tally in tallies.items():
        share = tally.ours / max(tally.there, 1)
        theirs_too = (tally.theirs, tally.alone) if tshark else ("-", "-")
        print(
            f"| {damage} | {tally.there} | {tally.ours} ({share:.1%}) "
            f"| {tally.knowable} | {theirs_too[0]} | {theirs_too[1]} |"
        )
    print(
        "\nMutants of which tshark finds more:", [each for tally in tallies.values() for each in tally.less]
    )


if __name__ == "__main__":
    main()
