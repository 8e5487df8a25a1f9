"""Ids of connections."""

from hashlib import blake2b

import numpy as np
import pytest

from kwsniff.engine.drained import OWNER
from kwsniff.engine.eventcolumns import connection_id, connection_ids
from kwsniff.net.address import halves

DTYPE = np.dtype([(name, np.int64) for name in (*OWNER, "conn")])
TIME = 1_700_000_000_000_000_000


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
