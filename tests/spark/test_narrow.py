"""Whole numbers come out of fewer bytes as they went in."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwsniff.spark.narrow import SAMPLE, narrowed, widened

EVERY = st.integers(-(1 << 63), (1 << 63) - 1)
COLUMN = st.one_of(
    st.lists(EVERY, min_size=20, max_size=20),
    st.lists(EVERY.map(lambda number: number // 1000 // 1000 * 1000), min_size=20, max_size=20),
    st.lists(st.integers(-200, 200), min_size=20, max_size=20),
)


@given(st.lists(COLUMN, max_size=4))
def test_any_columns(given: list[list[int]]) -> None:
    columns = [np.array(each, np.int64) for each in given]
    found = widened(narrowed(columns), len(columns), 20)
    assert [each.tolist() for each in found] == given


@pytest.mark.parametrize(
    ("column", "most"),
    [
        (np.zeros(1000, np.int64), 2),
        (np.random.default_rng(1).integers(-128, 128, 1000), 1002),
        (1_700_000_000_000_000_000 + 5_000 * np.arange(1000), 8002),
        (np.repeat(np.arange(50), 20), 1002),
        (np.zeros(0, np.int64), 2),
    ],
    ids=["zeros", "bytes", "times", "steps", "nothing"],
)
def test_few_bytes(column: np.ndarray, most: int) -> None:
    data = narrowed([column])
    assert len(data) <= most
    assert np.array_equal(widened(data, 1, len(column))[0], column)


def test_what_the_sample_does_not_show() -> None:
    column = np.concatenate([np.full(SAMPLE, 3_000), [1, np.iinfo(np.int64).min, np.iinfo(np.int64).max]])
    assert np.array_equal(widened(narrowed([column, column]), 2, len(column))[1], column)
