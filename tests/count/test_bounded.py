"""What is kept of rows by key is bounded, and is what plain Python keeps, in whatever pieces they come."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kwsniff.analysis.findings import NEEDED, RULES, Findings
from kwsniff.analysis.lag import LIMIT, Readings
from kwsniff.analysis.rule import NOT_SHOWN, OK
from kwsniff.count.codes import OTHERS, Coded
from kwsniff.count.eventrows import EventBatch, EventRows
from kwsniff.count.percentiles import BUCKETS, MAX_KEYS, Histogram, quantile
from kwsniff.count.spans import MAX_SPANS, Spans
from kwsniff.count.tally import NAME_LENGTH, Packet, Tally
from kwsniff.rows.schema import EVENTS
from tests.analysis.wide import SCHEMA, connection, row, taken
from tests.report.events import START, batch, call

# What rules keep is bounded whatever the input, and what they count is exact all the same


def test_a_tally_keeps_the_greatest_and_counts_all() -> None:
    tally = Tally(limit=10)
    rows = EventRows(batch(*(call() for _ in range(500))))
    keys = np.array([number % 5 if number < 300 else number for number in range(500)])
    names = [f"client-{number}" for number in range(500)]
    for begin in range(0, 500, 50):
        places = np.arange(begin, begin + 50)
        tally.add(rows, places, [Coded(names, keys)], [np.ones(500)], [keys.astype(float)])
    assert len(tally.entries) <= 2 * 10 + 1
    assert sum(entry.count for entry in tally.entries.values()) == 500
    assert sum(entry.sums[0] for entry in tally.entries.values()) == 500
    assert all(tally.entries[f"client-{number}",].count == 60 for number in range(5))
    assert max(entry.maxes[0] for entry in tally.entries.values()) == 499


def test_of_a_batch_with_more_keys_than_may_be_kept_each_row_counts() -> None:
    tally, size = Tally(limit=10), 1000
    rows = EventRows(batch(*(call(at=number) for number in range(size))))
    chance = np.random.default_rng(7).permutation(np.r_[np.arange(size - 200), np.repeat([3, 5], 100)])
    names = [None, *(f"client-{number}" for number in range(1, size))]
    ports = Coded(list(range(size)), chance)
    tally.add(rows, np.arange(size), [Coded(names, chance), ports], [np.ones(size)], [chance.astype(float)])
    assert len(tally.entries) == 10 + 1
    assert [tally.entries[f"client-{each}", each].count for each in (3, 5)] == [101, 101]
    rest = tally.entries[OTHERS, None]
    assert (rest.count, rest.sums, rest.maxes) == (size - 202 - 8, [size - 202 - 8], [size - 201])


def test_a_histogram_counts_names_beyond_its_limit_as_one() -> None:
    histogram, size = Histogram(), 5000
    for begin in (0, size // 2):
        names = [f"client-{number}" for number in range(begin, begin + size // 2)]
        keys = [Coded(names, np.arange(len(names))), Coded(["x"], np.zeros(len(names), np.int64))]
        histogram.add(keys, np.full(len(names), 7.0))
    assert len(histogram.counts) == MAX_KEYS + 1
    assert histogram.counts["client-0", "x"].sum() == 1
    assert histogram.counts[OTHERS, OTHERS].sum() == size - MAX_KEYS


def test_many_clients_that_each_ask_once_are_no_storm() -> None:
    rules = taken(*(row(number, client_id=f"c{number}", api_key=3, api="Metadata") for number in range(9000)))
    assert [each.severity for each in rules.found() if "storm" in each.code] == [OK, OK]


def test_merging_tallies_is_taking_everything_in_one() -> None:
    rows = EventRows(batch(*(call(at=number) for number in range(90))))
    keys = Coded(["a", "b", "c"], np.arange(90) % 3)
    whole, first, second = Tally(), Tally(), Tally()
    whole.add(rows, np.arange(90), [keys], [np.arange(90)])
    first.add(rows, np.arange(40), [keys], [np.arange(90)])
    second.add(rows, np.arange(40, 90), [keys], [np.arange(90)])
    first.merge(second)
    assert first.entries == whole.entries


def test_percentiles_of_a_histogram_are_within_their_width() -> None:
    values = np.random.default_rng(3).lognormal(8, 2, 20_000)
    histogram = Histogram()
    for part in np.array_split(values, 7):
        histogram.add([Coded(["x"], np.zeros(len(part), np.int64))], part)
    for part in (0.5, 0.95, 0.99):
        true = float(np.quantile(values, part))
        assert quantile(histogram.counts["x",], part) == pytest.approx(true, rel=0.03)
    assert histogram.counts["x",].shape == (BUCKETS,)


def group(rows: int) -> Coded:
    return Coded(["g"], np.zeros(rows, np.int64))


def test_spans_of_many_keys_in_one_batch_are_those_of_each() -> None:
    chance = np.random.default_rng(11)
    key, begin = chance.integers(0, 4, 300), chance.integers(0, 5000, 300)
    end = begin + chance.integers(0, 60, 300)
    keys = Coded(["a", "b", "c", "d"], key)
    together, alone = Spans(10), Spans(10)
    together.add(keys, begin, end)
    for number in range(300):
        at = np.array([number])
        alone.add(keys.at(at), begin[at], end[at])
    assert together.of == alone.of


def test_spans_are_the_same_in_any_order() -> None:
    chance = random.Random(5)
    pieces = [(begin, begin + chance.randrange(40)) for begin in chance.sample(range(10_000), 200)]
    orders = [pieces, pieces[::-1], chance.sample(pieces, len(pieces))]
    results = []
    for order in orders:
        parts = [Spans(30), Spans(30)]
        for number, piece in enumerate(order):
            parts[number % 2].add(group(1), np.array([piece[0]]), np.array([piece[1]]))
        parts[0].merge(parts[1])
        results.append(parts[0].of["g"])
    assert results[0] == results[1] == results[2]
    covered = {second for begin, end in pieces for second in range(begin, end + 1)}
    assert covered <= {second for begin, end in results[0] for second in range(begin, end + 1)}


def test_spans_of_one_key_are_bounded() -> None:
    spans = Spans(1)
    begin = np.arange(5000) * 1000
    spans.add(group(5000), begin, begin + 1)
    assert len(spans.of["g"]) <= MAX_SPANS
    assert (spans.of["g"][0][0], spans.of["g"][-1][1]) == (0, 4_999_001)


def test_a_stranger_with_a_million_names_takes_no_more_room_than_a_few_thousand() -> None:
    def strangers(begin: int) -> list[dict[str, Any]]:
        size = range(begin, begin + 3000)
        return [
            row(
                number, client_id=f"{number}-{'x' * 200}", client_ip=f"10.{number % 250}.{number % 251}.1",
                throttle_ms=10, status="error", error_code=6, group_id=f"g{number}", api_key=11,
                topics=[f"t{number}"], api="JoinGroup",
            )
            for number in size
        ]  # fmt: skip

    rules = taken(*strangers(0))
    rules.take(pa.RecordBatch.from_pylist(strangers(3000), schema=SCHEMA))
    early = len(pickle.dumps(rules))
    for begin in range(6000, 15_000, 3000):
        rules.take(pa.RecordBatch.from_pylist(strangers(begin), schema=SCHEMA))
    assert len(pickle.dumps(rules)) < 1.3 * early
    assert early < 30_000_000
    assert len(rules.found()) > len(RULES)


def test_rules_pickle_and_go_on() -> None:
    rules = taken(row(throttle_ms=4000), connection())
    again = pickle.loads(pickle.dumps(rules))
    assert again.found() == rules.found()
    again.take(pa.RecordBatch.from_pylist([row(throttle_ms=4000)], schema=SCHEMA))
    assert again.found() != rules.found()


def test_rules_need_no_more_columns_than_they_say() -> None:
    """A run decodes only those; all others may be missing from the batches."""
    rows = [row(throttle_ms=4000), row(status="error", error_code=6, topics=["t"]), connection()]
    whole = pa.RecordBatch.from_pylist(rows, schema=SCHEMA)
    bare = whole.select([name for name in whole.schema.names if name in NEEDED])
    first, second = Findings(), Findings()
    first.take(whole)
    second.take(bare)
    assert first.found() == second.found()


def test_columns_that_a_source_lacks_are_null_to_the_rules() -> None:
    bare = batch(call(throttle_ms=4000))
    assert set(bare.schema.names) == set(EVENTS.names)
    rules = Findings()
    rules.take(bare)
    assert rules.found()[0].code == "throttled"


def test_entries_are_ranked_once_and_again_when_there_is_more() -> None:
    """Rules look at all entries for each of their findings, which a stranger can make thousands of."""
    tally = Tally()
    rows = EventRows(batch(*(call() for _ in range(6))))
    keys = Coded(["a", "b"], np.array([0, 0, 1, 1, 1, 0]))
    tally.add(rows, np.arange(4), [keys])
    assert tally.entries is tally.entries
    size = len(pickle.dumps(tally))
    tally.add(rows, np.arange(4, 5), [keys])
    assert list(tally.entries) == [("b",), ("a",)]
    tally.add(rows, np.arange(5, 6), [keys])
    tally.add(rows, np.arange(5, 6), [keys])
    assert list(tally.entries) == [("a",), ("b",)]
    assert len(pickle.dumps(tally)) == size


# What tallies and readings keep in arrays is what plain Python keeps

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


@pytest.mark.parametrize(
    ("code", "key", "api"), [(3, 3, "Metadata"), (29, 0, "Produce"), (58, 36, "SaslAuthenticate")]
)
def test_errors_of_more_clients_than_are_told_apart_are_still_told(code: int, key: int, api: str) -> None:
    columns: dict[str, Any] = {"api_key": key, "api": api, "error_code": code, "status": "error"}
    rules = taken(*(row(at, client_id=f"c{at}", **columns) for at in range(4500)), split=1500)
    bad = [each for each in rules.found() if each.severity not in (OK, NOT_SHOWN)]
    assert sum(max(each.numbers.values()) for each in bad) >= 4500
    for rule in RULES:
        mine = [each for each in bad if each.code == rule.code]
        assert not mine or rule.headline(mine)
    assert rules.table().num_rows
    assert sum(line.calls for line in rules.errors()) == 4500
