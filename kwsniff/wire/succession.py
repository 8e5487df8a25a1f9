"""Requests that begin with a segment where by the lengths none should: one of the lengths was damaged.

A segment inside a frame that begins as only a request does is taken for one if its correlation id also comes
next: clients count their requests of a connection upwards. Record data could by chance hold bytes like a
request's, but hardly at the beginning of a segment with the number that is due.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from struct import Struct

from kwsniff.wire.plausible import REQUEST_HEADER

AHEAD = 1000
"""How far the correlation id of the next request may be from the last one: others may have been lost."""
UNKNOWN = -(1 << 40)
"""No request was seen before. Clients may use any number, some do use -1."""

_int32 = Struct(">i").unpack_from

Begins = Callable[[bytes, int, int], bool]
"""Takes data, the place where a segment begins and where it ends: whether it surely begins with a request."""


def correlation_id(data: bytes, pos: int, end: int) -> int:
    """Of the request at `pos`; UNKNOWN if it does not reach that far."""
    return int(_int32(data, pos + 8)[0]) if end - pos >= 12 else UNKNOWN


def comes_next(found: int, *before: int) -> bool:
    """Whether a correlation id is that of a request after one of those before."""
    return any(0 < found - each <= AHEAD for each in before)


def another(
    data: bytes, starts: list[int], begin: int, end: int, begins: Begins, *before: int
) -> int:  # fmt: skip
    """Where a segment begins with another request, inside a frame that reaches from `begin` (negative if that
    is before the data) to `end`; -1 if none does. `before` are correlation ids that it has to come after."""
    index, n = bisect_left(starts, begin + REQUEST_HEADER), len(data)
    stop = min(end, n)
    while index < len(starts) and (start := starts[index]) < stop:
        index += 1
        beyond = starts[index] if index < len(starts) else n
        if beyond - start < REQUEST_HEADER or data[start + 4] or data[start + 6]:
            continue  # API keys and versions are small
        if begins(data, start, beyond) and comes_next(correlation_id(data, start, beyond), *before):
            return start
    return -1
