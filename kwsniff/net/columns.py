"""A batch of TCP segments as NumPy columns: what the engine works on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

FIN, SYN, RST, ACK = 1, 2, 4, 16
ZERO_WINDOW = 256
"""Added to the flags of a segment whose sender takes no more bytes for now."""
COPY = 512
"""Added to the flags of a segment that the capture holds twice, see `kwsniff.net.dissect`."""


@dataclass(slots=True)
class SegmentColumns:
    """Segments in capture order; every column has one element a segment."""

    capture: str | None
    packet: Ints
    time: Ints
    src_hi: Ints
    src_lo: Ints
    dst_hi: Ints
    dst_lo: Ints
    src_port: Ints
    dst_port: Ints
    seq: Ints
    ack: Ints
    flags: Ints
    tsval: Ints
    """TCP timestamps, -1 where there is none."""
    length: Ints
    """Payload bytes on the wire."""
    captured: Ints
    """Payload bytes at hand."""
    buffer: Ints
    """Which of `buffers` holds them ..."""
    start: Ints
    """... and from where on."""
    buffers: list[memoryview]
    notes: list[tuple[int, str, str, int, int]]
    """Anomalies of packets: order (rows before it), code, detail, packet, time."""
    share: Ints | None = None
    """Where several engines share the connections: whose each segment is, if that is known."""
    place: int | None = None
    """Where `buffers[1]` begins in the file `capture`, if that can be read at any place."""

    def __len__(self) -> int:
        return len(self.packet)
