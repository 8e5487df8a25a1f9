from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from kwsniff.count.topics import FIXED, Unnamed, fill, topic_names
from kwsniff.rows.schema import EVENTS

from .events import batch, call, event


def test_names_are_learnt_where_name_and_uuid_stand_at_the_same_position() -> None:
    rows = [
        call(topics=["a", None, "c"], topic_ids=["u1", "u2", None]),
        call(topics=["d"], topic_ids=None),
        call(topics=None, topic_ids=["u4"]),
        call(topics=["b", "e"], topic_ids=["u2"]),
        call(topics=["other"], topic_ids=["u1"]),
    ]
    assert topic_names([batch(*rows)]) == FIXED | {"u1": "a", "u2": "b"}
    assert topic_names(iter([])) == FIXED


def test_filling_names_topics_and_partitions_by_uuid_and_keeps_the_rest() -> None:
    rows = [
        call(
            topics=[None, "b", None],
            topic_ids=["u1", "u2", "u9"],
            partitions=[{"topic_id": "u1", "partition": 3, "bytes": 7}, {"topic": "b", "partition": 1}],
        ),
        call(topics=None, topic_ids=["u2"]),
        call(topics=[None], topic_ids=None),
        event(event="anomaly", code="gap"),
        call(topics=[], topic_ids=[], partitions=[]),
    ]
    filled = fill(batch(*rows), {"u1": "a", "u2": "b"})
    assert filled.schema.equals(EVENTS, check_metadata=True)
    filled.validate(full=True)
    assert filled["topics"].to_pylist() == [["a", "b", None], ["b"], [None], None, []]
    assert filled["topic_ids"].to_pylist() == [["u1", "u2", "u9"], ["u2"], None, None, []]
    partitions = filled["partitions"].to_pylist()
    assert [part["topic"] for part in partitions[0]] == ["a", "b"]
    assert [(part["partition"], part["bytes"]) for part in partitions[0]] == [(3, 7), (1, None)]
    assert partitions[1:] == [None, None, None, []]
    for name in set(EVENTS.names) - {"topics", "partitions"}:
        assert filled[name].equals(batch(*rows)[name])


def test_a_slice_is_filled_like_a_batch_of_its_rows() -> None:
    rows = [
        call(topics=[None, None], topic_ids=["u1", f"u{n}"], partitions=[{"topic_id": "u1"}])
        for n in range(9)
    ]
    names = {"u1": "a", "u5": "e"}
    assert fill(batch(*rows).slice(4, 3), names).to_pylist() == fill(batch(*rows[4:7]), names).to_pylist()


def test_without_names_a_batch_stays_as_it_is() -> None:
    given = batch(call(topics=[None], topic_ids=["u1"]))
    assert fill(given, {}) is given
    assert fill(given, {"u2": "b"}).equals(given)


NAMES = st.sampled_from([None, None, "a", "b", "c"])
UUIDS = st.sampled_from([None, "u1", "u2", "u3", "u4"])
PARTS = st.builds(lambda name, uuid: {"topic": name, "topic_id": uuid, "partition": 1}, NAMES, UUIDS)


@st.composite
def rows(draw: st.DrawFn) -> dict[str, Any]:
    topics = draw(st.none() | st.lists(NAMES, max_size=3))
    ids = draw(st.none() | st.lists(UUIDS, min_size=topics is None, max_size=3))
    return call(topics=topics, topic_ids=ids, partitions=draw(st.none() | st.lists(PARTS, max_size=3)))


def named_by_hand(row: dict[str, Any], names: dict[str, str]) -> tuple[Any, Any]:
    topics, ids = row["topics"], row["topic_ids"]
    if topics is None and ids is not None:
        topics = [None] * len(ids)
    if topics is not None:
        beside = [*(ids or ()), *[None] * len(topics)]
        topics = [name or names.get(uuid) for name, uuid in zip(topics, beside, strict=False)]
    parts = row["partitions"] and [part["topic"] or names.get(part["topic_id"]) for part in row["partitions"]]
    return topics, parts


def unnamed_by_hand(row: dict[str, Any]) -> set[str]:
    topics, ids = row["topics"], row["topic_ids"] or ()
    beside = zip([None] * len(ids) if topics is None else topics, ids, strict=False)
    parts = [(part["topic"], part["topic_id"]) for part in row["partitions"] or ()]
    return {uuid for name, uuid in [*beside, *parts] if name is None and uuid is not None}


@given(st.lists(rows(), min_size=1, max_size=8), st.data())
def test_names_are_filled_in_as_by_hand_in_batches_and_slices_of_them(
    made: list[dict[str, Any]], data: st.DataObject
) -> None:
    names = data.draw(
        st.dictionaries(st.sampled_from(["u1", "u2", "u3"]), st.sampled_from(["a", "d"]), min_size=1)
    )
    first = data.draw(st.integers(0, len(made) - 1))
    some = made[first : data.draw(st.integers(first + 1, len(made)))]
    part = batch(*made).slice(first, len(some))
    assert Unnamed(part).uuids() == set().union(*map(unnamed_by_hand, some))
    found = fill(part, names)
    found.validate(full=True)
    assert found.schema.equals(EVENTS, check_metadata=True)
    columns = found["topics"].to_pylist(), found["partitions"].to_pylist()
    for row, topics, parts in zip(some, *columns, strict=True):
        assert (topics, parts and [each["topic"] for each in parts]) == named_by_hand(row, names)


@given(st.lists(rows(), max_size=8))
def test_the_first_name_that_stands_beside_a_uuid_is_its_name(made: list[dict[str, Any]]) -> None:
    expected = dict(FIXED)
    for row in made:
        for name, uuid in zip(row["topics"] or (), row["topic_ids"] or (), strict=False):
            if name is not None and uuid is not None:
                expected.setdefault(uuid, name)
    assert topic_names([batch(*made)]) == topic_names([pa.Table.from_batches([batch(*made)])]) == expected


def test_a_name_that_is_too_long_leaves_room_for_another() -> None:
    given = [call(topics=["x" * 250, "y"], topic_ids=["u1", "u1"]), call(topics=["z"], topic_ids=["u1"])]
    assert topic_names([batch(*given)]) == FIXED | {"u1": "y"}
