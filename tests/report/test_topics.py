from __future__ import annotations

from kwsniff.report.topics import FIXED, fill, topic_names
from kwsniff.table import EVENTS

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
