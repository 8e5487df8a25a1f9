"""Where a large file can be cut, found out in stretches at once.

Theory of operation. A *stretch* begins at the first place behind a wanted one from which records seem to go
on, which is how the reader finds them again behind damage: a guess, and a file that holds another capture may
well mislead it. From there records are followed to the first packet that belongs to the next stretch. The
first stretch begins where the file does; so if each ends with the very packet that the next one begins with,
all are on the one chain of records that there is, and no guess is left (`together`).

Only a file in which all is as most writers write it is cut so. Whatever makes a reader look twice, or a
packet depend on more than the head of the file (damage, times that jump, packets without a time, interfaces
that are described late), leaves it to `kwsniff.run.plan.cut`, which follows all records from the beginning.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from kwsniff.capture.pcap import MAX_JUMP
from kwsniff.capture.reader import Window
from kwsniff.capture.stream import ByteStream
from kwsniff.config import MIB, Config
from kwsniff.net.packets import CaptureTotals, Integers
from kwsniff.run.plan import Cut, Indexer, Split, can_be_cut, indexer, splits_at
from kwsniff.run.reading import Range

STEADY_NS = (MAX_JUMP - 1001) * 1_000_000_000
"""Steps of time that no reader looks at twice: it compares whole seconds, and the rest may be a thousand."""
HEAD = 1 << 16
"""Bytes of the file that are looked at for what stands at its beginning."""
WINDOW = 2 * MIB
"""Bytes that are followed at a time: a cache holds them."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """What following a stretch of a file came to."""

    first: int
    """Where the block of its first packet begins; if it has none, that of the next stretch."""
    next: int | None
    """Where that of the next stretch's first packet begins; None at the end of the file."""
    packets: int
    last_ns: int
    """Time of the packet before `next`, if there is one."""
    prelude: bytes
    """What has to be known to read its packets."""
    dropped: int
    """Packets that the file says were dropped."""


def followed(path: str, begin: int, end: int | None, size: int, config: Config) -> Stretch | None:
    """The stretch of a file of `size` bytes with the packets that begin from `begin` to before `end` (None:
    all that follow); None if it is for `cut`. Raises CaptureError."""
    if not can_be_cut(path):
        return None
    config = replace(config, block_bytes=WINDOW)
    head = _head(path, size, config)
    if head is None:
        return None
    prelude, time_ns = head
    first = _found(path, begin, size, prelude, time_ns, config) if begin else 0
    if first is None:
        return None
    return _Follower(path, end, size, prelude, config).stretch(first)


def together(path: str, stretches: Sequence[Stretch | None], size: int) -> list[Split] | None:
    """A file of `size` bytes in splits that begin with the stretches; None if these don't prove each other,
    so that it is for `cut`."""
    known = [each for each in stretches if each is not None]
    if len(known) < len(stretches) or not all(map(_fit, known, known[1:])):
        return None
    cuts: dict[int, Cut] = {}
    packets = last_ns = 0
    for each in known:
        if packets:
            cuts[each.first] = each.first, packets, last_ns, each.prelude
        if each.packets:
            packets, last_ns = packets + each.packets, each.last_ns
    return splits_at(path, list(cuts.values()), size, known[-1].dropped) if cuts else [Split(path)]


def _fit(one: Stretch, other: Stretch) -> bool:
    return one.next == other.first and one.prelude == other.prelude and not one.dropped


@contextmanager
def _reader(
    path: str, begin: int, size: int, prelude: bytes, config: Config, totals: CaptureTotals | None = None
) -> Iterator[Indexer]:
    """A reader of the file from `begin` on, as if it began there."""
    prelude = prelude if begin else b""
    bytes_of = Range(Split(path, begin, size, prelude=prelude))
    try:
        window = Window(ByteStream(bytes_of, path), config.block_bytes)  # type: ignore[arg-type]
        window.move(0)
        window.start = begin - len(prelude)
        yield indexer(window, path, config, totals or CaptureTotals())
    finally:
        bytes_of.close()


def _head(path: str, size: int, config: Config) -> tuple[bytes, int] | None:
    """What a file that begins further on would begin with, and the time of its first packet; None if there is
    no packet."""
    with _reader(path, 0, size, b"", replace(config, block_bytes=HEAD)) as reader:
        for block in filter(len, reader.blocks()):
            return reader.prelude, int(block.time_ns[0])
    return None


def _found(path: str, begin: int, size: int, prelude: bytes, time_ns: int, config: Config) -> int | None:
    """The first place from `begin` on from which records seem to go on, of about this time if there are such
    ones."""
    with _reader(path, begin, size, prelude, config) as reader:
        anywhere = reader.found(len(prelude))
        reader.go_on(0, time_ns)
        near = reader.found(len(prelude))
    return anywhere if near is None else near


class _Follower:
    """Follows the records of a stretch."""

    def __init__(self, path: str, end: int | None, size: int, prelude: bytes, config: Config) -> None:
        self._path, self._end, self._size = path, end, size
        self._prelude, self._config = prelude, config
        self._totals = CaptureTotals()
        self._first: int | None = None
        self._next: int | None = None
        self._packets = self._place = self._last_ns = 0

    def stretch(self, begin: int) -> Stretch | None:
        """What it is from `begin` on; None if it is for `cut`."""
        with _reader(self._path, begin, self._size, self._prelude, self._config, self._totals) as reader:
            steady = self._follow(reader)
        if not steady or reader.timeless or reader.prelude != self._prelude or self._totals.damaged:
            return None
        if self._first is None or (self._next is None) != (self._end is None):
            return None
        if self._totals.cut_short and self._goes_on_inside():
            return None
        return Stretch(self._first, self._next, self._packets, self._last_ns, self._prelude, reader.dropped)

    def _follow(self, reader: Indexer) -> bool:
        """Follow the packets; whether their times are steady."""
        for block in filter(len, reader.blocks()):
            places, times = reader.places(block), block.time_ns
            if self._first is None:
                self._first, self._last_ns = int(places[0]), int(times[0])
            count = len(places) if self._end is None else int(np.searchsorted(places, self._end))
            if not _steady(times[: count + 1], self._last_ns):
                return False
            if count:
                self._packets += count
                self._place, self._last_ns = int(places[count - 1]), int(times[count - 1])
            if count < len(places):
                self._next = int(places[count])
                break
        return True

    def _goes_on_inside(self) -> bool:
        """Whether the last record, or what was cut short behind it, may hold others: then the reader of the
        whole file looks twice."""
        if self._last_ns < 2 * STEADY_NS:  # records without a time would be looked for, too
            return True
        config = replace(self._config, block_bytes=self._size - self._place + len(self._prelude) + 1)
        with _reader(self._path, self._place, self._size, self._prelude, config) as reader:
            return reader.found(len(self._prelude) + 1) is not None


def _steady(times: Integers, before: int) -> bool:
    return int(np.abs(np.diff(times, prepend=before)).max()) <= STEADY_NS
