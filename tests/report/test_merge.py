"""Statistics of parts, merged, are those of the whole."""

from __future__ import annotations

import pickle
from collections.abc import Iterable

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings

from kwsniff.analysis.report import Report
from kwsniff.analysis.statistics import TABLES
from kwsniff.analysis.trust import TrustTotals, paragraph
from kwsniff.config import Config
from kwsniff.count.naming import named
from kwsniff.count.percentiles import Condensed
from kwsniff.count.store import CallStore
from kwsniff.run.offline import events
from tests.report.test_condensed import BATCHES, taken
from tests.samples import names, sample
from tests.strength import examples


def of_sample(name: str) -> pa.RecordBatch:
    batches = list(named(events(sample(name).paths, Config())))
    (whole,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return whole


def merged(parts: Iterable[pa.RecordBatch]) -> CallStore:
    """The parts as tasks count them: each alone, and brought together as bytes."""
    whole = CallStore(0)
    for part in parts:
        store = CallStore(0)
        store.add(part)
        whole.merge(pickle.loads(pickle.dumps(store)))
    return whole


@pytest.mark.one_of(8)
@pytest.mark.parametrize("name", names())
def test_the_tables_of_parts_are_those_of_one_pass(name: str) -> None:
    whole = of_sample(name)
    size = max(whole.num_rows // 3, 1)
    parts = [whole.slice(begin, size) for begin in range(0, whole.num_rows, size)]
    assert len(parts) > 1
    found = Report.from_store(merged(parts))
    expected = Report.from_events([whole])
    for table in TABLES:
        pd.testing.assert_frame_equal(found.tables[table], expected.tables[table])
    assert found.covered_s == expected.covered_s


@pytest.mark.parametrize("name", ["librdkafka-groups", "midstream", "tls"])
def test_trust_of_parts_is_that_of_the_whole(name: str) -> None:
    whole = of_sample(name)
    expected, found = TrustTotals(), TrustTotals()
    expected.add(whole)
    for row in range(whole.num_rows):
        one = TrustTotals()
        one.add(whole.slice(row, 1))
        found.merge(one)
    assert paragraph(found) == paragraph(expected)
    assert found.sums == expected.sums


@settings(max_examples=examples(100))
@given(BATCHES, BATCHES)
def test_merged_values_are_those_taken_together(
    first: list[list[tuple[float, int]]], second: list[list[tuple[float, int]]]
) -> None:
    both = Condensed(10_000)
    for batches in (first, second):
        both.merge(taken(batches, 10_000), np.arange(4))
    expected = taken([*first, *second], 10_000).quantiles(np.arange(4), 4)
    np.testing.assert_array_equal(both.quantiles(np.arange(4), 4), expected)


def test_merging_keeps_within_the_limit_and_the_error() -> None:
    random = np.random.default_rng(3)
    values = random.lognormal(7, 2, (20, 500))
    whole = Condensed(1_000)
    for part in values:
        one = Condensed(100)
        one.add(np.zeros(500, np.int64), part)
        whole.merge(one, np.array([0]))
        assert len(whole) <= 1_000
    found = whole.quantiles(np.array([0]), 1)[0]
    assert 0 < whole.error < 0.2
    expected = np.percentile(values, [50, 90, 95, 99, 99.9, 100])
    assert (np.abs(found / expected - 1) <= whole.error + 1e-3).all()
    assert found[-1] == expected[-1]
