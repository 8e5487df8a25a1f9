"""What rows of calls list comes along when they change their places, and fields that other rows give."""

from __future__ import annotations

import numpy as np
import pytest

from kwsniff.engine.drained import Chosen, Placed
from kwsniff.engine.machine import RECORDS

CALLS, NAMES = RECORDS["calls"], RECORDS["call_names"]


def calls(lengths: list[int]) -> np.ndarray:
    rows = np.zeros(len(lengths), CALLS)
    rows["names"], rows["correlation_id"] = lengths, np.arange(len(lengths)) + 10
    return rows


def test_a_field_of_calls_is_blank_unless_other_rows_give_it() -> None:
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
