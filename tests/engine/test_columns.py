"""Rows of several kinds put into one order: the same as taking them one by one."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from kwsniff.rows import arrays as columns
from kwsniff.rows.arrays import Columns, in_order, repeated

SCHEMA = pa.schema([("number", pa.int64()), ("name", pa.string()), ("own", pa.int64())])


def part(first: int, count: int, *, own: bool) -> tuple[Columns, int]:
    numbers = pa.array(range(first, first + count), pa.int64())
    made: Columns = {
        "number": numbers,
        "name": pa.array([f"row {at}" for at in range(first, first + count)]),
    }
    return made | ({"own": numbers} if own else {}), count


def stretches(count: int, longest: int, chance: random.Random) -> list[int]:
    """All row numbers, in stretches that stand in any order."""
    cuts = sorted({0, count, *(chance.randrange(count) for _ in range(count // longest))})
    pieces = [list(range(*each)) for each in pairwise(cuts)]
    chance.shuffle(pieces)
    return [row for piece in pieces for row in piece]


@pytest.mark.parametrize("longest", [1, 40, 400])
@pytest.mark.parametrize("counts", [(500,), (300, 200), (1, 400, 99)])
def test_rows_come_in_any_order_with_all_their_columns(counts: tuple[int, ...], longest: int) -> None:
    chance = random.Random(f"{counts}, {longest}")
    firsts = np.cumsum([0, *counts])
    parts = [
        part(int(first), count, own=at == 0)
        for at, (first, count) in enumerate(zip(firsts, counts, strict=False))
    ]
    order = stretches(500, longest, chance)
    found = in_order(parts, np.array(order, np.int64), SCHEMA)
    assert found["number"].to_pylist() == order
    assert found["name"].to_pylist() == [f"row {row}" for row in order]
    assert found["own"].to_pylist() == [row if row < counts[0] else None for row in order]


def test_of_many_texts_that_are_repeated_few_are_kept() -> None:
    """A stream gives each batch another capture file, and an array of its name takes a quarter of a
    megabyte."""
    for number in range(200):
        text = f"capture-{number}.pcap"
        assert repeated(text, 3).to_pylist() == [text] * 3
    assert repeated("capture-0.pcap", 2).to_pylist() == ["capture-0.pcap"] * 2
    assert len(columns._REPEATED) <= columns.MOST_REPEATED
