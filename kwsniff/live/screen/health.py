"""The capture's health over time: packets and bytes each second, what was lost lately, anomalies."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from kwsniff.live.screen.window import SLOT_NS, WINDOW_S
from kwsniff.live.session import Health
from kwsniff.rows.events import ANOMALY

LATELY_S = 10
"""Packets and bytes each second are those of the last seconds, so many."""


@dataclass(frozen=True, slots=True)
class Vitals:
    """The capture's health at one moment."""

    health: Health
    packets_per_s: float = 0.0
    bytes_per_s: float = 0.0
    dropped_lately: int = 0
    """Packets lost in the last WINDOW_S."""
    anomalies: tuple[tuple[str, int, int], ...] = ()
    """Code, number since the start, number in the last WINDOW_S; most in the window first."""


class Monitor:
    """Keeps a minute of health, about ten of each second at most, and counts anomalies by code."""

    def __init__(self) -> None:
        self._healths: deque[Health] = deque()
        self._anomalies: Counter[str] = Counter()
        self._slots: deque[tuple[int, Counter[str]]] = deque()

    def add(self, events: pa.RecordBatch, now_ns: int) -> None:
        """Count the anomalies among EVENTS rows."""
        found = events["code"].filter(pc.equal(events["event"], ANOMALY))
        if not len(found):
            return
        counts = {row["values"]: row["counts"] for row in pc.value_counts(found).to_pylist()}
        slot = now_ns // SLOT_NS
        if not self._slots or self._slots[-1][0] != slot:
            self._slots.append((slot, Counter()))
        self._slots[-1][1].update(counts)
        self._anomalies.update(counts)

    def tick(self, health: Health) -> None:
        """Take note of the health."""
        healths = self._healths
        if healths and health.now_ns < healths[-1].now_ns:  # the clock was set back
            healths.clear()
        if len(healths) > 1 and health.now_ns - healths[-2].now_ns < 10**8:
            healths.pop()
        healths.append(health)
        while healths[0].now_ns < health.now_ns - WINDOW_S * 10**9:
            healths.popleft()
        oldest = health.now_ns // SLOT_NS - WINDOW_S * 10**9 // SLOT_NS
        while self._slots and not oldest <= self._slots[0][0] <= oldest + 2 * WINDOW_S:
            self._slots.popleft()

    def vitals(self) -> Vitals | None:
        """The health now; None before the first tick."""
        if not self._healths:
            return None
        now = self._healths[-1]
        packets, size = self._rates(now)
        young = now.now_ns - now.started_ns <= WINDOW_S * 10**9
        dropped = 0 if young else self._healths[0].dropped
        lately: Counter[str] = Counter()
        for _, counts in self._slots:
            lately.update(counts)
        anomalies = [(code, count, lately[code]) for code, count in self._anomalies.items()]
        anomalies.sort(key=lambda item: (-item[2], -item[1], item[0]))
        return Vitals(now, packets, size, now.dropped - dropped, tuple(anomalies))

    def _rates(self, now: Health) -> tuple[float, float]:
        recent = [health for health in self._healths if health.now_ns >= now.now_ns - LATELY_S * 10**9]
        first = recent[0]
        seconds = (now.now_ns - first.now_ns) / 1e9
        packets, size = now.packets - first.packets, now.bytes - first.bytes
        if (now.now_ns - now.started_ns) / 1e9 <= LATELY_S or seconds <= 0:
            seconds, packets, size = (now.now_ns - now.started_ns) / 1e9, now.packets, now.bytes
        seconds = max(seconds, 1.0)
        return packets / seconds, size / seconds
