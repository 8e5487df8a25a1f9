"""From SEGMENTS to EVENTS: one function, the same in one process and in Spark, and the engine behind it.

Theory of operation. The columns of a batch become rows of `segments`, and the kernels take them one after the
other, in capture order. What they tell (calls, anomalies, connections that are over) stands in tables of a
fixed size; when one is full, or the batch is over, it is made into EVENTS and the tables are emptied.

Rows come out in the order of the packets that settled them, whatever the size of batches and tables: a table
that is full is emptied up to the packet at hand only.

Between two batches an engine may be pickled: what it holds is then as large as what waits (see
`kwsniff.engine.checkpoint`), and it goes on in any process of the same version, compiled there or not.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kwsniff.config import Config
from kwsniff.engine import checkpoint
from kwsniff.engine import tables as entry
from kwsniff.engine.details import Decisions
from kwsniff.engine.drained import Drained
from kwsniff.engine.emitter import Emitter
from kwsniff.engine.intake import AT_ONCE, Intake
from kwsniff.engine.machine import BODIES, BODY_DATA
from kwsniff.net.segments import SegmentColumns, segment_columns, tells_time, time_told
from kwsniff.rows.prefetch import prefetched

if TYPE_CHECKING:
    from kwsniff.engine.decrypting import Decryption

Ints = NDArray[np.int64]
Part = tuple[pa.RecordBatch, Ints]
"""Events and the keys that order them."""
MAX_TEXTS, MAX_TEXT_BYTES = 32_768, 8 << 20
"""Texts, and bytes of them, above which those are dropped that nothing refers to."""


class Engine(Intake):
    """All connections of one input. What `feed`, `finish` and `tick` yield has to be taken to the end before
    the next of them is called."""

    def __init__(
        self, config: Config, share: tuple[int, int] | None = None, *, compiled: bool | None = None
    ) -> None:
        """`share` is (index, count): follow only the connections that fall to this one of several engines,
        each of which is fed everything. `compiled` as for `Machine`; None also leaves it to the config."""
        super().__init__(config, share, compiled=compiled)
        self.tls: Decryption | None = None
        """Where there are keys: what makes segments of TLS connections plain."""
        if config.keylog is not None:
            self._decryption()
        self.emitter = Emitter(self.machine, config)
        self._most_texts, self._most_bytes = MAX_TEXTS, MAX_TEXT_BYTES
        if config.full:
            self.machine.grow("bodies", BODIES)
            self.machine.grow("body_data", BODY_DATA)

    def feed(self, segments: SegmentColumns) -> Iterator[pa.RecordBatch]:
        """Take a batch of segments in capture order; yield the events it settles."""
        return self._made(self.follow(segments))

    def follow(self, segments: SegmentColumns) -> Iterator[Drained]:
        """The same before columns are made of it: `events` makes them, in one other thread if need be, while
        this one goes on."""
        if segments.secrets:
            self._decryption().keys.add(segments.secrets)
        if not len(segments) and not segments.notes:
            return
        yield from self._follow(segments if self.tls is None else self.tls.plain(segments))

    def freed(self, segments: SegmentColumns) -> Iterator[pa.RecordBatch]:
        """The events of segments that `tls` set free."""
        return self._made(self._follow(segments))

    def _follow(self, segments: SegmentColumns) -> Iterator[Drained]:
        """The same of segments in the clear."""
        machine = self.machine
        run = machine.t.run[0]
        run.capture = self.emitter.capture(segments.capture)
        first = int(run.order)
        if self._share is None or self._share[0] == 0:  # they belong to no connection
            self.emitter.note_packets(segments.notes, first, int(run.capture))
        buffer, start = self._set_buffers(segments)
        for at, stop in self._slices(segments):
            self._set_segments(segments, buffer, start, at, stop)
            run = machine.t.run[0]
            run.row, run.phase = 0, 0
            self._before(stop - at)
            yield from self.act(entry.FOLLOW, stop - at)
            self._after(segments, at, stop)
            if self.texts_are_many():
                yield from self.drain(everything=True)
                self.compact()
        yield from self.drain(everything=True)
        machine.shrink()

    def take(self, batch: pa.RecordBatch) -> Iterator[Drained]:
        """The same of a SEGMENTS batch, or of one that tells the time."""
        if tells_time(batch):
            return self.pass_time(time_told(batch))
        return self.follow(segment_columns(batch))

    def _decryption(self) -> Decryption:
        """What makes segments of TLS connections plain, from now on if it was not there."""
        if self.tls is None:
            from kwsniff.engine.decrypting import Decryption  # which loads what knows TLS

            self.tls = Decryption(self.config, self._share, compiled=self.machine.compiled)
            self.tls.begin(int(self.machine.t.run[0].order))
        return self.tls

    def drained(self, segments: Iterable[pa.RecordBatch]) -> Generator[Drained]:
        """What SEGMENTS batches in capture order and the end of the input tell."""
        for batch in segments:
            yield from self.take(batch)
        yield from self.end()

    def keyed(self, drained: Iterator[Drained]) -> Iterator[Part]:
        """What was drained as events, with the keys that order them."""
        for batch in self._made(drained):
            yield batch, self.keys

    def finish(self) -> Iterator[pa.RecordBatch]:
        """The input is over: what is still open ends, oldest connection first."""
        return self._made(self.end())

    def end(self) -> Iterator[Drained]:
        """The same before columns are made of it."""
        if self.tls is not None:
            yield from self._follow(self.tls.finish())
        run = self.machine.t.run[0]
        run.finished = run.order
        yield from self.act(entry.FINISH)
        yield from self.drain(everything=True)

    def tick(self, now: int) -> Iterator[pa.RecordBatch]:
        """No segment before `now` (nanoseconds since 1970) is still to come: yield what that settles."""
        return self._made(self.pass_time(now))

    def pass_time(self, now: int) -> Iterator[Drained]:
        """The same before columns are made of it."""
        if self.tls is not None:
            yield from self._follow(self.tls.pass_time(now))
        yield from self.act(entry.TICK, now)
        yield from self.drain(everything=True)

    def events(self, drained: Drained) -> pa.RecordBatch:
        """What was drained as an EVENTS batch; one after the other, in the order in which it was drained."""
        return self.emitter.batch(drained)

    def _made(self, drained: Iterator[Drained]) -> Iterator[pa.RecordBatch]:
        return map(self.events, drained)

    def _before(self, count: int) -> None:
        """So many segments are about to be taken."""

    def _after(self, segments: SegmentColumns, first: int, stop: int) -> None:
        """The segments from `first` to `stop` were taken."""

    def trace(self) -> Decisions:
        """Note from now on what is decided of every connection, and why. What it returns gives it out; it has
        to be asked after every batch, for a decision is a row that stays until then."""
        return Decisions(self.machine)

    # How it stands

    @property
    def connections(self) -> int:
        """Connections followed at present."""
        return int(self.machine.t.run[0].followed)

    @property
    def in_flight(self) -> int:
        """Requests that wait for a response, of all connections."""
        return int(self.machine.t.run[0].waiting)

    @property
    def keys(self) -> Ints:
        """Of the rows of the batch that was yielded last: numbers that ascend, and by which rows of engines
        that share the connections come into the order that one engine would give them. What one packet
        settled of several connections has the same number."""
        return self.emitter.keys

    def may_be_kafka(self, segments: SegmentColumns) -> NDArray[np.bool_]:
        """For each of some segments that were fed, whether its connection is Kafka, or may yet be."""
        found = np.zeros(len(segments), np.bool_)
        nowhere = np.zeros(len(segments), np.int64)
        for at in range(0, len(segments), AT_ONCE):
            stop = min(at + AT_ONCE, len(segments))
            self._set_segments(segments, nowhere, nowhere, at, stop)
            list(self.machine.act(entry.WATCH, stop - at))
            found[at:stop] = self.machine.array("segments", stop - at)["watched"] != 0
        return found

    def __getstate__(self) -> dict[str, Any]:
        return {
            "config": self.config,
            "share": self._share,
            "tables": checkpoint.state(self.machine),
            "drained": self.emitter.state(),
            "tls": self.tls,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["config"], state["share"])  # type: ignore[misc]
        checkpoint.restore(self.machine, state["tables"])
        self.emitter.go_on(state["drained"])
        self.tls = state["tls"]

    @property
    def steps(self) -> int:
        """Work done so far: segments, bytes searched and entries of lists passed."""
        return int(self.machine.t.run[0].steps)

    def act(self, what: int, how: int = 0) -> Iterator[Drained]:
        for everything in self.machine.act(what, how):
            if everything is None:
                self.emitter.show()
            else:
                yield from self.drain(everything)

    def drain(self, everything: bool) -> Iterator[Drained]:
        drained = self.emitter.take(everything)
        if drained is not None:
            yield drained if self.tls is None else self.tls.told(drained)

    def texts_are_many(self) -> bool:
        store = self.machine.t.store[0]
        return bool(store.texts > self._most_texts or store.text_bytes > self._most_bytes)

    def compact(self) -> None:
        """Drop texts; again when there are twice as many as are left, or a quarter more of their bytes."""
        self.machine.compact_texts()
        self.emitter.forget_texts()
        store = self.machine.t.store[0]
        self._most_texts = max(MAX_TEXTS, 2 * int(store.texts))
        held = int(store.text_bytes)
        self._most_bytes = held + max(MAX_TEXT_BYTES, held // 4)


def analyze(
    segments: Iterable[pa.RecordBatch],
    config: Config,
    engine: Engine | None = None,
    *,
    prefetch: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Turn SEGMENTS batches in capture order into EVENTS batches.

    A batch holds segments of one capture file. Never raises for what the segments carry: damage becomes
    anomaly rows. The next batch is asked for when the events of the last one have been taken. `engine`, if
    given, is a new one of the same `config`, for those who want to know how it stands. With `prefetch` a
    thread of its own follows the connections, ahead of who takes the events.
    """
    engine = engine or Engine(config)
    drained = engine.drained(segments)
    if prefetch and engine.compiled:
        drained = prefetched(drained)
    with closing(drained):
        yield from map(engine.events, drained)


def keyed(
    segments: Iterable[pa.RecordBatch], config: Config, share: tuple[int, int] | None = None
) -> Iterator[Iterator[Part]]:
    """For each SEGMENTS batch, and once more at the end, the events it completes, in parts that are made one
    after the other, and keys that order them.

    With `share` (index, count) only one share of the connections is followed; the keys of all shares together
    give the order in which one process yields the events. Each batch's parts have to be taken before the
    next batch is asked for.
    """
    engine = Engine(config, share)
    for batch in segments:
        yield engine.keyed(engine.take(batch))
    yield engine.keyed(engine.end())
