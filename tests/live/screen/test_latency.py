from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwsniff.live.screen import latency

MICROSECONDS = st.floats(latency.LEAST_US, latency.MOST_US * 0.99)


def percentiles(values: list[float]) -> np.ndarray:
    counts = np.bincount(latency.bins(np.array(values, float)), minlength=latency.BINS)
    return latency.quantiles(counts[None, :])[0]


@given(st.lists(MICROSECONDS, min_size=1, max_size=200))
def test_percentiles_are_within_the_stated_error_of_those_of_pandas(values: list[float]) -> None:
    exact = pd.Series(values).quantile(list(latency.QUANTILES)).to_numpy()
    assert percentiles(values) == pytest.approx(exact, rel=latency.ERROR * 1.0001)


def test_the_stated_error_is_two_and_a_half_percent_up_to_five_minutes() -> None:
    assert 0.024 < latency.ERROR < 0.025
    assert latency.MOST_US >= 300e6


@pytest.mark.parametrize("value", [0.0, 0.4, 9.9, -3.0])
def test_what_is_shorter_than_the_least_is_no_longer_than_it(value: float) -> None:
    assert (percentiles([value]) < latency.LEAST_US).all()


@pytest.mark.parametrize("value", [400e6, 1e12])
def test_what_is_longer_than_the_most_counts_as_the_most(value: float) -> None:
    assert percentiles([value]) == pytest.approx([latency.MOST_US] * 3, rel=0.06)


def test_without_calls_there_are_no_percentiles() -> None:
    assert np.isnan(percentiles([])).all()
