"""Secrets of TLS connections that come from somewhere else than the packets around them: blocks of a pcapng
file behind the packets that they are for, and the key log that the user names (RFC 9850).

Theory of operation. Secrets may stand anywhere in a pcapng file. One that can be read at any place is
searched before it is read: for the two words that begin each Decryption Secrets Block with a key log, which
costs a quarter of a second a gigabyte. Only if there are any are blocks followed from the beginning of the
file, since a packet may hold a pcapng file itself. Behind damage none is found so. Those, and all in what
comes through a pipe, grows, lies on other storage or is compressed, count from where they stand on.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator

import numpy as np

from kwsniff.capture.pcapng import MAX_BLOCK, SECRETS, TLS_KEY_LOG, follow_blocks, key_log_of
from kwsniff.net.packets import Bytes

STEP = 1 << 18
"""Bytes searched at a time: a cache holds them."""
FOLLOWED = 4 << 20
"""Bytes in which blocks are followed at a time, unless one is longer."""
SLACK = 64
BYTE_ORDER = 0x1A2B3C4D
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
        if not chain.stop:
            length = _word(data, 4, order)
            if room != FOLLOWED or count < room or length > MAX_BLOCK:
                break
            room = length + 3
        else:
            room = FOLLOWED
        at, order = at + chain.stop, chain.order_at(chain.stop)
    return found


def _candidates(file: int) -> list[int]:
    """Places where blocks of secrets may begin, in the byte order that the file begins with: multiples of
    four, as those of all blocks."""
    order = "<" if os.pread(file, 4, 8) == struct.pack("<I", BYTE_ORDER) else ">"
    head, kind = (np.array(each, order + "u4").view(np.uint32) for each in (SECRETS, TLS_KEY_LOG))
    words = np.empty(STEP // 4, np.uint32)
    found: list[int] = []
    at = 0
    while len(found) < MOST_BLOCKS and (count := os.preadv(file, [words.data], at)) >= 12:
        some = words[: count // 4]
        hits = np.flatnonzero(some[2:] == kind)
        found += (at + 4 * hits[some[hits] == head]).tolist()
        at += (count & ~3) - 8  # the first words of a block may lie in two steps
    return found[:MOST_BLOCKS]


def _read(file: int, at: int, size: int) -> tuple[Bytes, int]:
    """Bytes of a file, and how many there are of them."""
    data = np.zeros(size + SLACK, np.uint8)
    return data, os.preadv(file, [data.data[:size]], at)


def _key_log(data: Bytes, place: int, order: str) -> bytes | None:
    """What a block of secrets holds, if it ends with the length that it begins with."""
    length = _word(data, place + 4, order)
    size = (length + 3) & ~3
    return (
        key_log_of(data.data, place, size, order) if _word(data, place + size - 4, order) == length else None
    )


def _word(data: Bytes, at: int, order: str) -> int:
    return int(data[at : at + 4].view(order + "u4")[0])


# Key logs

LINE = re.compile(rb"\w+ (?:Session-ID:)?([0-9a-f]{64}) (?:Master-Key:)?[0-9a-f]+", re.IGNORECASE)
"""A line with a secret: label, client random, secret (RFC 9850, section 2); or, as agents for Java write it,
the id of a session and its master secret."""


def secret_lines(key_log: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The client random, or the id of a session, and the line, of each line that has a secret."""
    for line in key_log.splitlines():
        if found := LINE.fullmatch(line.strip()):
            yield bytes.fromhex(found[1].decode()), found[0] + b"\n"


class AddedLines:
    """The lines of a key log as they are added to it."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._read = 0

    def more(self) -> bytes:
        """The lines with secrets since the last time, those that are complete. Raises OSError."""
        with open(self._path, "rb") as file:
            if os.fstat(file.fileno()).st_size < self._read:  # it was written anew
                self._read = 0
            file.seek(self._read)
            data = file.read()
        size = data.rfind(b"\n") + 1
        self._read += size
        return b"".join(line for _, line in secret_lines(data[:size]))
