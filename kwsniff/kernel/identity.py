"""The stable id of a connection: both ends and the time of the first packet, hashed."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

_MIX = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9)
_ENDS = ("a_hi", "a_lo", "a_port", "b_hi", "b_lo", "b_port")
_SAID = f"Endpoints({', '.join(f'{name}=%d' for name in _ENDS)}) %d\n".encode()
"""What is hashed, without the end of the line: worded together, for one by one takes longer than hashing."""
SIZE = 8
"""Bytes of an id, which is told in hexadecimal."""

End = tuple[int, int, int]
"""Upper and lower half of an address, and a port."""
Rows = NDArray[Any]
_RECORD = np.dtype([(name, np.int64) for name in (*_ENDS, "first_time")])


def connection_id(a: End, b: End, first_time: int) -> str:
    """The id, whichever end is given first; `first_time` is nanoseconds since 1970."""
    return connection_ids(np.array([(*a, *b, first_time)], _RECORD)).tobytes().hex()


def connection_ids(rows: Rows) -> NDArray[np.uint8]:
    """The ids of connections, SIZE bytes in a row each, of their ends (`a_hi` to `b_port`) and `first_time`:
    column by column, for a capture may have a hundred thousand of them."""
    a, b = ([rows[f"{end}_{part}"] for part in ("hi", "lo", "port")] for end in "ab")
    turned = _weight(*a) > _weight(*b)
    ends = [np.where(turned, second, first) for first, second in zip(a + b, b + a, strict=True)]
    words = np.stack([*ends, rows["first_time"]], axis=1)
    said = (_SAID * len(rows) % tuple(words.ravel().tolist())).splitlines()
    hashed = b"".join([blake2b(each, digest_size=SIZE).digest() for each in said])
    return np.frombuffer(hashed, np.uint8).reshape(-1, SIZE)


def _weight(hi: Rows, lo: Rows, port: Rows) -> NDArray[np.uint64]:
    """What puts the ends in an order that has nothing to do with who is the client. Products wrap."""
    x, y, z = (np.uint64(each) for each in _MIX)
    hi, lo, port = (np.ascontiguousarray(each).view(np.uint64) for each in (hi, lo, port))
    mixed = (hi * x) ^ ((lo + port * z) * y)
    made: NDArray[np.uint64] = mixed ^ (mixed >> np.uint64(29))
    return made
