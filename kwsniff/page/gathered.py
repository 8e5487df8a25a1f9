"""What the page needs beside the report and the findings: taken from EVENTS in one pass, bounded, mergeable.

Invariant: taking two batches one after the other is the same as taking each with its own instance and
merging; only where calls are equally slow, or groups do more than is kept, which of them stay may differ.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from kwsniff.analysis.bytestream import NEEDED as MESSAGE
from kwsniff.analysis.slow import NEEDS as SLOW
from kwsniff.analysis.slow import Slowest
from kwsniff.count import timeline
from kwsniff.count.coded import waited
from kwsniff.count.eventrows import EventBatch
from kwsniff.count.percentiles import Histogram
from kwsniff.count.timeline import Timeline
from kwsniff.page import chosen
from kwsniff.page.chosen import BODIES, GroupCalls

SHOWN = 50
"""Slowest calls on the page."""
NEEDED = (SLOW | MESSAGE | timeline.NEEDED | chosen.NEEDED | {"latency_us", "duration_us"}) - BODIES
"""Columns of EVENTS; bodies are looked at where they are there."""


class Gathered:
    """Timeline, distributions of latencies, the slowest calls and what groups did."""

    def __init__(self) -> None:
        self.timeline = Timeline()
        self.latencies = Histogram()
        """Of answered calls that did not wait on purpose, by API."""
        self.slowest = Slowest(SHOWN, sorted(MESSAGE))
        self.groups = GroupCalls()
        self.waited = 0
        """Calls that waited on purpose, which are not among the slowest."""

    def take(self, batch: pa.RecordBatch | EventBatch) -> None:
        """Take one EVENTS batch, in its order."""
        batch = EventBatch.of(batch)
        calls = batch.calls
        if not len(calls):
            return
        self.timeline.take(batch)
        self.groups.take(calls)
        on_purpose = waited(calls)
        self.waited += int((on_purpose & calls.known("duration_us")).sum())
        self.slowest.take(calls, on_purpose)
        latency = np.where(on_purpose, np.nan, calls.floats("latency_us"))
        self.latencies.add([calls.coded("api")], latency)

    def merge(self, other: Gathered) -> None:
        """Take what another one took, of batches that come after those of this one."""
        self.timeline.merge(other.timeline)
        self.latencies.merge(other.latencies)
        self.slowest.merge(other.slowest)
        self.groups.merge(other.groups)
        self.waited += other.waited
