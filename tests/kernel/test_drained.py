"""Rows of calls are read at their places in a batch, and what they list comes along."""

from __future__ import annotations

import numpy as np
import pytest

from kwsniff.kernel.drained import Chosen, Placed, _distinct
from kwsniff.kernel.machine import RECORDS
from kwsniff.kernel.numbers import NONE

CALLS, NAMES = RECORDS["calls"], RECORDS["call_names"]


def calls(lengths: list[int]) -> np.ndarray:
    rows = np.zeros(len(lengths), CALLS)
    rows["names"], rows["correlation_id"] = lengths, np.arange(len(lengths)) + 10
    return rows


def test_fields_are_blank_where_other_rows_stand() -> None:
    placed = Placed(calls([1, 2]), np.array([1, 3]), 5)
    assert len(placed) == 5
    assert placed["correlation_id"].tolist() == [NONE, 10, NONE, 11, NONE]
    assert placed["names"].tolist() == [0, 1, 0, 2, 0]
    assert placed["first_time"].tolist() == [-1, 0, -1, 0, -1]
    assert placed["client_id"].tolist() == [-1, 0, -1, 0, -1]


def test_other_rows_may_give_a_field_too() -> None:
    ends = np.zeros(2, RECORDS["ends"])
    ends["closed_by"] = [5, 6]
    placed = Placed(calls([1]), np.array([1]), 3)
    placed.put("closed_by", ends, np.array([0, 2]))
    assert placed["closed_by"].tolist() == [5, 0, 6]
    placed.blank("client_id")
    assert placed["client_id"].tolist() == [-1, -1, -1]


@pytest.mark.parametrize("place", [None, [0, 1, 2, 3], [0, 2, 5, 6], [3, 1, 0, 2], [6, 0, 4, 1]])
def test_lists_follow_their_rows(place: list[int] | None) -> None:
    lengths = [2, 0, 3, 1]
    rows = calls(lengths)
    names = np.zeros(sum(lengths), NAMES)
    names["name"] = np.repeat(np.arange(4), lengths) * 10 + np.arange(sum(lengths))
    placed = Placed(rows, None if place is None else np.array(place), 4 if place is None else 7)
    found = iter(Chosen(names, placed.moved(rows["names"]))["name"].tolist())
    listed = [[next(found) for _ in range(count)] for count in placed["names"].tolist()]
    own = {0: [0, 1], 1: [], 2: [22, 23, 24], 3: [35]}
    where = place or [0, 1, 2, 3]
    assert [listed[at] for at in where] == [own[each] for each in range(4)]


@pytest.mark.parametrize(
    ("numbers", "conns", "room"),
    [
        ([7, 3, 7, 9, 3], [0, 2, 0, 1, 2], 3),  # places stand for numbers
        ([7, 3, 7, 9, 3], [0, 2, 0, 0, 2], 3),  # 9 was given the place of 7
        ([7, 3, 7, 9, 3], [0, 2, 1, 4, 2], 5),  # 7 has two places
        ([7, 3, 7, 9, 3], [0, 2, 0, 1, 2], 2),  # a place that is not in use any more
        ([7, 3, 7, 9, 3], [0, 2, 0, -1, 2], 3),
        ([7, 3, 7, 9, 3], [0, 2, 0, 1, 2], 1000),  # few rows of a large table
        ([5], [0], 1),
        ([], [], 0),
    ],
)
def test_connections_of_rows_are_told_apart_by_their_numbers(
    numbers: list[int], conns: list[int], room: int
) -> None:
    distinct, first, whose = _distinct(np.array(numbers, np.int64), np.array(conns, np.int64), room)
    assert distinct.tolist() == sorted(set(numbers))
    assert [numbers[at] for at in first] == distinct.tolist()
    assert [distinct[at] for at in whose] == numbers
