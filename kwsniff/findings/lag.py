"""Consumers that fall behind: how far the end of a partition is from what they fetch."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from kwsniff.findings.finding import WARNING, Finding, command, literal
from kwsniff.findings.rows import Batch, Rows
from kwsniff.findings.rule import Context, Rule
from kwsniff.findings.tally import Key, Packet, Tally, grouped
from kwsniff.findings.words import client, duration, many, name

LIMIT = 5_000
"""Partitions of consumers that are followed."""
HEARTBEATS = (12, 68, 76, 88)


class Position(NamedTuple):
    """Where a consumer was in a partition."""

    packet: Packet
    offset: float
    end: float
    """The high watermark then."""

    @property
    def lag(self) -> float:
        return max(self.end - self.offset, 0.0)


class Positions:
    """The first and the last position by key."""

    def __init__(self) -> None:
        self.of: dict[Key, tuple[Position, Position]] = {}

    def put(self, key: Key, first: Position, last: Position) -> None:
        """Add what is known of one key."""
        known = self.of.get(key)
        if known is not None:
            first = min(known[0], first, key=lambda each: each.packet.time)
            last = max(known[1], last, key=lambda each: each.packet.time)
        if known is not None or len(self.of) < LIMIT:
            self.of[key] = (first, last)

    def merge(self, other: Positions) -> None:
        """Take those of another one."""
        for key, (first, last) in other.of.items():
            self.put(key, first, last)


class FallsBehind(Rule):
    """A consumer is further behind the end of a partition (its high watermark) at its last Fetch than at its
    first, and by a good deal: it is slower than what is produced. Give the group more members (there may be
    as many as partitions), make their work quicker, or fetch more at once. A consumer that stands still,
    with or without a growing end, has a rule of its own."""

    code = "consumer_falls_behind"
    about = "lag"
    needs = frozenset(("partitions", "group_id"))
    missing = "no high watermarks with fetch positions"

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.positions = Positions()
        self.groups = Tally()

    def take(self, batch: Batch) -> None:
        calls = batch.calls
        beats = calls.is_in("api_key", HEARTBEATS)
        self.groups.add(calls, beats, [calls.coded(each) for each in ("client_id", "client_ip", "group_id")])
        if not calls.is_in("api_key", (1,)).any():
            return
        parts = batch.partitions
        if not (parts.has("high_watermark") and parts.has("fetch_offset")):
            return
        fetch = calls.is_in("api_key", (1,))[parts.row]
        offset, end = parts.floats("fetch_offset"), parts.floats("high_watermark")
        with np.errstate(invalid="ignore"):
            rows = np.flatnonzero(fetch & (offset >= 0) & (end >= 0))
        self.looked += len(rows)
        if len(rows):
            self._take(calls, parts, rows, offset[rows], end[rows])

    def _take(self, calls: Rows, parts: Any, rows: Any, offset: Any, end: Any) -> None:
        of = parts.row[rows]
        keys = [calls.coded("client_id").at(of), calls.coded("client_ip").at(of)]
        keys += [parts.key.at(rows), parts.coded("partition").at(rows)]
        group, firsts = grouped(keys)
        lasts = np.zeros(len(firsts), np.int64)
        lasts[group] = np.arange(len(group))
        capture = calls.coded("capture")

        def position(place: int) -> Position:
            row = of[place]
            packet = Packet(int(calls.time[row]), capture.values[capture.codes[row]], int(calls.packet[row]))
            return Position(packet, float(offset[place]), float(end[place]))

        for first, last in zip(firsts, lasts, strict=True):
            key = tuple(each.values[each.codes[first]] for each in keys)
            self.positions.put(key, position(int(first)), position(int(last)))

    def findings(self, context: Context) -> list[Finding]:
        behind: dict[Key, list[tuple[Key, Position, Position]]] = {}
        for key, (first, last) in self.positions.of.items():
            grown = last.lag >= self.thresholds.lag_growth * max(first.lag, 1.0)
            if last.lag >= self.thresholds.lag_records and grown:
                behind.setdefault((key[0], key[1]), []).append((key, first, last))
        return [self._finding(who, rows, context) for who, rows in behind.items()]

    def _finding(self, who: Key, rows: list[tuple[Key, Position, Position]], context: Context) -> Finding:
        key, first, last = max(rows, key=lambda row: row[2].lag)
        groups = [entry for entry in self.groups.entries if entry[:2] == who]
        group = f" in group {name(groups[0][2])}" if groups else ""
        seconds = (last.packet.time - first.packet.time) / 1e6
        more = f", and {many(len(rows) - 1, 'partition')} more" if len(rows) > 1 else ""
        sentence = (
            f"{client(*who)}{group} falls behind: {name(context.topic(key[2]))}[{key[3]}] "
            f"{int(first.lag):,} to {many(last.lag, 'record')} behind within {duration(seconds)}{more}."
        )
        where = f"group_id == {literal(groups[0][2])}" if groups else f"client_id == {literal(who[0])}"
        numbers = {"lag_first": first.lag, "lag_last": last.lag, "span_s": seconds, "partitions": len(rows)}
        return Finding(
            self.code, WARNING, client(*who), sentence, numbers, (first.packet, last.packet),
            command("groups", where), last.lag,
        )  # fmt: skip
