"""What rules keep is bounded whatever the input, and what they count is exact all the same."""

from __future__ import annotations

import pickle
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kwsniff.analysis.findings import NEEDED, RULES, Findings
from kwsniff.analysis.rule import OK
from kwsniff.count.codes import OTHERS
from kwsniff.count.eventrows import Coded, EventRows
from kwsniff.count.percentiles import BUCKETS, MAX_KEYS, Histogram, quantile
from kwsniff.count.spans import MAX_SPANS, Spans
from kwsniff.count.tally import Tally
from kwsniff.rows.schema import EVENTS
from tests.findings.wide import SCHEMA, connection, row, taken
from tests.report.events import batch, call


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
