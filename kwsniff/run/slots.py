"""Segments in memory that several processes share.

A slot is a file without a name, in memory where the system has such; one process writes a batch of segments
into it, others look at it there. It grows with the largest batch, and is written again only when all have
done with what it holds.
"""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass
from multiprocessing.reduction import DupFd
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kwsniff.net.segments import SegmentColumns
from kwsniff.run.processes import memory_file

Ints = NDArray[np.int64]
COLUMNS = (
    "packet", "time", "src_hi", "src_lo", "dst_hi", "dst_lo", "src_port", "dst_port", "seq", "ack", "flags",
    "tsval", "length", "captured", "buffer", "start",
)  # fmt: skip
LINE = 64
"""Columns and buffers begin at multiples of it."""


@dataclass(frozen=True, slots=True)
class Laid:
    """What was laid into a slot."""

    slot: int
    count: int
    """Segments."""
    buffers: tuple[tuple[int, int], ...]
    """Where each of the batch's buffers begins, and its size."""
    size: int
    capture: str | None
    notes: list[tuple[int, str, str, int, int]]


class Slots:
    """Some slots, which other processes may be given."""

    def __init__(self, files: list[int]) -> None:
        self.files = files
        self._maps: list[mmap.mmap | None] = [None] * len(files)

    @classmethod
    def made(cls, count: int) -> Slots:
        """New slots."""
        return cls([_file() for _ in range(count)])

    def __reduce__(self) -> tuple[Any, ...]:
        """To be given to a process that begins anew."""
        return _opened, ([DupFd(each) for each in self.files],)

    def lay(self, slot: int, segments: SegmentColumns, whose: Ints) -> Laid:
        """Write a batch, and which share each segment belongs to."""
        count = len(segments)
        end = max(8 * count * (len(COLUMNS) + 1), LINE)
        places = []
        for data in segments.buffers:
            end = -(-end // LINE) * LINE
            places.append((end, len(data)))
            end += len(data)
        room = np.frombuffer(self._map(slot, end), np.uint8)
        table = room[: 8 * count * (len(COLUMNS) + 1)].view(np.int64).reshape(len(COLUMNS) + 1, count)
        for row, name in enumerate(COLUMNS):
            table[row] = getattr(segments, name)
        table[-1] = whose
        for (first, size), data in zip(places, segments.buffers, strict=True):
            room[first : first + size] = np.frombuffer(data, np.uint8) if size else ()
        return Laid(slot, count, tuple(places), end, segments.capture, segments.notes)

    def segments(self, laid: Laid) -> SegmentColumns:
        """The batch where it lies."""
        held = memoryview(self._map(laid.slot, laid.size))
        count = laid.count
        table = np.frombuffer(held, np.int64, count * (len(COLUMNS) + 1)).reshape(len(COLUMNS) + 1, count)
        columns = dict(zip(COLUMNS, table, strict=False))
        buffers = [held[first : first + size] for first, size in laid.buffers]
        return SegmentColumns(
            capture=laid.capture, **columns, buffers=buffers, notes=laid.notes, share=table[-1], place=None
        )

    def _map(self, slot: int, size: int) -> mmap.mmap:
        """The memory of a slot, of at least so many bytes."""
        held = self._maps[slot]
        if held is None or len(held) < size:
            file = self.files[slot]
            if os.fstat(file).st_size < size:
                _grow(file, -(-size // mmap.PAGESIZE) * mmap.PAGESIZE)
            held = self._maps[slot] = mmap.mmap(file, os.fstat(file).st_size)
        return held

    def close(self) -> None:
        """Give the files back; memory goes when nobody looks at it any more."""
        self._maps = [None] * len(self.files)
        for file in self.files:
            os.close(file)
        self.files = []

    def __del__(self) -> None:
        self.close()  # where a run was never begun


def _grow(file: int, size: int) -> None:
    """Make room. Raises OSError if there is none: writing where there is none would be the end of the
    process."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file, 0, size)
    else:
        os.ftruncate(file, size)


def _file() -> int:
    with memory_file() as file:
        return os.dup(file.fileno())


def _opened(files: list[Any]) -> Slots:
    return Slots([each.detach() for each in files])
