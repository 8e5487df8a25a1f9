"""Ids and ends of the connections that rows belong to."""

from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kwsniff.kernel.drained import OWNER
from kwsniff.kernel.eventcolumns import Owners, connection_id, connection_ids
from kwsniff.net.address import halves

DTYPE = np.dtype([(name, np.int64) for name in (*OWNER, "conn")])
TIME = 1_700_000_000_000_000_000


def owner(number: int, conn: int, a: tuple[str, int], b: tuple[str, int], client: int = 0) -> tuple[Any, ...]:
    """A connection that began `number` nanoseconds after TIME."""
    ends = (*halves(a[0]), *halves(b[0]), a[1], b[1])
    return (number, client, 0, *ends, TIME + number, conn)


def columns(owners: Owners, rows: list[tuple[Any, ...]], whose: list[int]) -> dict[str, list[Any]]:
    made = owners.columns(np.array(rows, DTYPE), np.array(whose, np.int64))
    return {name: values.to_pylist() for name, values in made.items()}


def test_rows_have_the_ends_of_their_connection_by_role() -> None:
    rows = [
        owner(1, 0, ("10.0.0.1", 40_000), ("10.0.0.9", 9092)),
        owner(2, 1, ("10.0.0.9", 9092), ("fe80::1", 50_000), client=1),
    ]
    made = columns(Owners(), rows, [1, 0, 2, 1])
    assert made["client_ip"] == ["fe80::1", "10.0.0.1", None, "fe80::1"]
    assert made["client_port"] == [50_000, 40_000, None, 50_000]
    assert made["broker_ip"] == ["10.0.0.9", "10.0.0.9", None, "10.0.0.9"]
    assert made["broker_port"] == [9092, 9092, None, 9092]
    assert made["connection"][2] is None
    assert made["connection"][0] == made["connection"][3] != made["connection"][1]


def test_rows_of_no_connection_have_no_ends() -> None:
    made = Owners().columns(np.zeros(0, DTYPE), np.zeros(2, np.int64))
    assert all(values.null_count == len(values) == 2 for values in made.values())
    assert made["connection"].type == pa.string()


def test_a_place_that_another_connection_takes_has_another_id() -> None:
    owners = Owners()
    a, b = ("10.0.0.1", 40_000), ("10.0.0.9", 9092)
    first = columns(owners, [owner(1, 3, a, b)], [0])["connection"]
    again = columns(owners, [owner(1, 3, b, a, client=1)], [0])["connection"]
    both = columns(owners, [owner(1, 3, a, b), owner(7, 3, a, b), owner(8, 90, b, a)], [0, 1, 2])
    assert first == again == both["connection"][:1]
    ids = [connection_id((*halves(a[0]), a[1]), (*halves(b[0]), b[1]), TIME + at) for at in (1, 7, 8)]
    assert both["connection"] == ids
    assert len(set(ids)) == 3


@pytest.mark.parametrize("a", ["10.0.0.1", "ffff:ffff::1", "::", "8000::ffff:ffff:ffff:ffff"])
@pytest.mark.parametrize("port", [0, 1, 65_535])
def test_an_id_is_the_same_whichever_end_is_given_first(a: str, port: int) -> None:
    one, other = (*halves(a), port), (*halves("192.168.0.7"), 9092)
    made = connection_id(one, other, TIME)
    assert made == connection_id(other, one, TIME)
    said = [
        f"Endpoints(a_hi={a_hi}, a_lo={a_lo}, a_port={a_port}, b_hi={b_hi}, b_lo={b_lo}, b_port={b_port})"
        for (a_hi, a_lo, a_port), (b_hi, b_lo, b_port) in ((one, other), (other, one))
    ]
    assert made in [blake2b(f"{each} {TIME}".encode(), digest_size=8).hexdigest() for each in said]


def test_ids_of_many_are_those_of_each() -> None:
    draw = np.random.default_rng(7)
    rows = np.zeros(500, DTYPE)
    for name in ("a_hi", "a_lo", "b_hi", "b_lo"):
        rows[name] = draw.integers(-(1 << 63), 1 << 63, len(rows), dtype=np.int64)
    rows["a_port"], rows["b_port"] = draw.integers(0, 65_536, (2, len(rows)))
    rows["first_time"] = TIME + np.arange(len(rows))
    for row, made in zip(rows.tolist(), connection_ids(rows), strict=True):
        _, _, _, a_hi, a_lo, b_hi, b_lo, a_port, b_port, time, _ = row
        assert made.tobytes().hex() == connection_id((a_hi, a_lo, a_port), (b_hi, b_lo, b_port), time)
        assert connection_id((b_hi, b_lo, b_port), (a_hi, a_lo, a_port), time) == made.tobytes().hex()
