from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from kwsniff.count.naming import named
from tests.cli.conftest import call
from tests.cli.stand_in import batch_of

A, B = "aaaaaaaa-0000-4000-8000-000000000001", "bbbbbbbb-0000-4000-8000-000000000002"


def nameless(number: int, uuid: str = A) -> dict[str, Any]:
    partitions = [{"topic": None, "topic_id": uuid, "partition": 0}]
    return call(correlation_id=number, topics=[None], topic_ids=[uuid], partitions=partitions)


def naming(number: int, uuid: str = A, name: str = "orders") -> dict[str, Any]:
    return call(correlation_id=number, topics=[name], topic_ids=[uuid])


def seen(batches: Iterator[pa.RecordBatch]) -> list[tuple[int, list[str | None]]]:
    return [(row["correlation_id"], row["topics"]) for batch in batches for row in batch.to_pylist()]


@pytest.mark.parametrize("memory", [1 << 20, 0], ids=["in memory", "on disk"])
def test_rows_get_names_that_come_later_and_keep_their_order(memory: int) -> None:
    rows = [
        call(correlation_id=0),
        nameless(1),
        nameless(2, B),
        naming(3),
        nameless(4),
        naming(5, B, "pay"),
        call(),
    ]
    batches = iter([batch_of([row]) for row in rows])
    result = seen(named(batches, memory=memory))
    assert [number for number, _ in result] == [0, 1, 2, 3, 4, 5, 7]
    assert [topics for _, topics in result[1:6]] == [["orders"], ["pay"], ["orders"], ["orders"], ["pay"]]


def test_partitions_get_names_too() -> None:
    (first, _) = named(iter([batch_of([nameless(1)]), batch_of([naming(2)])]))
    assert first["partitions"].to_pylist()[0][0]["topic"] == "orders"


@pytest.mark.parametrize("memory", [1 << 20, 0], ids=["in memory", "on disk"])
def test_rows_whose_topic_is_never_named_come_at_the_end_of_the_input(memory: int) -> None:
    batches = iter([batch_of([nameless(1, B)]), batch_of([naming(2)]), batch_of([nameless(3)])])
    assert seen(named(batches, memory=memory)) == [(1, [None]), (2, ["orders"]), (3, ["orders"])]


def test_nothing_is_held_before_the_first_unknown_uuid_nor_after_the_last_is_named() -> None:
    taken: list[int] = []

    def source() -> Iterator[pa.RecordBatch]:
        for number, row in enumerate([call(), nameless(1), call(), naming(3), call(), nameless(5)]):
            taken.append(number)
            yield batch_of([row])

    stream = named(source())
    reads = [len(taken) for _ in stream]
    assert reads == [1, 4, 4, 4, 5, 6]


def test_without_holding_each_batch_gets_the_names_known_by_then() -> None:
    batches = iter([batch_of([nameless(1)]), batch_of([naming(2)]), batch_of([nameless(3)])])
    assert seen(named(batches, hold=False)) == [(1, [None]), (2, ["orders"]), (3, ["orders"])]
