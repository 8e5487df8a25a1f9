"""Calls as columns: what the compiled path yields where the exact path yields `Call` tuples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

ROUND = 40
"""Bits of a call's sequence number below that of its round: its place in the round."""


@dataclass(slots=True)
class CallBlock:
    """Calls of one round; columns are those of `kwsniff.engine.bulk.columns` from CALL_ORDER on."""

    calls: Ints
    """A row for each column, so that columns are contiguous."""
    connections: Ints
    """Numbers of the connections, by their place in the round."""
    software: list[tuple[str | None, str | None]]
    """Name and version of the client library of each of them."""
    topics: Ints
    """Name and uuid of each topic of each call, as places in `texts`; -1 for none."""
    rows: Ints
    """The partitions of each call."""
    bodies: tuple[list[str | None], list[str | None]] | None
    """With `full`, requests and responses as JSON."""
    texts: list[str]
    """Texts, and uuids in hyphenated hexadecimal."""

    def __len__(self) -> int:
        return int(self.calls.shape[1])
