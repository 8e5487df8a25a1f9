"""Batches of a size: the same rows in the same order, and what is one already is not copied."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from kwsniff.count.spool import BATCH_ROWS, even


def numbered(first: int, count: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"number": pa.array(range(first, first + count), pa.int64())})


@pytest.mark.parametrize("seed", range(8))
def test_rows_stay_in_their_order(seed: int) -> None:
    chance = random.Random(seed)
    given, total = [], 0
    for _ in range(40):
        given.append(numbered(total, chance.choice([0, 1, 50, 700, 5000])))
        total += given[-1].num_rows
    made = list(even(given, most=8 * 1000))
    assert [number for batch in made for number in batch["number"].to_pylist()] == list(range(total))
    # Each but the last is full, and none has more than what was waiting and one more piece.
    assert all(batch["number"].nbytes >= 8 * 990 for batch in made[:-1])
    assert all(batch["number"].nbytes <= 8 * 3000 for batch in made)


def test_what_was_cut_in_two_is_not_copied_to_be_one() -> None:
    batch = numbered(0, BATCH_ROWS // 2)
    size = batch["number"].nbytes
    (made,) = even([batch], most=int(size / 1.8))  # two halves would be just below
    assert made.num_rows == batch.num_rows
    assert made["number"].buffers()[1].address == batch["number"].buffers()[1].address
    assert [each.num_rows for each in even([batch], most=size // 2)] == [batch.num_rows // 2] * 2
