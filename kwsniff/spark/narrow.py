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
DIFFERENCES, THOUSANDS = 1, 2
SAMPLE = 4096
"""Numbers by which it is told which way takes less."""


def narrowed(columns: Sequence[Ints]) -> bytes:
    """Columns of the same length as bytes."""
    return b"".join(map(_narrowed, columns))


def widened(data: bytes, columns: int, count: int) -> list[Ints]:
    """What `narrowed` made of so many columns of `count` numbers."""
    made, at = [], 0
    for _ in range(columns):
        width, kept = data[at], data[at + 1]
        end = at + HEAD + width * count
        made.append(_widened(np.frombuffer(data, np.uint8, width * count, at + HEAD), width, kept, count))
        at = end
    return made


def _narrowed(column: Ints) -> bytes:
    values, kept = column, 0
    if not (column[:SAMPLE] % THOUSAND).any() and not (column % THOUSAND).any():
        values, kept = column // THOUSAND, THOUSANDS
    sample = values[:SAMPLE]
    if _cost(_planes(_steps(sample))) <= _cost(_planes(sample)):
        values, kept = _steps(values), kept | DIFFERENCES
    planes = _planes(values)
    return bytes((len(planes), kept)) + planes.tobytes()


def _steps(values: Ints) -> Ints:
    with np.errstate(over="ignore"):
        return np.diff(values, prepend=np.int64(0))


def _planes(values: Ints) -> NDArray[np.uint8]:
    """Lowest bytes first. Small negative numbers become small ones (zigzag)."""
    folded = ((values << 1) ^ (values >> 63)).astype(np.uint64)
    width = (int(folded.max(initial=0)).bit_length() + 7) // 8
    return np.ascontiguousarray(folded.astype("<u8").view(np.uint8).reshape(-1, 8)[:, :width].T)


def _cost(planes: NDArray[np.uint8]) -> float:
    """Bits that coding each byte for itself would take."""
    bits = 0.0
    for plane in planes:
        counts = np.bincount(plane, minlength=1)
        counts = counts[counts > 0]
        bits += float((counts * np.log2(len(plane) / counts)).sum())
    return bits


def _widened(data: NDArray[np.uint8], width: int, kept: int, count: int) -> Ints:
    wide = np.zeros((count, 8), np.uint8)
    wide[:, :width] = data.reshape(width, count).T
    folded = wide.view("<u8").reshape(count).astype(np.uint64)
    values = (folded >> np.uint64(1)).astype(np.int64) ^ -(folded & np.uint64(1)).astype(np.int64)
    with np.errstate(over="ignore"):
        if kept & DIFFERENCES:
            values = np.cumsum(values)
        return values * THOUSAND if kept & THOUSANDS else values
