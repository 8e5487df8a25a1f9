"""What tallies and readings keep in arrays is what plain Python keeps of the same rows, in whatever pieces
they come."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kwsniff.analysis.positions import LIMIT, Readings
from kwsniff.count.eventrows import Coded, EventBatch, EventRows
from kwsniff.count.tally import NAME_LENGTH, Packet, Tally
from tests.findings.wide import SCHEMA, row
from tests.report.events import START

CAPTURES = ("a.pcap", "b.pcap")
LONG = "x" * NAME_LENGTH
NAMES = (None, "app", "other", LONG + "1", LONG + "2")
"""The last two are one name, as long as is kept."""


def rows_of(chance: random.Random, count: int) -> list[dict[str, Any]]:
    """Calls at few different times, so that many are at the same one."""
    return [
        row(
            chance.randrange(12),
            capture=chance.choice(CAPTURES),
            client_id=chance.choice(NAMES),
            response_packet=chance.randrange(9),
            response_bytes=chance.randrange(1000),
        )
        for _ in range(count)
    ]


def batch_of(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, SCHEMA)


def tallied(rows: list[dict[str, Any]]) -> Tally:
    tally, events = Tally(), EventRows(batch_of(rows))
    sizes = events.ints("response_bytes")
    tally.add(events, np.ones(len(rows), np.bool_), [events.coded("client_id")], [sizes], [sizes])
    return tally


def in_pieces(rows: list[dict[str, Any]], merged: bool) -> Tally:
    whole = Tally()
    for begin in range(0, len(rows), 17):
        events = EventRows(batch_of(rows[begin : begin + 17]))
        sizes, every = events.ints("response_bytes"), np.ones(len(events), np.bool_)
        if merged:
            whole.merge(tallied(rows[begin : begin + 17]))
        else:
            whole.add(events, every, [events.coded("client_id")], [sizes], [sizes])
    return whole


@pytest.mark.parametrize(
    "take",
    [tallied, lambda rows: in_pieces(rows, merged=False), lambda rows: in_pieces(rows, merged=True)],
    ids=["at once", "batch by batch", "merged"],
)
def test_a_tally_counts_what_plain_python_counts(take: Callable[[list[dict[str, Any]]], Tally]) -> None:
    rows = rows_of(random.Random(3), 200)
    mine: dict[Any, list[dict[str, Any]]] = {}
    for each in rows:
        mine.setdefault((each["client_id"] and each["client_id"][:NAME_LENGTH],), []).append(each)
    entries = take(rows).entries
    assert set(entries) == set(mine)
    for key, some in mine.items():
        entry, sizes = entries[key], [each["response_bytes"] for each in some]
        assert (entry.count, entry.sums, entry.maxes) == (len(some), [sum(sizes)], [max(sizes)])
        times = [each["time"] for each in some]
        assert (entry.first.time, entry.last.time) == (min(times), max(times))
        shown = {(each["time"], each["capture"], each["response_packet"]) for each in some}
        assert {tuple(entry.first), tuple(entry.last)} <= shown


def test_of_batches_whose_packets_have_the_same_time_the_order_does_not_matter() -> None:
    chance = random.Random(5)
    pieces = [rows_of(chance, 8) for _ in range(12)]
    found = []
    for _ in range(6):
        chance.shuffle(pieces)
        tally = Tally()
        for piece in pieces:
            tally.merge(tallied(piece))
        found.append(tally.entries)
    assert all(each == found[0] for each in found)


def test_what_is_beyond_the_limit_is_one_entry_with_its_first_and_last_packet() -> None:
    rows = [row(at, client_id=f"c{at}", response_packet=at + 1, capture="a.pcap") for at in range(300)]
    events, tally = EventRows(batch_of(rows)), Tally(limit=40)
    for begin in range(0, 300, 30):
        tally.add(events, np.arange(begin, begin + 30), [events.coded("client_id")])
    (rest,) = (entry for key, entry in tally.entries.items() if key == ("(others)",))
    kept = {key[0] for key in tally.entries}
    gone = [at for at in range(300) if f"c{at}" not in kept]
    assert rest.count == len(gone) > 200
    assert (rest.first, rest.last) == tuple(
        Packet(START + at, "a.pcap", at + 1) for at in (min(gone), max(gone))
    )


def reading(at: int, partition: int, offset: int, packet: int) -> dict[str, Any]:
    part = {"topic": "orders", "partition": partition, "error_code": 0, "fetch_offset": offset}
    part["high_watermark"] = offset + 5
    return row(at, api_key=1, api="Fetch", partitions=[part], response_packet=packet, capture="a.pcap")


def readings(rows: list[dict[str, Any]], size: int) -> Readings:
    found = Readings()
    for begin in range(0, len(rows), size):
        events = EventBatch(batch_of(rows[begin : begin + size]))
        parts = events.partitions
        offset, end = parts.floats("fetch_offset"), parts.floats("high_watermark")
        found.add(events, offset >= 0, [], offset, end)
    return found


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_the_first_and_the_last_reading_are_those_of_time_then_offset_then_packet(size: int) -> None:
    chance = random.Random(11)
    given = [[chance.randrange(limit) for limit in (6, 4, 5, 50)] for _ in range(400)]
    found = readings([reading(*each) for each in given], size).of
    for partition in range(4):
        mine = sorted((START + at, offset, packet) for at, own, offset, packet in given if own == partition)
        ends = found["orders", partition]
        assert [(end.packet.time, end.offset, end.packet.number) for end in ends] == [mine[0], mine[-1]]
        assert [end.end - end.offset for end in ends] == [5, 5]


def test_partitions_beyond_the_limit_are_not_followed_but_known_ones_are() -> None:
    first = readings([reading(at, at, 10, 1) for at in range(LIMIT + 3)], 2000)
    first.merge(readings([reading(LIMIT + 5, partition, 99, 2) for partition in (0, LIMIT + 1)], 2))
    assert len(first.of) == LIMIT
    assert [end.offset for end in first.of["orders", 0]] == [10, 99]
    assert ("orders", LIMIT + 1) not in first.of


def test_a_topic_that_is_called_as_the_uuid_of_another_one_is_one_with_it() -> None:
    uuid = "11111111-2222-3333-4444-555555555555"
    by_name, by_id = reading(1, 0, 10, 1), reading(2, 0, 20, 2)
    by_name["partitions"][0]["topic"] = uuid
    by_id["partitions"][0] |= {"topic": None, "topic_id": uuid}
    found = readings([by_name, by_id], 2).of
    assert {key: [end.offset for end in ends] for key, ends in found.items()} == {(uuid, 0): [10, 20]}


def test_a_key_of_several_columns_is_each_combination() -> None:
    events, tally = EventRows(batch_of([row(at) for at in range(6)])), Tally()
    keys = [Coded(["a", "b"], np.array([0, 0, 1, 1, 0, 1])), Coded([1, None], np.array([0, 1, 0, 0, 0, 0]))]
    tally.add(events, np.ones(6, np.bool_), keys)
    counts = {key: entry.count for key, entry in tally.entries.items()}
    assert counts == {("a", 1): 2, ("a", None): 1, ("b", 1): 3}
