"""Secrets of TLS connections, where they come from besides the packets: blocks of a pcapng file behind the
packets that they are for, and the key log that the user names (RFC 9850), to which lines may be added.

Theory of operation. Secrets may stand anywhere in a pcapng file. One that can be read at any place is searched
before it is read: for the two words that begin each Decryption Secrets Block with a key log, which costs a
third of a second a gigabyte. Only if there are any are blocks followed from the beginning of the file, since a
packet may hold a pcapng file itself. Behind damage none is found so. Those, and all in what comes through a
pipe, grows, lies on other storage or is compressed, count from where they stand on.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from kwsniff.capture.error import CaptureError
from kwsniff.capture.pcapng import MAX_BLOCK, SECRETS, TLS_KEY_LOG, follow_blocks, key_log_of
from kwsniff.net.packets import Bytes

STEP = 1 << 18
"""Bytes searched at a time: a cache holds them."""
FOLLOWED = 4 << 20
"""Bytes in which blocks are followed at a time, unless one is longer."""
SLACK = 64
MOST_BLOCKS = 1 << 16
"""Blocks of secrets that are taken before the packets in front of them ..."""
MOST_BYTES = 64 << 20
"""... and bytes of them."""


def found_ahead(file: int) -> dict[int, bytes]:
    """The key logs in a pcapng file, given its descriptor, by the places of their blocks."""
    wanted = _candidates(file)
    found: dict[int, bytes] = {}
    at, room, order, size = 0, FOLLOWED, "<", 0
    while wanted and at <= wanted[-1] and size <= MOST_BYTES:
        data, count = _read(file, at, room)
        chain = follow_blocks(data, at=0, end=count, order=order)
        own = np.intersect1d(chain.places + at, wanted, assume_unique=True) - at
        for place in own.tolist():
            key_log = _key_log(data, place, chain.order_at(place))
            if key_log:
                found[at + place] = key_log
                size += len(key_log)
        if not chain.stop and (room > MAX_BLOCK or count < room):
            break
        room = FOLLOWED if chain.stop else 2 * MAX_BLOCK
        at, order = at + chain.stop, chain.order_at(chain.stop)
    return found


def _candidates(file: int) -> list[int]:
    """Places where blocks of secrets may begin: multiples of four, as blocks do."""
    found: list[int] = []
    words = np.empty(STEP // 4, np.uint32)
    room, at = memoryview(words).cast("B"), 0
    sought = [[np.array(each, order + "u4").view(np.uint32) for each in (SECRETS, TLS_KEY_LOG)] for order in "<>"]
    while len(found) < MOST_BLOCKS and (count := os.preadv(file, [room], at)) >= 12:
        some = words[: count // 4]
        for head, kind in sought:
            hits = np.flatnonzero(some[2:] == kind)
            found += (at + 4 * hits[some[hits] == head]).tolist()
        at += (count & ~3) - 8  # the first words of a block may lie in two steps
    return sorted(found)[:MOST_BLOCKS]


def _read(file: int, at: int, size: int) -> tuple[Bytes, int]:
    """Bytes of a file, and how many there are of them."""
    data = np.zeros(size + SLACK, np.uint8)
    return data, os.preadv(file, [data.data[:size]], at)


def _key_log(data: Bytes, place: int, order: str) -> bytes | None:
    """What a block of secrets holds, if it ends with the length that it begins with."""
    length = _word(data, place + 4, order)
    size = (length + 3) & ~3
    return key_log_of(data.data, place, size, order) if _word(data, place + size - 4, order) == length else None


def _word(data: Bytes, at: int, order: str) -> int:
    return int(data[at : at + 4].view(order + "u4")[0])
