"""Values of a metric's labels: from the wire, so made safe to show, and never more than a set number.

The first values seen keep their names; what comes when there is no room left is counted under `other`. A
metric's cost for Prometheus is its number of series, and a client may call itself something new with every
connection.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kwsniff.report.text import printable

Ints = NDArray[np.int64]

OTHER = "other"
MAX_LENGTH = 200
"""Characters of a value; a client id may have 32767, a topic 249."""


def cleaned(value: str | None) -> str:
    """As a label shows it: unprintable characters as escapes, shortened; empty if there is none."""
    text = printable((value or "")[: MAX_LENGTH + 1])
    return text if len(text) <= MAX_LENGTH else text[: MAX_LENGTH - 1] + "…"


class Names:
    """Numbers the values of one label. 0 is `OTHER`.

    Values are told apart as they are shown: two series of the same labels would make Prometheus refuse all.
    """

    def __init__(self, limit: int, unnamed: str = "") -> None:
        """`unnamed` stands for null."""
        self._limit = limit
        self._unnamed = unnamed
        self.values = [OTHER]
        self._numbers = {OTHER: 0}
        self.overflowed = 0
        """Elements that were not given a number of their own."""

    def encode(self, column: pa.Array) -> Ints:
        """The number of each element (texts)."""
        encoded = column.dictionary_encode(null_encoding="encode")
        indices: Ints = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        found = [self._number(value) for value in encoded.dictionary.to_pylist()]
        numbers = np.array(found, dtype=np.int64)[indices] if found else indices
        self.overflowed += int((numbers < 0).sum())
        return np.maximum(numbers, 0)

    def __len__(self) -> int:
        return len(self.values)

    def _number(self, value: str | None) -> int:
        """Negative if there is no room for it."""
        text = cleaned(value) or self._unnamed
        number = self._numbers.get(text)
        if number is None and len(self.values) <= self._limit:
            number = self._numbers[text] = len(self.values)
            self.values.append(text)
        return -1 if number is None else number


def addresses(hosts: pa.Array, ports: pa.Array) -> pa.Array:
    """`host:port` of each row, an IPv6 address in brackets; null without host or port."""
    bracketed = pc.binary_join_element_wise("[", hosts, "]", "")
    shown = pc.if_else(pc.match_substring(hosts, ":"), bracketed, hosts)
    return pc.binary_join_element_wise(shown, ports.cast(pa.string()), ":")
