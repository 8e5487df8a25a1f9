from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kwsniff.count.percentiles import BUCKETS
from kwsniff.live.screen.screenrows import LATENCIES, SLOT_NS, SLOTS, WINDOW_S, ScreenTimeline, ScreenWindow

SECOND = 10**9
NOON = 1_700_000_000 * SECOND // SLOT_NS * SLOT_NS


class Counter:
    """A timeline and a window of three rows."""

    def __init__(self) -> None:
        self.timeline, self.window = ScreenTimeline(), ScreenWindow(3)

    def at(self, seconds: float) -> None:
        for place in self.timeline.advance(NOON + round(seconds * SECOND)):
            self.window.forget(place)

    def count(self, seconds: float, row: int, number: int = 1) -> None:
        times = np.full(number, NOON + round(seconds * SECOND))
        places = self.timeline.places(times)
        inside = places >= 0
        rows = np.full(number, row)[inside]
        values = {"calls": np.ones(len(rows), np.int64), LATENCIES: np.full(len(rows), 7)}
        self.window.count(rows, places[inside], values)

    def calls(self) -> list[int]:
        return self.window.totals["calls"].tolist()


def test_a_clock_set_back_by_an_hour_begins_a_new_window() -> None:
    counter = Counter()
    counter.at(7200)
    counter.count(7200, row=1, number=5)
    counter.at(3600)
    assert counter.calls() == [0, 0, 0]
    counter.count(3600, row=1)
    counter.at(3610)
    assert counter.calls() == [0, 1, 0]


def test_a_clock_a_little_behind_changes_nothing() -> None:
    counter = Counter()
    counter.at(100)
    counter.count(100, row=1)
    counter.at(95)
    assert counter.calls() == [0, 1, 0]
    assert counter.timeline.now_ns == NOON + 100 * SECOND


def test_merged_rows_add_up_and_leave_the_window_together() -> None:
    counter = Counter()
    counter.at(0)
    counter.count(0, row=1, number=3)
    counter.count(0, row=2, number=4)
    counter.window.merge(2, 0)
    assert counter.calls() == [4, 3, 0]
    assert counter.window.totals[LATENCIES].sum(axis=1).tolist() == [4, 3, 0]
    counter.at(64)
    assert counter.calls() == [0, 0, 0]
    assert counter.window.totals[LATENCIES].sum() == 0


EDGES = st.sampled_from([0, 3, WINDOW_S, WINDOW_S + SLOT_NS / SECOND, 3600])
Steps = st.lists(
    st.tuples(st.floats(0, 40) | EDGES, st.floats(0, 70) | EDGES, st.integers(0, 2)), max_size=30
)


@given(Steps)
def test_the_window_holds_what_a_list_of_times_says(steps: list[tuple[float, float, int]]) -> None:
    counter, now = Counter(), 0.0
    noted: list[tuple[int, int]] = []
    for wait, age, row in steps:
        now += wait
        counter.at(now)
        counter.count(now - age, row)
        noted.append(((NOON + round((now - age) * SECOND)) // SLOT_NS, row))
    oldest = (NOON + round(now * SECOND)) // SLOT_NS - SLOTS
    expected = [sum(slot > oldest and of == row for slot, of in noted) for row in range(3)]
    assert counter.calls() == expected
    assert counter.window.totals[LATENCIES][:, 7].tolist() == expected
    assert counter.window.totals[LATENCIES].sum() == sum(expected)
    assert counter.window.totals[LATENCIES].shape == (3, BUCKETS)
