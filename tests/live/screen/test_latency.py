from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwsniff.count.percentiles import BUCKETS, ERROR, buckets, quantiles

LEAST_US, MOST_US = 1.06, 5000e6
MICROSECONDS = st.floats(LEAST_US, MOST_US)
QUANTILES = (0.5, 0.95, 0.99)


def percentiles(values: list[float]) -> np.ndarray:
    counts = np.bincount(buckets(np.array(values, float)), minlength=BUCKETS)
    return quantiles(counts[None, :], QUANTILES)[0]


@given(st.lists(MICROSECONDS, min_size=1, max_size=200))
def test_percentiles_are_within_the_stated_error_of_those_of_pandas(values: list[float]) -> None:
    exact = pd.Series(values).quantile(list(QUANTILES)).to_numpy()
    assert percentiles(values) == pytest.approx(exact, rel=ERROR * 1.0001)


@pytest.mark.parametrize("value", [0.0, 0.4, 1.0, -3.0])
def test_what_is_no_longer_than_a_microsecond_is_none(value: float) -> None:
    assert (percentiles([value]) == 0).all()


@pytest.mark.parametrize("value", [6000e6, 1e12])
def test_what_is_longer_than_the_most_counts_as_the_most(value: float) -> None:
    assert percentiles([value]) == pytest.approx([5452e6] * 3, rel=0.03)


def test_without_calls_there_are_no_percentiles() -> None:
    assert np.isnan(percentiles([])).all()
