"""Kernels never use an index that a table does not have, and neither the size of tables nor that of blocks
changes a result: samples, damage and attacks go through the smallest tables, each index checked."""

from __future__ import annotations

import random
from pathlib import Path
from struct import pack
from typing import Any

import pytest

from kwsniff.config import Config
from kwsniff.engine import analyze as driver
from kwsniff.engine import intake
from kwsniff.engine.analyze import Engine, analyze
from tests.damage import mutants
from tests.hostile.attacks import ATTACKS
from tests.hostile.wire import write
from tests.kernel.strict import OutOfBounds, StrictMachine, TinyEngine, events_of
from tests.kernel.test_growth import refused_lengths
from tests.playbook import (
    CLIENT,
    batch,
    fin,
    from_client,
    handshake,
    kafka_request,
    play,
    request,
)
from tests.samples import CAPTURES

SAMPLES = (
    "large-records.pcapng.zst", "kafkajs-kafka.pcap.zst", "librdkafka-admin.pcapng", "mock-errors.pcap",
    "snaplen-128.pcap", "sasl-0.10.pcap", "midstream.pcap", "aiokafka-kafka.pcapng.gz",
)  # fmt: skip
SMALL = {
    "one_byte_connections": 40, "talking_connections": 20, "half_frames": 100_000, "holes": 1,
    "outstanding": 70, "outstanding_everywhere": 1000, "tiny_answers": 100, "distinct_names": 40,
    "distinct_ids": 2, "emptied_tables": 1000, "drip": 100, "drip_unknown": 100, "early_answers": 10_000_000,
    "unasked": 300, "just_below": 100, "long_names": 64_000, "long_client_ids": 1, "long_software": 1,
    "many_partitions": 100, "repeated_names": 1000, "long_prefix": 5000, "many_elements": 90,
    "endless_varints": 3, "true_elements": 500, "empty_names": 500, "bombs": 500, "tiny_records": 500,
    "deep_nesting": 5, "overlaps": 40, "time_travel": 30, "many_holes": 100, "fragments": 50,
    "same_ids": 100, "tiny_fragments": 50, "labels": 2,
}  # fmt: skip
CROWDS = ("outstanding_everywhere", "emptied_tables", "early_answers", "holes")
"""Attacks of a thousand connections, or a megabyte, at least."""
TIGHT: dict[str, Any] = {
    "max_connections": 15, "max_outstanding": 20, "max_outstanding_total": 60, "max_buffered_bytes": 60_000,
    "max_connection_bytes": 100_000, "max_reorder_bytes": 30_000, "max_elements": 400,
}  # fmt: skip


def same_events(path: str, monkeypatch: pytest.MonkeyPatch, **choices: Any) -> None:
    """Events through large tables at once, and through tiny ones a few segments at a time."""
    config = Config(**choices)
    whole = events_of([path], config, Engine)
    monkeypatch.setattr(intake, "AT_ONCE", 7)
    monkeypatch.setattr(driver, "MAX_TEXTS", 3)
    tiny = events_of([path], config, TinyEngine)
    if whole is None or tiny is None:
        assert whole is tiny
        return
    assert tiny.equals(whole), differing(whole.to_pylist(), tiny.to_pylist())


def differing(one: list[Any], other: list[Any]) -> str:
    for at, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return f"row {at}: { ({key: (a[key], b[key]) for key in a if a[key] != b[key]}) }"
    return f"{len(one)} rows, {len(other)} rows"


@pytest.mark.one_of(6)
@pytest.mark.parametrize("name", SAMPLES)
def test_samples_through_the_smallest_tables(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    same_events(str(CAPTURES / name), monkeypatch)


@pytest.mark.one_of(5)
@pytest.mark.parametrize("mutation", mutants.MUTATIONS)
def test_damage_through_the_smallest_tables(
    mutation: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(mutation)
    name = chance.choice(SAMPLES[1:])
    link, whole = mutants.packets(str(CAPTURES / name))
    path = mutants.write(tmp_path / "damaged.pcap", link, mutants.MUTATIONS[mutation](whole[:400], chance))
    same_events(str(path), monkeypatch)


@pytest.mark.one_of(8)
@pytest.mark.parametrize("limits", ["default", "tight"])
@pytest.mark.parametrize("name", [name for name in ATTACKS if name not in CROWDS])
def test_attacks_through_the_smallest_tables(
    name: str, limits: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "attack.pcap", ATTACKS[name](SMALL[name]))
    same_events(str(path), monkeypatch, **(TIGHT if limits == "tight" else {}))


@pytest.mark.parametrize("joined", [1, 3])
def test_a_segment_that_the_snap_length_cut_through_the_smallest_tables(joined: int) -> None:
    # A request table that was full behind the last byte at hand: its frame was lost with what the cut took.
    asked = [kafka_request(3, 0, corr, pack(">i", 0)) for corr in range(3, 3 + joined)]
    script = play() >> handshake() >> request(corr=1)
    script >> from_client(b"no length of a frame" + b"".join(asked), length=500) >> fin(CLIENT)
    told = [
        [
            row
            for events in analyze([batch(script.segments)], script.config, engine=engine)
            for row in events.to_pylist()
        ]
        for engine in (Engine(script.config, compiled=False), TinyEngine(script.config))
    ]
    assert told[0] == told[1]
    assert len([row for row in told[0] if row["event"] == "call"]) == 1 + joined


def test_the_check_sees_a_negative_index() -> None:
    machine = StrictMachine()
    with pytest.raises(OutOfBounds):
        machine.t.conns[-1]
    with pytest.raises(OutOfBounds):
        machine.t.arena[len(machine.t.arena)] = 1


def test_lengths_that_are_none_through_the_smallest_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    same_events(str(write(tmp_path / "attack.pcap", refused_lengths(200))), monkeypatch)
