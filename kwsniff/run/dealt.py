"""Summaries dealt out by connection, so that several join the parts side by side.

Theory of operation. What becomes of a connection follows from its own segments and from the times at which
silent connections are looked for (`kwsniff.engine.analyze`). So each of some joiners
takes its share of every summary, and of the rows that they tell, all together, those of a single one are
made: rows are ordered by where they belong, not by who told them.

Two things are of all connections at once, and are for whoever put the shares to work: limits over all of them
(`within`), and times that go back, with which connections no longer end in an order that each knows of itself
(`Steadiness`). Where either is so, `together` makes the shares of a summary one again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kwsniff.engine.checkpoint import TABLES, Tail, shifted
from kwsniff.engine.follow import DAY
from kwsniff.engine.tables import POOLS, SECOND, SWEEP, UNTIL
from kwsniff.native.rowcopies import picked
from kwsniff.net.segments import SegmentColumns
from kwsniff.run.part import EDGE, EXTRA, PartSummary, endpoints_of

Ints = NDArray[np.int64]
Rows = NDArray[Any]
MIX = np.uint64(0x9E3779B97F4A7C15)


@dataclass(slots=True)
class Steadiness:
    """Whether times go on evenly in a part, and from when to when."""

    steady: bool = True
    began: int = -1
    clock: int = -1
    """Latest time, -1 without segments."""

    def watch(self, batches: Iterable[SegmentColumns]) -> Iterator[SegmentColumns]:
        """The same, looked at."""
        for each in batches:
            self._look(each.time)
            yield each

    def _look(self, times: Ints) -> None:
        if not len(times):
            return
        self.began = int(times[0]) if self.began < 0 else self.began
        latest = np.maximum.accumulate(np.append(self.clock, times) if self.clock >= 0 else times)
        # None is far behind or ahead of the latest before it.
        back, ahead = int((latest[-len(times) :] - times).max()), int(np.diff(latest).max(initial=0))
        self.steady = self.steady and back <= SECOND and ahead < DAY
        self.clock = int(latest[-1])


def even(parts: Sequence[Steadiness]) -> bool:
    """Whether times go on evenly in all of these parts and from each to the next."""
    clock = -1
    for each in parts:
        if not each.steady or (clock >= 0 and 0 <= each.began < clock - SECOND):
            return False
        clock = max(clock, each.clock)
    return True


# Dealing out


def dealt(summary: PartSummary, count: int) -> list[PartSummary]:
    """So many shares of a summary, each with its own connections. Payload is not dealt out."""
    if count == 1:
        return [summary]
    whose = _whose(endpoints_of(summary.edges), count)
    known = summary.edges["stop"] == UNTIL
    of_lefts = np.zeros(len(summary.lefts), np.int64)
    of_lefts[summary.edges["left"][known]] = whose[known]
    shares = {
        "edges": np.where(summary.edges["stop"] == SWEEP, -1, whose),
        "lefts": of_lefts,
        "spare": of_lefts[summary.spare["left"]],
        "ends": of_lefts[summary.ends["left_row"]],
        "births": _whose(summary.births["endpoints"], count),
        "conns": _whose(_ends_of(summary.tail.conns), count),
    }
    return [
        _share(summary, {name: (of == at) | (of < 0) for name, of in shares.items()}) for at in range(count)
    ]


def _whose(names: NDArray[Any], count: int) -> Ints:
    """The share of each pair of endpoints."""
    words = np.ascontiguousarray(names).view(np.uint8).reshape(len(names), 52)[:, :48]
    mixed = np.zeros(len(names), np.uint64)
    for word in np.ascontiguousarray(words).view(np.uint64).reshape(len(names), 6).T:
        mixed = (mixed ^ word) * MIX
        mixed ^= mixed >> np.uint64(29)
    return (mixed % np.uint64(count)).astype(np.int64)


def _ends_of(conns: Rows) -> NDArray[Any]:
    rows = np.zeros(len(conns), EDGE)
    for end, name in (("src", "a"), ("dst", "b")):
        for part in ("hi", "lo", "port"):
            rows[f"{end}_{part}"] = conns[f"{name}_{part}"]
    return endpoints_of(rows)


def _share(summary: PartSummary, own: dict[str, NDArray[np.bool_]]) -> PartSummary:
    """What is its own of a summary."""
    rows = np.append(np.cumsum(own["lefts"]) - 1, -1)
    edges, spare, ends = (picked(getattr(summary, name), own[name]) for name in ("edges", "spare", "ends"))
    for table, name in ((edges, "left"), (spare, "left"), (ends, "left_row")):
        table[name] = rows[table[name]]
    others = summary.tail.conns["number"][~own["conns"]]
    return replace(
        summary, edges=edges, spare=spare, ends=ends, lefts=picked(summary.lefts, own["lefts"]),
        births=summary.births[own["births"]], tail=summary.tail.without(others.tolist()),
        end_texts=[text for text, is_own in zip(summary.end_texts, own["ends"], strict=True) if is_own],
    )  # fmt: skip


# Putting together


def together(shares: Sequence[PartSummary]) -> PartSummary:
    """The summary that these are shares of; rows of connections may be in another order."""
    if len(shares) == 1:
        return shares[0]
    lefts = _starts(len(each.lefts) for each in shares)
    edges, payload = _segments([(each.edges, each.payload) for each in shares], lefts)
    spare, spare_payload = _segments([(each.spare, each.spare_payload) for each in shares], lefts)
    ends = [each.ends.copy() for each in shares]
    for table, first in zip(ends, lefts, strict=True):
        table["left_row"] += first
    return replace(
        shares[0], edges=edges, payload=payload, spare=spare, spare_payload=spare_payload,
        ends=np.concatenate(ends), end_texts=[text for each in shares for text in each.end_texts],
        lefts=np.concatenate([each.lefts for each in shares]),
        births=np.concatenate([each.births for each in shares]),
        tail=_tail([each.tail for each in shares]),
    )  # fmt: skip


def _starts(counts: Iterable[int]) -> list[int]:
    sizes = np.array([*counts], np.int64)
    starts: list[int] = (np.cumsum(sizes) - sizes).tolist()
    return starts


def _segments(shares: list[tuple[Rows, bytes]], lefts: list[int]) -> tuple[Rows, bytes]:
    """Segments of all shares in their order, and their payload."""
    parts = []
    begins = _starts(len(payload) for _, payload in shares)
    for at, ((rows, _), first, begin) in enumerate(zip(shares, lefts, begins, strict=True)):
        made = rows[rows["stop"] != SWEEP] if at else rows.copy()  # those times are in every share
        made["left"] += np.where(made["left"] >= 0, first, 0)
        made["start"] += np.where(made["buffer"] == EXTRA, begin, 0)
        parts.append(made)
    every = np.concatenate(parts)
    order = np.argsort(2 * every["order"] + (every["stop"] != SWEEP), kind="stable")
    return every[order], b"".join(payload for _, payload in shares)


def _tail(tails: Sequence[Tail]) -> Tail:
    """Tails with the same texts as one."""
    sizes = (*POOLS, "arena", "words")
    first = {name: _starts(len(getattr(each, name)) for each in tails) for name in sizes}
    parts = [
        shifted(tail, {name: starts[at] for name, starts in first.items()}) for at, tail in enumerate(tails)
    ]
    tables: dict[str, Any] = {name: np.concatenate([each[name] for each in parts]) for name in TABLES}
    return replace(
        tails[0], **tables, arena=b"".join(each.arena for each in tails),
        words=np.concatenate([each.words for each in tails]),
    )  # fmt: skip
