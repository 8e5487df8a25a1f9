"""Whole numbers as few bytes before they are compressed.

Of a column either the values or the differences between neighbours are kept, in as many bytes as the largest
one needs: first the lowest byte of each, then the next one. Bytes that mean the same stand together then, and
zstd makes two thirds of them of what it makes of numbers of 64 bits. Times of most captures are whole
microseconds, so a column all of whose numbers are multiples of 1,000 is kept in thousands.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
THOUSAND = 1000
HEAD = 2
"""Bytes before those of a column: how many each number takes, and how it is kept."""
DIFFERENCES, THOUSANDS, SAME = 1, 2, 4
SAMPLE = 2048
"""Numbers by which it is told which way takes less."""
SHORT = 256
"""Numbers so few that telling it takes longer than it saves."""
FEW = 16
"""Numbers that tell of most columns that they are no multiples."""
BITS = np.log2(np.maximum(np.arange(SAMPLE + 1), 1)) * np.arange(SAMPLE + 1)
"""Bits by which so many bytes that are the same are cheaper than as many of which each is another."""


def narrowed(columns: Sequence[Ints]) -> bytes:
    """Columns of the same length as bytes."""
    return b"".join(map(_narrowed, columns))


def widened(data: bytes, columns: int, count: int) -> list[Ints]:
    """What `narrowed` made of so many columns of `count` numbers."""
    made, at = [], 0
    for _ in range(columns):
        width, kept = data[at], data[at + 1]
        numbers = min(count, 1) if kept & SAME else count
        end = at + HEAD + width * numbers
        own = _widened(np.frombuffer(data, np.uint8, width * numbers, at + HEAD), width, kept, numbers)
        made.append(np.repeat(own, count) if kept & SAME else own)
        at = end
    return made


def _narrowed(column: Ints) -> bytes:
    if len(column) and column[0] == column[-1] and (column == column[0]).all():
        planes = _planes(column[:1])
        return bytes((len(planes), SAME)) + planes.tobytes()
    values, kept = column, 0
    if not (column[:FEW] % THOUSAND).any() and not (column % THOUSAND).any():
        values, kept = column // THOUSAND, THOUSANDS
    if len(values) <= SHORT:
        planes = _planes(values)
        steps = _planes(_steps(values)) if len(planes) > 1 else planes
        less = len(steps) < len(planes)
        planes = steps if less else planes
    else:
        sample = values[:SAMPLE]
        less = _cost(_planes(_steps(sample))) <= _cost(_planes(sample))
        planes = _planes(_steps(values) if less else values)
    return bytes((len(planes), kept | DIFFERENCES if less else kept)) + planes.tobytes()


def _steps(values: Ints) -> Ints:
    made = values.copy()
    made[1:] -= values[:-1]
    return made


def _planes(values: Ints) -> NDArray[np.uint8]:
    """Lowest bytes first. Small negative numbers become small ones (zigzag)."""
    folded = (values << 1) ^ (values >> 63)
    width = (int(folded.view(np.uint64).max(initial=0)).bit_length() + 7) // 8
    return np.ascontiguousarray(folded.astype("<i8", copy=False).view(np.uint8).reshape(-1, 8)[:, :width].T)


def _cost(planes: NDArray[np.uint8]) -> float:
    """Bits that coding each byte for itself would take."""
    width, size = planes.shape
    of_plane = np.arange(0, 256 * width, 256)[:, np.newaxis]
    counts = np.bincount((planes + of_plane).ravel(), minlength=1)
    return float(width * BITS[size] - BITS[counts].sum())


def _widened(data: NDArray[np.uint8], width: int, kept: int, count: int) -> Ints:
    wide = np.zeros((count, 8), np.uint8)
    wide[:, :width] = data.reshape(width, count).T
    folded = wide.view("<u8").reshape(count).astype(np.uint64, copy=False)
    values = (folded >> np.uint64(1)).astype(np.int64) ^ -(folded & np.uint64(1)).astype(np.int64)
    if kept & DIFFERENCES:
        values = np.cumsum(values)
    return values * THOUSAND if kept & THOUSANDS else values
