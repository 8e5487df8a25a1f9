"""Rows of several kinds are brought into one order, by laying stretches one after the other or row by row."""

import numpy as np
import pyarrow as pa
import pytest

from kwsniff.rows.arrays import in_order, record_batch
from kwsniff.rows.events import ANOMALY, CALL, CONNECTION
from kwsniff.rows.schema import EVENTS


def part(event, keys, **columns):
    made = {"event": pa.array([event] * len(keys)), **columns}
    return {name: values.cast(EVENTS.field(name).type) for name, values in made.items()}, len(keys)


@pytest.mark.parametrize("rare", [1, 5, 400], ids=["once", "seldom", "as-often"])
def test_rows_stand_in_the_order_of_their_keys(rare: int) -> None:
    random = np.random.default_rng(rare)
    keys = [np.sort(random.integers(0, 10_000, count)) for count in (1000, rare, rare)]
    topics = [[f"t{key}"] * (key % 3) or None for key in keys[0].tolist()]
    parts = [
        part(CALL, keys[0], topics=pa.array(topics), correlation_id=pa.array(keys[0])),
        part(ANOMALY, keys[1], code=pa.array([str(key) for key in keys[1]]), packet=pa.array(keys[1])),
        part(CONNECTION, keys[2], syn=pa.array(keys[2] % 2 == 0), last_packet=pa.array(keys[2])),
    ]
    order = np.argsort(np.concatenate(keys), kind="stable")

    made = record_batch(in_order(parts, order, EVENTS), len(order), EVENTS)

    made.validate(full=True)
    rows = [row for columns, count in parts for row in record_batch(columns, count, EVENTS).to_pylist()]
    assert made.to_pylist() == [rows[place] for place in order.tolist()]


def test_rows_of_one_kind_may_change_their_places() -> None:
    parts = [
        part(CALL, range(1000), correlation_id=pa.array(range(1000))),
        part(CONNECTION, range(4), last_packet=pa.array(range(4))),
    ]
    order = np.array([*range(500), 1001, 1003, 1000, 1002, *range(500, 1000)])

    made = record_batch(in_order(parts, order, EVENTS), len(order), EVENTS)

    rows = [row for columns, count in parts for row in record_batch(columns, count, EVENTS).to_pylist()]
    assert made.to_pylist() == [rows[place] for place in order.tolist()]
