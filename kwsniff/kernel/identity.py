"""The stable id of a connection: both ends and the time of the first packet, hashed."""

from __future__ import annotations

from hashlib import blake2b

_MIX = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9)
_MASK = (1 << 64) - 1

End = tuple[int, int, int]
"""Upper and lower half of an address, and a port."""


def connection_id(a: End, b: End, first_time: int) -> str:
    """The id, whichever end is given first; `first_time` is nanoseconds since 1970."""
    first, second = sorted((a, b), key=_weight)
    names = ("a_hi", "a_lo", "a_port", "b_hi", "b_lo", "b_port")
    said = ", ".join(f"{name}={value}" for name, value in zip(names, (*first, *second), strict=True))
    return blake2b(f"Endpoints({said}) {first_time}".encode(), digest_size=8).hexdigest()


def _weight(end: End) -> int:
    """What puts the ends in an order that has nothing to do with who is the client."""
    hi, lo, port = end
    x, y, z = _MIX
    mixed = ((hi & _MASK) * x & _MASK) ^ (((lo & _MASK) + port * z & _MASK) * y & _MASK)
    return mixed ^ mixed >> 29
