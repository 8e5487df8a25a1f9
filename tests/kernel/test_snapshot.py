"""A run can be left between two batches, kept as bytes, and gone on with in another process, whether kernels
are compiled there or not."""

from __future__ import annotations

import pickle
import subprocess
import sys
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kwsniff.capture.source import CaptureRun, CaptureTotals, segments
from kwsniff.config import Config
from kwsniff.engine.analyze import Engine, analyze, keyed
from kwsniff.native.code import fitting
from kwsniff.net.segments import segment_columns
from kwsniff.rows.schema import EVENTS
from kwsniff.run.offline import events
from tests.hostile import attacks
from tests.hostile.wire import write
from tests.samples import names, sample
from tests.strength import examples

compiled = pytest.mark.skipif(fitting() is None, reason="no compiled kernels for this machine")
SMALL = "librdkafka-admin"


def left_and_taken_up(paths: list[str], config: Config) -> tuple[pa.Table, CaptureTotals]:
    """Events of a run that is pickled after every batch of segments, and its reader after every file."""
    capture_run, engine, found = CaptureRun(CaptureTotals()), Engine(config), []
    for path in paths:
        for each in capture_run.file(path, config):
            found += map(engine.events, engine.take(each))
            engine = pickle.loads(pickle.dumps(engine, pickle.HIGHEST_PROTOCOL))
        capture_run = pickle.loads(pickle.dumps(capture_run, pickle.HIGHEST_PROTOCOL))
    for each in capture_run.end():
        found += map(engine.events, engine.take(each))
    found += engine.finish()
    return pa.Table.from_batches(found, EVENTS), capture_run.totals


@pytest.mark.one_of(11)
@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("name", names())
def test_a_run_that_is_left_after_every_batch_yields_the_same_events(name: str, full: bool) -> None:
    config = Config(block_packets=40, full=full)
    totals = CaptureTotals()
    expected = pa.Table.from_batches(list(events(sample(name).paths, config, totals=totals)), EVENTS)
    found, counted = left_and_taken_up(sample(name).paths, config)
    assert expected.num_rows
    assert found.equals(expected)
    assert counted == totals


def continued(state: bytes, rest: list[pa.RecordBatch], kernels: str) -> tuple[Engine, list[pa.RecordBatch]]:
    """An engine that goes on where another one was left, with kernels of its own choice, and its events."""
    engine = pickle.loads(state)
    kept = engine.__getstate__()
    engine = Engine.__new__(Engine)
    engine.__setstate__(kept | {"config": replace(kept["config"], kernels=kernels)})
    return engine, [made for each in rest for made in engine.feed(segment_columns(each))]


@compiled
@settings(max_examples=examples(20))
@given(
    name=st.sampled_from([SMALL, "midstream", "sasl-0.10", "slow-broker"]),
    packets=st.integers(1, 120),
    cut=st.floats(0, 1),
    order=st.sampled_from([("auto", "never"), ("never", "auto"), ("auto", "auto")]),
)
def test_compiled_and_interpreted_kernels_go_on_with_each_others_state(
    name: str, packets: int, cut: float, order: tuple[str, str]
) -> None:
    first, second = order
    config = Config(block_packets=packets, kernels=first)
    given = list(segments(sample(name).paths, config))
    stop = int(cut * len(given))
    engine = Engine(config)
    found = [made for each in given[:stop] for made in engine.feed(segment_columns(each))]
    engine, rest = continued(pickle.dumps(engine), given[stop:], second)
    found += [*rest, *engine.finish()]
    expected = list(analyze(given, replace(config, kernels="auto")))
    assert pa.Table.from_batches(found).equals(pa.Table.from_batches(expected))


def test_another_process_goes_on_where_this_one_stopped(tmp_path: Path) -> None:
    config = Config(block_packets=60, kernels="never")
    given = list(segments(sample(SMALL).paths, config))
    engine = Engine(config)
    found = [part for each in given[:3] for part in map(engine.events, engine.take(each))]
    (tmp_path / "state").write_bytes(pickle.dumps(engine))
    with pa.ipc.new_stream(tmp_path / "rest", given[0].schema) as writer:
        for each in given[3:]:
            writer.write_batch(each)
    script = """
import pickle, sys, pyarrow as pa
from pathlib import Path
from kwsniff.rows.schema import EVENTS
engine = pickle.loads((Path(sys.argv[1]) / "state").read_bytes())
with pa.ipc.new_stream(Path(sys.argv[1]) / "events", EVENTS) as writer:
    for batch in pa.ipc.open_stream((Path(sys.argv[1]) / "rest").read_bytes()):
        for part in map(engine.events, engine.take(batch)):
            writer.write_batch(part)
    for part in engine.finish():
        writer.write_batch(part)
"""
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True, timeout=120)
    rest = pa.ipc.open_stream((tmp_path / "events").read_bytes()).read_all()
    whole = pa.concat_tables([pa.Table.from_batches(found, EVENTS), rest])
    assert whole.equals(pa.Table.from_batches(list(analyze(given, config)), EVENTS))


@compiled
@pytest.mark.parametrize(
    "attack", [attacks.talking_connections, attacks.outstanding_everywhere, attacks.holes]
)
def test_a_state_is_as_large_as_what_is_held(attack: Any, tmp_path: Path) -> None:
    """Many connections, and what was in flight on them, leave nothing behind once they are over."""
    write(tmp_path / "attack.pcap", attack(3000))
    config = Config()
    engine = Engine(config)
    fresh, largest = len(pickle.dumps(engine)), 0
    for each in segments([str(tmp_path / "attack.pcap")], config):
        for _ in engine.feed(segment_columns(each)):
            pass
        largest = max(largest, len(pickle.dumps(engine)))
    for _ in engine.tick(int(3e18)):
        pass
    assert engine.connections == 0
    left = len(zlib.compress(pickle.dumps(engine)))
    assert left < 2 * fresh < largest


def test_what_one_batch_says_stays_when_the_next_has_come() -> None:
    """A batch of a single row was lent the tables' memory."""
    name = "slow-reader"
    config = Config(block_packets=40, kernels="auto" if fitting() else "never")
    engine, found, said = Engine(config), [], []
    for each in segments(sample(name).paths, config):
        for made in engine.feed(segment_columns(each)):
            found.append(made)
            said.append(made.to_pylist())
    assert [made.to_pylist() for made in found] == said
    assert any(len(made) == 1 for made in found)


def in_order(parts: list[tuple[pa.RecordBatch, Any]]) -> pa.Table:
    """Rows by their keys; those that one packet settled, of several connections, by connection."""
    table = pa.Table.from_batches([made for made, _ in parts])
    table = table.append_column("key", pa.array(np.concatenate([keys for _, keys in parts])))
    return table.sort_by([("key", "ascending"), ("connection", "ascending")]).combine_chunks()


@pytest.mark.parametrize("name", ["java-groups", "sasl", "rotation"])
@pytest.mark.parametrize("count", [2, 3])
def test_engines_that_share_the_connections_yield_together_what_one_yields(name: str, count: int) -> None:
    config = Config(block_packets=50, kernels="auto" if fitting() else "never")
    shares: list[list[tuple[pa.RecordBatch, Any]]] = [
        [each for parts in keyed(segments(sample(name).paths, config), config, share) for each in parts]
        for share in [None, *((index, count) for index in range(count))]
    ]
    whole, *divided = shares
    assert all(divided)
    assert in_order([each for share in divided for each in share]).equals(in_order(whole))
