"""IP addresses as two int64 (the halves of the IPv6 address, IPv4 as ::ffff:a.b.c.d) and as text."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address

from kwsniff.net.ip import MAPPED

_HALF = (1 << 64) - 1


@lru_cache(maxsize=65_536)
def text(hi: int, lo: int) -> str:
    """The usual notation: dotted for IPv4, RFC 5952 for IPv6."""
    if hi == 0 and lo >> 32 == MAPPED >> 32:
        return str(IPv4Address(lo & 0xFFFFFFFF))
    return str(IPv6Address((hi & _HALF) << 64 | (lo & _HALF)))


def halves(address: str) -> tuple[int, int]:
    """The inverse of `text`. Raises ValueError for what is no address."""
    parsed = ip_address(address)
    if isinstance(parsed, IPv4Address):
        return 0, MAPPED | int(parsed)
    value = int(parsed)
    return _signed(value >> 64), _signed(value & _HALF)


def _signed(half: int) -> int:
    return half - (1 << 64) if half >> 63 else half
