"""Packets that a capture holds twice: taken on both sides of a bridge, or by `tcpdump -i any` on their way
through several interfaces.

A copy has the same addresses, ports, numbers, flags and length, and the same identification of the IP packet,
which a sender gives anew to each packet, retransmissions and repeated ACKs too. Where there is none (IPv6, or
always 0), only payload that comes again sooner than any sender would repeat it counts. Copies follow their
packet closely: no more than `WINDOW` segments and `SOON_NS` are looked back, so the cost is small and
bounded.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kwsniff.net.packets import Integers
from kwsniff.net.tcp import Segments

WINDOW = 64
"""A network card hands over so many packets at a time, before they are handed on."""
SOON_NS = 10_000_000

Mask = NDArray[np.bool_]

_MIX = np.int64(-7046029254386353131)
"""An odd number, by which a column is multiplied before the next is added (2^64 divided by the golden
ratio)."""


class Duplicates:
    """Finds copies among the segments of one run, which come in blocks."""

    def __init__(self) -> None:
        self._keys: Integers = np.empty(0, np.int64)
        self._times: Integers = np.empty(0, np.int64)

    def find(self, segments: Segments, time_ns: Integers) -> Mask:
        """Which of these are copies of an earlier one; `time_ns` has one time for each."""
        keys = np.concatenate([self._keys, _keys(segments)])
        times = np.concatenate([self._times, time_ns])
        copies = np.zeros(len(keys), np.bool_)
        for back in range(1, min(WINDOW + 1, len(keys))):
            same = keys[back:] == keys[:-back]
            if same.any():
                copies[back:] |= same & (np.abs(times[back:] - times[:-back]) <= SOON_NS)
        new: Mask = copies[len(self._keys) :] & ((segments.ident != 0) | (segments.length > 0))
        self._keys, self._times = keys[-WINDOW:], times[-WINDOW:]
        return new


def _keys(segments: Segments) -> Integers:
    """A number for each segment that its copies have, too, and hardly any other."""
    columns = (
        *(segments.src_hi, segments.src_lo, segments.dst_hi, segments.dst_lo, segments.src_port),
        *(segments.dst_port, segments.seq, segments.ack, segments.flags, segments.length, segments.ident),
    )
    keys = np.zeros(len(segments), np.int64)
    for column in columns:
        keys = (keys ^ column) * _MIX
        keys ^= keys >> 29
    return keys
