"""The work that hostile bodies make grows as their size does, and no more is kept of them than has to be."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from body_machine import Machine, calls
from test_body_calls import BY_KEY

from kwsniff.engine import packing

from spec_encoder import Encoder  # isort: skip

ZERO = "00000000-0000-0000-0000-000000000000"


class Counting(list):
    """A table that counts how often it is looked into."""

    looks = 0

    def __getitem__(self, at):
        self.looks += 1
        return super().__getitem__(at)


def produce(topics: list[str], partitions: list[int]) -> bytes:
    parts = [{"index": index, "records": b""} for index in partitions]
    return Encoder(BY_KEY[0, "request"], 3).encode(
        {"transactional_id": None, "acks": 1, "timeout_ms": 0,
         "topic_data": [{"name": name, "partition_data": parts} for name in topics]}
    )  # fmt: skip


def produced(topics: list[str], partitions: list[int]) -> bytes:
    one = {"error_code": 0, "base_offset": 0, "log_append_time_ms": -1}
    parts = [{"index": index, **one} for index in partitions]
    answers = [{"name": name, "partition_responses": parts} for name in topics]
    return Encoder(BY_KEY[0, "response"], 3).encode({"responses": answers, "throttle_time_ms": 0})


HOSTILE: dict[str, Callable[[int], tuple[list[str], list[int]]]] = {
    "partitions upwards": lambda n: (["t"], list(range(n))),
    "partitions downwards": lambda n: (["t"], list(range(n, 0, -1))),
    "one partition again and again": lambda n: (["t"], [7] * n),
    "partitions whose low bits are alike": lambda n: (["t"], [index << 12 for index in range(n)]),
    "many topics": lambda n: ([f"topic-{index}" for index in range(n)], [0]),
    "two topics in turn": lambda n: ([f"topic-{index % 2}" for index in range(n)], [0]),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_finding_partitions_and_topics_again_takes_time_in_proportion(name: str) -> None:
    looks = []
    for size in (500, 1000, 2000):
        machine = Machine()
        for table in ("places", "text_slots"):
            machine.grow(table, 4 * size)
        for table in ("names", "rows", "texts", "call_names", "call_rows"):
            machine.grow(table, 3 * size)
        machine.grow("words", 20 * size)
        machine.grow("text_bytes", 40 * size)
        counting = {
            table: Counting(getattr(machine.t, table)) for table in ("places", "text_slots", "rows", "names")
        }
        machine.t = machine.t._replace(**counting)
        asked, given = produce(*HOSTILE[name](size)), produced(*HOSTILE[name](size))
        machine.read(0, 3, "request", asked, 0, len(asked))
        machine.call(packing.keep, 0)
        machine.read(0, 3, "response", given, 0, len(given))
        machine.call(calls.join, 0, 0)
        assert all(getattr(machine.t, table) is each for table, each in counting.items())
        looks.append(sum(each.looks for each in counting.values()))
    assert looks[1] < 2.2 * looks[0]
    assert looks[2] < 2.2 * looks[1]


def test_a_long_name_is_kept_once_however_often_it_is_said() -> None:
    machine = Machine()
    data = produce(["n" * 4000] * 1000, list(range(3)))
    assert machine.read(0, 3, "request", data, 0, len(data))
    assert machine.row("store").text_bytes == 4000
    assert machine.row("facts").names == 1
    assert machine.row("facts").rows == 3000
    machine.call(packing.keep, 0)
    assert machine.row("store").words_live <= 2 * 5 * 3001
