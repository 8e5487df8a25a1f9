"""A run can be left between two batches, kept as bytes, and gone on with elsewhere."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

from kwsniff.capture.source import CaptureTotals, Journey
from kwsniff.config import Config
from kwsniff.offline import events
from kwsniff.pipeline import Analysis
from kwsniff.table import EVENTS
from tests.samples import names, sample


def left_and_taken_up(paths: list[str], config: Config) -> tuple[pa.Table, CaptureTotals]:
    """Events of a run that is pickled after every batch of segments, and its reader after every file."""
    journey, analysis, found = Journey(CaptureTotals()), Analysis(config), []
    for path in paths:
        for batch in journey.file(path, config):
            found += [part for part, _ in analysis.feed(batch) if part is not None]
            analysis = pickle.loads(pickle.dumps(analysis, pickle.HIGHEST_PROTOCOL))
        journey = pickle.loads(pickle.dumps(journey, pickle.HIGHEST_PROTOCOL))
    for batch in journey.end():
        found += [part for part, _ in analysis.feed(batch) if part is not None]
    last, _ = analysis.finish()
    found += [] if last is None else [last]
    return pa.Table.from_batches(found, EVENTS), journey.totals


@pytest.mark.one_of(3)
@pytest.mark.parametrize("kernels", ["never", "always"])
@pytest.mark.parametrize("name", names())
def test_a_run_that_is_left_after_every_batch_yields_the_same_events(name: str, kernels: str) -> None:
    config = Config(block_packets=40, kernels=kernels)
    totals = CaptureTotals()
    expected = pa.Table.from_batches(list(events(sample(name).paths, config, totals=totals)), EVENTS)
    found, counted = left_and_taken_up(sample(name).paths, config)
    assert expected.num_rows
    assert found.equals(expected)
    assert counted == totals


def test_what_a_connection_has_not_needed_yet_is_not_made_by_keeping_it() -> None:
    config = Config(block_packets=1)
    analysis, journey = Analysis(config), Journey(CaptureTotals())
    batch = next(journey.file(sample("librdkafka-groups").paths[0], config))
    list(analysis.feed(batch))
    before = pickle.dumps(analysis)
    assert b"Framer" not in before
    assert b"Probe" in before
