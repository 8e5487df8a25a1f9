from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kwsniff.count.percentiles import QUANTILES, Sorted

VALUES = st.one_of(st.floats(-1e12, 1e12), st.just(float("nan")))


@given(st.lists(st.tuples(VALUES, st.integers(-1, 3)), max_size=60))
def test_percentiles_of_groups_are_those_of_numpy(samples: list[tuple[float, int]]) -> None:
    values = np.array([value for value, _ in samples], dtype=np.float64)
    codes = np.array([code for _, code in samples], dtype=np.int64)
    found = Sorted(values).quantiles(codes, 5)
    for group in range(5):
        inside = values[(codes == group) & ~np.isnan(values)]
        if len(inside):
            expected = np.percentile(inside, [100 * quantile for quantile in QUANTILES.values()])
            np.testing.assert_allclose(found[group], expected, rtol=1e-9, atol=1e-3)
        else:
            assert np.isnan(found[group]).all()


def test_more_groups_than_16_bits_number_are_told_apart() -> None:
    count = 70_000
    found = Sorted(np.arange(count, dtype=np.float64)).quantiles(np.arange(count), count)
    assert (found == np.arange(count)[:, None]).all()
