"""Rows of tables are copied as bytes: what comes out is what NumPy's own copies are."""

from __future__ import annotations

import numpy as np
import pytest

from kwsniff.native.records import copied, joined, picked, put

KIND = np.dtype([("a", np.int64), ("b", np.int32), ("c", "S3")])


def rows(count: int, first: int = 0) -> np.ndarray:
    made = np.zeros(count, KIND)
    made["a"], made["b"], made["c"] = np.arange(count) + first, -np.arange(count), b"xy"
    return made


@pytest.mark.parametrize("which", [[True, False, True], [2, 0, 2], [], slice(1, None)])
def test_rows_that_are_picked_are_those_that_numpy_picks(which: object) -> None:
    at = which if isinstance(which, slice) else np.array(which, None if which else np.int64)
    found = picked(rows(3), at)
    assert found.dtype == KIND
    assert found.tolist() == rows(3)[at].tolist()


def test_a_copy_does_not_change_with_the_rows() -> None:
    table = rows(4).view(np.recarray)
    found = copied(table[1:3])
    table["a"] = 9
    assert found.tolist() == rows(4)[1:3].tolist()


def test_rows_are_joined_and_put_in_their_places() -> None:
    table = joined([rows(2), rows(0), rows(1, 7)])
    assert table["a"].tolist() == [0, 1, 7]
    put(table, slice(1), rows(1, 5))
    put(table, np.array([2, 1]), rows(2, 20))
    assert table.tolist() == [(5, 0, b"xy"), (21, -1, b"xy"), (20, 0, b"xy")]
