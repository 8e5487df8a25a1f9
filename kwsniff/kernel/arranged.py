"""What was drained, in the order of events: where each row stands, and what rows of all kinds have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kwsniff.kernel import tables as k
from kwsniff.kernel.drained import Drained

Ints = NDArray[np.int64]
KINDS = 4
"""Anomalies of packets before it, then its calls, anomalies, connections: the order of events of a packet."""
CALLS, ANOMALIES, ENDS = range(3)
"""Kinds of rows."""


@dataclass(frozen=True, slots=True)
class Arranged:
    """The rows of a batch."""

    keys: Ints
    """Places in the input (see `KINDS`), ascending."""
    ranks: Ints
    """Places among those of the same key."""
    numbers: Ints
    """Numbers of connections, 0 for none."""
    kind: Ints
    """CALLS, ANOMALIES or ENDS."""
    time: Ints
    """Nanoseconds, -1 if unknown."""
    owner: Ints
    """Which of the owners of what was drained each belongs to; the number of these: to none."""
    capture: Ints
    """Number of the capture file."""
    calls: Ints | None
    """Where the calls stand; None if there is nothing else."""
    anomalies: Ints
    """Where anomalies stand: of packets, of connections, of bodies, one after the other."""
    ends: Ints
    """Where connections stand."""

    def __len__(self) -> int:
        return len(self.keys)


def arranged(drained: Drained, bodies: np.dtype[Any]) -> Arranged:
    """Bring what was drained into its order. `bodies` is the record type of what problems are about."""
    packets = np.array([(each[0], *each[4:]) for each in drained.packet_notes], np.int64).reshape(-1, 3)
    problems = np.array([each[0] for each in drained.problems], bodies)
    nobody = len(drained.owners)
    calls, notes, ends = drained.calls, drained.notes, drained.ends
    whose = np.split(drained.whose, np.cumsum([len(calls), len(notes), len(problems)]))
    none = np.zeros(len(packets), np.int64)
    parts = (calls, None, notes, problems, ends)
    counts = [len(packets) if rows is None else len(rows) for rows in parts]

    def each(field: str, of_packets: Ints) -> Ints:
        return np.concatenate([of_packets if rows is None else rows[field] for rows in parts])

    keys = each("order", packets[:, 0]) * KINDS + np.repeat([1, 0, 2, 2, 3], counts)
    ranks, numbers = each("rank", none + k.OWN), each("number", none)
    owner = np.concatenate([whose[0], none + nobody, *whose[1:]])
    times = [
        np.where(calls["first_time"] >= 0, calls["first_time"], calls["response_first"]),
        packets[:, 1], notes["time"], problems["time"], ends["first_time"],
    ]  # fmt: skip
    captures = drained.owners["capture"]
    capture = [calls["capture"], packets[:, 2], captures[whose[1]], captures[whose[2]], ends["capture"]]
    kind = np.repeat([CALLS, ANOMALIES, ANOMALIES, ANOMALIES, ENDS], counts)
    own = bool((ranks >= k.OWN).all())
    if len(calls) == len(keys) and own and not _of_several(keys, numbers):
        nowhere = np.zeros(0, np.int64)
        return Arranged(keys, ranks, numbers, kind, times[0], owner, capture[0], None, nowhere, nowhere)
    order = np.argsort(keys, kind="stable")
    if not own or _of_several(keys[order], numbers[order]):
        # Of connections that came to their places at the same time, the older one is first.
        order = np.lexsort((numbers, ranks, keys))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    first, last = counts[0], len(order) - counts[-1]
    return Arranged(
        keys[order], ranks[order], numbers[order], kind[order], np.concatenate(times)[order], owner[order],
        np.concatenate(capture)[order], place[:first], place[first:last], place[last:],
    )  # fmt: skip


def _of_several(keys: Ints, numbers: Ints) -> bool:
    """Whether at one of these places, which ascend, there are rows of several connections: where a limit over
    all of them was reached."""
    return bool(((keys[1:] == keys[:-1]) & (numbers[1:] != numbers[:-1])).any())
