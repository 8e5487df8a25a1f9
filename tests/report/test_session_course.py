"""Fetch sessions followed batch by batch, held against a plain dictionary that goes from call to call."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kwsniff.count import sessions
from kwsniff.count.sessions import Sessions
from tests.report.events import batch, call
from tests.strength import examples

TOPICS = st.sampled_from([("a", None), ("b", None), (None, "u1"), (None, "u2"), ("a", "u1"), (None, None)])
NUMBERS = st.sampled_from([0, 1, 2, 900_000, None])
OFFSETS = st.none() | st.integers(-1, 5)


@st.composite
def places(draw: st.DrawFn) -> list[dict[str, Any]] | None:
    if draw(st.booleans()):
        return draw(st.sampled_from([None, []]))
    part = st.tuples(TOPICS, NUMBERS, OFFSETS)
    return [
        {"topic": name, "topic_id": uuid, "partition": number, "fetch_offset": offset}
        for (name, uuid), number, offset in draw(st.lists(part, max_size=4))
    ]


@st.composite
def fetches(draw: st.DrawFn) -> dict[str, Any]:
    return call(
        broker_port=draw(st.sampled_from([9092, 9093])),
        session_id=draw(st.sampled_from([None, 0, 1, 1, 2, 3])),
        session_epoch=draw(st.sampled_from([None, -1, 0, 1, 2, 3, 4, 5])),
        topics=draw(st.none() | st.lists(st.sampled_from(["t", None]), max_size=2)),
        asked=draw(places()),
        partitions=draw(places()),
    )


class Model:
    """One call after the other, in order of use."""

    def __init__(self, most: int, partitions: int, shown: int) -> None:
        self.most, self.partitions, self.shown = most, partitions, shown
        self.open: dict[Any, dict[Any, int | None]] = {}

    def take(self, row: dict[str, Any], idle: bool) -> dict[str, Any]:
        if not row["session_id"] or row["session_epoch"] is None or row["session_epoch"] < 0:
            return row
        name = row["broker_ip"], row["broker_port"], row["session_id"]
        session = self.open.pop(name, {}) if row["session_epoch"] else {}
        self.open.pop(name, None)
        self.open[name] = session
        row = row | self.filled(row, session)
        if row["session_epoch"]:
            row |= self.about(row, session, idle)
        while len(self.open) > self.most or (self.size() > self.partitions and len(self.open) > 1):
            del self.open[next(iter(self.open))]
        return row

    def size(self) -> int:
        return sum(map(len, self.open.values()))

    def filled(self, row: dict[str, Any], session: dict[Any, int | None]) -> dict[str, Any]:
        for part in row["asked"] or ():
            if part["fetch_offset"] is None:
                session.pop(key_of(part), None)
            else:
                session[key_of(part)] = part["fetch_offset"]
        made = []
        for part in row["partitions"] or ():
            if part["fetch_offset"] is not None or key_of(part) not in session:
                session[key_of(part)] = part["fetch_offset"]
            made.append(part | {"fetch_offset": session[key_of(part)]})
        return {"partitions": made} if made else {}

    def about(self, row: dict[str, Any], session: dict[Any, int | None], idle: bool) -> dict[str, Any]:
        topics = list(dict.fromkeys((topic, uuid) for topic, uuid, _ in session))
        found: dict[str, Any] = {}
        if topics:
            found["topics"] = [topic for topic, _ in topics]
        if any(uuid for _, uuid in topics):
            found["topic_ids"] = [uuid for _, uuid in topics]
        if idle and session and not row["partitions"]:
            names = ("topic", "topic_id", "partition")
            found["partitions"] = [
                dict(zip(names, key, strict=True)) | {"fetch_offset": offset}
                for key, offset in list(session.items())[: self.shown]
            ]
        return found


def key_of(part: dict[str, Any]) -> tuple[Any, Any, int]:
    return part["topic"], part["topic_id"], -1 if part["partition"] is None else part["partition"]


def told(row: dict[str, Any]) -> tuple[Any, ...]:
    parts = row["partitions"]
    offsets = parts and [
        (part["topic"], part["topic_id"], part["partition"], part["fetch_offset"]) for part in parts
    ]
    return row["topics"], row["topic_ids"], offsets


def cut(rows: list[Any], at: list[int]) -> Iterator[list[Any]]:
    for first, end in zip([0, *at], [*at, len(rows)], strict=True):
        yield rows[first:end]


@pytest.mark.parametrize("idle", [True, False])
@settings(max_examples=examples(500))
@given(
    rows=st.lists(fetches(), min_size=1, max_size=30),
    most=st.integers(1, 4),
    partitions=st.integers(1, 12),
    data=st.data(),
)
def test_calls_are_about_what_a_model_that_goes_call_by_call_says(
    idle: bool, rows: list[dict[str, Any]], most: int, partitions: int, data: st.DataObject
) -> None:
    model = Model(most, partitions, shown=3)
    expected = [told(model.take(row, idle)) for row in rows]
    ends = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=3)))
    found = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sessions, "MAX_SHOWN", 3)
        following = Sessions(sessions=most, partitions=partitions, idle=idle)
        whole, first = batch(*rows), 0
        for part in cut(rows, ends):
            filled = following.fill(whole.slice(first, len(part)))
            filled.validate(full=True)
            found += [told(row) for row in filled.to_pylist()]
            first += len(part)
    assert found == expected
