"""All splits in this process, one after the other: what the pipeline does on many machines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from kwsniff.config import Config
from kwsniff.net.totals import CaptureTotals
from kwsniff.split.again import Rerun
from kwsniff.split.decode import SplitDecoder
from kwsniff.split.edge import Edge
from kwsniff.split.plan import Split
from kwsniff.split.reading import SplitReader, Told, independent
from kwsniff.split.settle import Settler
from kwsniff.split.stitch import Again, Naming, Stitched, Stitcher
from kwsniff.table import EVENTS


@dataclass(slots=True)
class Outcome:
    """What decoding in splits came to."""

    events: pa.Table
    """EVENTS in no particular order; what the splits made of guesses that were wrong is not among them."""
    totals: CaptureTotals
    independent: bool
    """Whether the splits could be read apart, see `reading.independent`: else the events may differ."""
    edges: int = 0
    edge_bytes: int = 0
    guesses: int = 0
    again: list[Again] = field(default_factory=list)


def decode(splits: Sequence[Split], config: Config) -> Outcome:
    """Decode all splits and stitch them. Raises CaptureError."""
    batches: list[pa.RecordBatch] = []
    told: list[Told] = []
    packed: dict[str, list[bytes]] = {}
    for number in range(len(splits)):
        reader = SplitReader(splits, number, config)
        decoder = SplitDecoder(config, number, number == 0)
        batches += [batch for batch, _ in decoder.events(reader.segments()) if batch is not None]
        reader.told.clock = decoder.clock
        told.append(reader.told)
        for edge in decoder.edges():
            packed.setdefault(edge.key, []).append(edge.pack())
    totals = CaptureTotals()
    for each in told:
        totals.merge(each.totals)
    clock = max(each.clock for each in told)
    sizes = [len(data) for group in packed.values() for data in group]
    outcome = Outcome(EVENTS.empty_table(), totals, independent(splits, told), len(sizes), sum(sizes))
    stitcher = Stitcher(config, clock)
    names: list[Naming] = []

    def take(done: Stitched) -> None:
        names.extend(done.names)
        outcome.guesses += done.guesses
        if done.again is not None:
            outcome.again.append(done.again)
        batches.extend(batch for batch, _ in done.parts if batch is not None)

    for group in packed.values():
        take(stitcher.stitch(map(Edge.unpack, group)))
    rerun = Rerun(lambda number: SplitReader(splits, number, config).segments(), config, clock)
    first = list(outcome.again)
    for number in range(len(splits)):
        again = [each for each in first if each.split == number]
        later = [
            edge
            for each in first
            if each.split < number
            for edge in map(Edge.unpack, packed[each.key])
            if edge.split == number
        ]
        for done in rerun.take(number, again, later):
            take(done)
    for done in rerun.finish():
        take(done)
    settler = Settler(names, [connection for each in outcome.again for connection in each.wrong])
    outcome.events = pa.Table.from_batches(list(map(settler.settle, batches)), EVENTS)
    return outcome
