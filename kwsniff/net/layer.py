"""A set of packets, each with the position of its next header: what dissecting passes from layer to layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kwsniff.net.packets import Bytes, Integers, Mask, PacketBlock, gather


@dataclass(slots=True)
class Layer:
    """Columns of one set of packets of one block, in the order of the block.

    All positions are offsets in the block's buffer. `end` is where the captured bytes of this layer end and
    `wire` where they ended on the wire; ``end <= wire`` unless a header lies about its length. `end` never
    exceeds the captured end of the packet, so nothing below it is outside the buffer.
    """

    row: Integers
    """Index of the packet in its block."""
    at: Integers
    end: Integers
    wire: Integers

    def __len__(self) -> int:
        return len(self.row)

    def pick(self, which: Mask) -> Layer:
        """The packets for which `which` is true."""
        if which.all():
            return self
        return Layer(self.row[which], self.at[which], self.end[which], self.wire[which])

    def skip(self, size: int | Integers) -> Layer:
        """The layer that starts `size` bytes further on."""
        return Layer(self.row, self.at + size, self.end, self.wire)

    def holds(self, size: int | Integers) -> Mask:
        """Whether `size` bytes from `at` on were captured."""
        return self.at + size <= self.end

    def lacks(self, size: int | Integers) -> Mask:
        """Whether not even the wire had `size` bytes from `at` on."""
        return self.at + size > self.wire

    def read(self, data: Bytes, layout: np.dtype[Any]) -> NDArray[Any]:
        """The header at `at`; every packet must hold it."""
        return gather(data, layout, self.at)


def frames(block: PacketBlock) -> Layer:
    """The link layer of every packet of a block."""
    end = block.offset + block.caplen
    wire = np.maximum(block.offset + block.origlen, end)
    return Layer(np.arange(len(block), dtype=np.int64), block.offset, end, wire)
