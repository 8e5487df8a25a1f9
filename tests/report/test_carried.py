"""Fetch sessions over rows that are taken in parts, held against one run over all of them."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kwsniff.config import Config
from kwsniff.count.sessions import Changes, Sessions, bounded, composed, followed, noticed
from kwsniff.run.offline import events
from tests.report.events import batch
from tests.report.test_session_course import cut, fetches
from tests.samples import sample
from tests.strength import examples

ROWS = st.lists(fetches(), max_size=12)


def done(*rows: dict[str, Any]) -> Changes:
    return noticed([batch(*rows)] if rows else [])


def known(changes: Changes) -> dict[Any, Any]:
    return {name: change.offsets for name, change in changes.items()}


def listed(opened: dict[Any, dict[Any, int | None]]) -> list[tuple[Any, list[tuple[Any, int | None]]]]:
    """With the order of sessions, and of partitions in each."""
    return [(name, list(offsets.items())) for name, offsets in opened.items()]


@settings(max_examples=examples(500))
@given(before=ROWS, first=ROWS, later=ROWS)
def test_changes_do_to_sessions_what_their_calls_do(
    before: list[dict[str, Any]], first: list[dict[str, Any]], later: list[dict[str, Any]]
) -> None:
    sessions = Sessions()
    state: Changes = {}
    for rows in (before, first, later):
        if rows:
            sessions.fill(batch(*rows))
        state = composed(state, done(*rows))
        assert listed(known(state)) == listed(sessions.open())
    both = composed(done(*first), done(*later))
    assert listed(known(composed(done(*before), both))) == listed(sessions.open())
    assert both == done(*first, *later)


@settings(max_examples=examples(500))
@given(first=ROWS, second=ROWS, third=ROWS)
def test_changes_compose_in_any_grouping(
    first: list[dict[str, Any]], second: list[dict[str, Any]], third: list[dict[str, Any]]
) -> None:
    one, two, three = done(*first), done(*second), done(*third)
    left, right = composed(composed(one, two), three), composed(one, composed(two, three))
    assert left == right
    assert listed(known(left)) == listed(known(right))
    assert [each.gone for each in left.values()] == [each.gone for each in right.values()]


@settings(max_examples=examples(300))
@given(rows=st.lists(fetches(), min_size=1, max_size=30), data=st.data())
def test_rows_of_parts_are_those_of_one_run(rows: list[dict[str, Any]], data: st.DataObject) -> None:
    ends = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=4)))
    expected = Sessions().fill(batch(*rows)).to_pylist()
    found, state = [], dict(done())
    for part in cut(rows, ends):
        if part:
            found += Sessions(known=known(state)).fill(batch(*part)).to_pylist()
        state = composed(state, done(*part))
    assert found == expected


@settings(max_examples=examples(200))
@given(rows=st.lists(fetches(), min_size=1, max_size=20), most=st.integers(1, 4), size=st.integers(1, 8))
def test_what_is_kept_at_a_cut_is_bounded_as_a_run_bounds_it(
    rows: list[dict[str, Any]], most: int, size: int
) -> None:
    state = done(*rows)
    kept = bounded(state, sessions=most, partitions=size)
    assert listed(known(kept)) == listed(Sessions(sessions=most, partitions=size, known=known(state)).open())
    assert list(kept) == list(state)[len(state) - len(kept) :]
    assert len(kept) == 1 or sum(len(each.offsets) for each in kept.values()) <= size


@pytest.mark.parametrize("name", ["java-streams", "java-groups"])
@pytest.mark.parametrize("seed", range(5))
def test_recorded_sessions_cut_anywhere_are_those_of_one_run(name: str, seed: int) -> None:
    table = pa.Table.from_batches(list(events(sample(name).paths, Config()))).combine_chunks()
    (whole,) = table.to_batches()
    expected = pa.Table.from_batches(list(followed([whole])))
    assert expected["topics"].null_count < whole["topics"].null_count
    ends = sorted(random.Random(seed).choices(range(whole.num_rows), k=4))
    found: list[pa.RecordBatch] = []
    state: Changes = {}
    for first, end in zip([0, *ends], [*ends, whole.num_rows], strict=True):
        part = whole.slice(first, end - first)
        found += followed([part], known=known(state))
        state = bounded(composed(state, noticed([part])))
    assert pa.Table.from_batches(found).equals(expected)
