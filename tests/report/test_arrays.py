"""Columns read from their buffers are what Arrow says of them."""

from __future__ import annotations

import math
import random
from typing import Any

import pyarrow as pa
import pytest

from kwsniff.rows.columns import SPREAD, integers, numbered, reals, valid

WHOLE = (pa.int8(), pa.int16(), pa.int32(), pa.int64())


def column(kind: pa.DataType, nulls: float) -> pa.Array:
    chance = random.Random(1)
    values: list[Any] = [None if chance.random() < nulls else chance.randrange(-100, 100) for _ in range(100)]
    if pa.types.is_boolean(kind):
        values = [None if each is None else each > 0 for each in values]
    return pa.array(values, kind)


def parts(whole: pa.Array) -> list[pa.Array]:
    """A column, and pieces of it that begin and end within bytes of its bits."""
    return [
        whole,
        whole.slice(3),
        whole.slice(8, 16),
        whole.slice(13, 50),
        whole.slice(99),
        whole.slice(5, 0),
    ]


@pytest.mark.parametrize("nulls", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("kind", [*WHOLE, pa.bool_(), pa.timestamp("us", tz="UTC"), pa.float64()])
def test_of_each_type_values_and_nulls_are_those_of_arrow(kind: pa.DataType, nulls: float) -> None:
    for part in parts(column(kind, nulls)):
        values = part.cast(pa.int64()).to_pylist() if not pa.types.is_floating(kind) else part.to_pylist()
        assert valid(part).tolist() == [each is not None for each in values]
        assert integers(part, -7).tolist() == [-7 if each is None else each for each in values]
        found = reals(part).tolist()
        assert [None if math.isnan(each) else each for each in found] == values


@pytest.mark.parametrize("nulls", [0.0, 0.3])
@pytest.mark.parametrize("kind", WHOLE)
def test_numbers_close_together_are_numbered(kind: pa.DataType, nulls: float) -> None:
    for part in parts(column(kind, nulls)):
        found = numbered(part)
        assert found is not None or part.null_count == len(part)
        if found is not None:
            values, codes = found
            assert [values[code] for code in codes.tolist()] == part.to_pylist()
            assert len(set(values)) == len(values)
            assert set(codes.tolist()) == set(range(len(values)))


def test_numbers_far_apart_are_not() -> None:
    assert numbered(pa.array([0, SPREAD])) is None
    assert numbered(pa.array([-(1 << 62), 1 << 62])) is None
    assert numbered(pa.array([None, 0, SPREAD - 2], pa.int32())) is not None
