"""Dividing connections among engines that are all fed the same segments."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kwsniff.net.columns import SegmentColumns

Ints = NDArray[np.int64]
_MIX = tuple(np.uint64(mix) for mix in (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9))


def share_of(segments: SegmentColumns, count: int) -> Ints:
    """Which of `count` engines follows the connection of each segment: the same for both directions."""
    a, b, _ = _MIX
    source = _end(segments.src_hi, segments.src_lo, segments.src_port)
    target = _end(segments.dst_hi, segments.dst_lo, segments.dst_port)
    low, high = np.minimum(source, target), np.maximum(source, target)
    mixed = (low ^ high * a) * b
    return ((mixed ^ mixed >> np.uint64(32)) % np.uint64(count)).astype(np.int64)


def _end(hi: Ints, lo: Ints, port: Ints) -> NDArray[np.uint64]:
    a, b, c = _MIX
    mixed = hi.view(np.uint64) * a ^ (lo.view(np.uint64) + port.astype(np.uint64) * c) * b
    return mixed ^ mixed >> np.uint64(29)
