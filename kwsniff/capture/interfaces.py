"""The interfaces of a pcapng section: link type, time resolution and offset, drop counts."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from kwsniff.net.packets import Integers

_SECOND = 1_000_000_000
_END, _TSRESOL, _TSOFFSET = 0, 9, 14
_IFDROP, _OSDROP = 5, 7


@dataclass(frozen=True, slots=True)
class Interface:
    """One interface of a section."""

    linktype: int
    snaplen: int
    """Bytes captured of a packet at most, 0 for all."""
    resolution: int = 6
    """`if_tsresol`: a negative power of 10, or of 2 if the highest bit is set."""
    offset: int = 0
    """`if_tsoffset`: seconds to add."""

    def nanoseconds(self, ticks: Integers) -> Integers:
        """Timestamps in units of the resolution as nanoseconds since 1970 UTC, rounded down.

        `ticks` are unsigned 64-bit numbers in int64.
        """
        exponent = self.resolution & 0x7F
        if self.resolution == 6:
            time = ticks * 1000
        elif self.resolution == 9:
            time = ticks
        else:
            unit = (2 if self.resolution & 0x80 else 10) ** exponent
            exact = ((tick & 0xFFFF_FFFF_FFFF_FFFF) * _SECOND // unit for tick in ticks.tolist())
            time = np.fromiter((_wrapped(value) for value in exact), np.int64, len(ticks))
        return time + np.int64(_wrapped(self.offset * _SECOND)) if self.offset else time


def _wrapped(value: int) -> int:
    """As int64 arithmetic would have it: times that far out are nonsense, but must not raise."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


class Interfaces:
    """The interfaces of one section, in the order of their blocks, which is how packets name them."""

    def __init__(self) -> None:
        self._interfaces: list[Interface] = []
        self._dropped: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._interfaces)

    def __iter__(self) -> Iterator[Interface]:
        return iter(self._interfaces)

    def __getitem__(self, index: int) -> Interface:
        return self._interfaces[index]

    def add(self, body: bytes, order: str) -> None:
        """Take the body of an interface description block; one too short describes an unknown link type."""
        if len(body) < 8:
            self._interfaces.append(Interface(linktype=0xFFFF, snaplen=0))
            return
        linktype, snaplen = struct.unpack_from(order + "HxxI", body)
        resolution, offset = 6, 0
        for code, value in _options(body[8:], order):
            if code == _TSRESOL and value:
                resolution = value[0]
            elif code == _TSOFFSET and len(value) == 8:
                (offset,) = struct.unpack(order + "q", value)
        self._interfaces.append(Interface(linktype, snaplen, resolution, offset))

    def add_statistics(self, body: bytes, order: str) -> None:
        """Take the body of an interface statistics block; its counts run from the start of the capture."""
        if len(body) < 12:
            return
        (interface,) = struct.unpack_from(order + "I", body)
        drops = [
            struct.unpack(order + "Q", value)[0]
            for code, value in _options(body[12:], order)
            if code in (_IFDROP, _OSDROP) and len(value) == 8
        ]
        if drops:
            self._dropped[interface] = sum(drops)

    def dropped(self) -> int:
        """Packets that the interfaces and the operating system dropped, by the last statistics."""
        return sum(self._dropped.values())


def _options(options: bytes, order: str) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + 4 <= len(options):
        code, length = struct.unpack_from(order + "HH", options, at)
        if code == _END:
            return
        yield code, options[at + 4 : at + 4 + length]
        at += 4 + (length + 3 & ~3)
