from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kwsniff.count.percentiles import QUANTILES, Condensed
from tests.strength import examples

PERCENTS = [100 * quantile for quantile in QUANTILES.values()]
VALUES = st.floats(-1e9, 1e9).map(lambda value: round(value, 3))
BATCHES = st.lists(st.lists(st.tuples(VALUES, st.integers(0, 3)), max_size=40), max_size=8)


def taken(batches: list[list[tuple[float, int]]], limit: int) -> Condensed:
    kept = Condensed(limit)
    for batch in batches:
        values = np.array([value for value, _ in batch], np.float64)
        kept.add(np.array([key for _, key in batch], np.int64), values)
    return kept


@given(BATCHES)
def test_few_values_have_the_percentiles_of_numpy(batches: list[list[tuple[float, int]]]) -> None:
    kept = taken(batches, 10_000)
    found = kept.quantiles(np.array([0, 1, -1, 0]), 2)
    for group, keys in enumerate(({0, 3}, {1})):
        inside = [value for batch in batches for value, key in batch if key in keys]
        if inside:
            np.testing.assert_allclose(found[group], np.percentile(inside, PERCENTS), rtol=1e-9, atol=1e-6)
        else:
            assert np.isnan(found[group]).all()
    assert kept.error == 0


@settings(max_examples=examples(300))
@given(BATCHES)
def test_values_are_off_by_no_more_than_the_stated_error(batches: list[list[tuple[float, int]]]) -> None:
    limit = 60
    kept = taken(batches, limit)
    assert len(kept) <= limit
    identity = np.arange(4)
    found = kept.quantiles(identity, 4)
    for key in range(4):
        inside = sorted(value for batch in batches for value, at in batch if at == key)
        if not inside:
            assert np.isnan(found[key]).all()
            continue
        assert found[key][-1] == inside[-1], "the greatest is exact"
        for column, quantile in enumerate(QUANTILES.values()):
            place = quantile * (len(inside) - 1)
            below, above = inside[int(place)], inside[min(int(place) + 1, len(inside) - 1)]
            room = kept.error * max(abs(below), abs(above)) + 2e-3
            low, high = below - room, above + room
            assert low <= found[key][column] <= high


def test_new_keys_may_bring_values_together() -> None:
    kept = taken([[(1.0, 0), (2.0, 1), (3.0, 2)]], 10)
    found = kept.rekeyed(np.array([0, 0, 1])).quantiles(np.array([0, 1]), 2)
    assert found[0][0] == 1.5
    assert found[1][0] == 3.0
    assert kept.quantiles(np.array([0, 1, 2]), 3)[1][0] == 2.0
