"""The offline run with connections divided over processes: one reads, others follow a share of the
connections each. That pays where following them is most of the work (`--full`).

Theory of operation. An event depends only on its own connection's segments, so connections can be divided by
a hash of their ends. The reader dissects packets and lays their segments into memory that all share (see
`kwsniff.run.slots`). A worker follows the connections of its share (`kwsniff.run.share`). It sends the events
that its packets completed, with keys that ascend, by which this process puts them into the order that one
would give them. What is open at the end is sent, too, and ended here, all of it together.

Invariants. No more than `AHEAD` batches and some slices of events are held, whatever a batch brings forth:
this process listens to the worker that is furthest behind, and a worker that is ahead waits (see
`kwsniff.run.processes`). Limits over all connections are those of one process: with their events workers say
how much they hold, and before those together could reach a limit, or where time jumps, the input is read
again by one process, from its beginning, the rows that were passed on being passed over."""

from __future__ import annotations

import pickle
import secrets
from collections.abc import Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kwsniff.capture.source import CaptureTotals, segments
from kwsniff.config import Config
from kwsniff.engine.analyze import analyze
from kwsniff.engine.engine import share_of
from kwsniff.engine.outcomes import SHARE
from kwsniff.net.segments import SegmentColumns
from kwsniff.rows.arrays import in_order, record_batch
from kwsniff.rows.schema import EVENTS
from kwsniff.run.join import Joiner
from kwsniff.run.part import Emitted
from kwsniff.run.processes import EndedError, Pipe, Processes, received, told
from kwsniff.run.reading import Progress, read
from kwsniff.run.share import ShareEngine
from kwsniff.run.slots import Slots

Ints = NDArray[np.int64]
AHEAD = 4
"""Batches that are laid out for the workers at a time."""
BUCKETS = 4096
"""Connections are dealt out to the shares in so many heaps."""
ALL = 1 << 62


class _Part(NamedTuple):
    """What one worker has to say of a slice of a batch, or of its end."""

    until: int
    """All events of the batch with lower keys have been told; `ALL` at its end."""
    held: tuple[int, ...]
    """Most it held since the batch began, as `Summary.most`."""
    limited: bool
    """It reached a limit over all its connections, or cannot know what time it is."""
    places: tuple[Ints, Ints, Ints] | None = None
    """Keys, ranks and numbers of the events that come with it, see `Emitted`."""


class _LimitedError(Exception):
    """All workers together could have reached a limit."""


def events(
    paths: Sequence[str], config: Config, jobs: int, totals: CaptureTotals, progress: Progress | None = None
) -> Iterator[pa.RecordBatch]:
    """EVENTS batches as `kwsniff.run.offline.events` yields them, made by `jobs` worker processes and one
    that reads.

    Raises:
        CaptureError: an input became unreadable on the way; what came before was yielded.
        OSError: there is no room for processes.
    """
    # Here, not when the first event is wanted: other threads may run by then.
    return _rows(_Crew(paths, config, jobs), paths, config, totals, progress)


def _rows(
    crew: _Crew, paths: Sequence[str], config: Config, totals: CaptureTotals, progress: Progress | None
) -> Iterator[pa.RecordBatch]:
    emitted = 0
    try:
        for batch in crew.events(totals, progress):
            emitted += len(batch)
            yield batch
        return
    except _LimitedError:
        pass
    finally:
        crew.close()
    totals.become(CaptureTotals())
    for batch in analyze(segments(paths, config, totals, prefetch=True), config):
        if emitted < len(batch):
            yield batch.slice(emitted)
        emitted = max(emitted - len(batch), 0)


class _Crew:
    """The processes of a run."""

    def __init__(self, paths: Sequence[str], config: Config, jobs: int) -> None:
        self._config, self._seed = config, secrets.randbits(62)
        self._slots, self._processes = Slots.made(AHEAD), Processes()
        self._limits = (
            config.max_buffered_bytes, config.max_outstanding_total, config.max_connections,
            config.max_buffered_bytes // SHARE,
        )  # fmt: skip
        self._pipes: list[Pipe] = []
        try:
            self._start(jobs, paths)
        except BaseException:
            self.close()
            raise

    def _start(self, jobs: int, paths: Sequence[str]) -> None:
        tasks = []
        for share in range(jobs):
            theirs, task = self._processes.pipe()
            heard, said = self._processes.pipe(duplex=True)
            tasks.append(task)
            self._pipes.append(Pipe(heard))
            self._processes.start(_work, said, self._slots, theirs, self._config, share, self._seed)
        freed, self._free = self._processes.pipe()
        self._read, said = self._processes.pipe()
        self._processes.start(_read, said, self._slots, freed, self._config, paths, *tasks)

    def events(self, totals: CaptureTotals, progress: Progress | None) -> Iterator[pa.RecordBatch]:
        """The events of all workers in order."""
        while True:
            slot, stand = _receive(self._read)
            if slot is not None:
                yield from _Block(self._pipes, self._limits).batches()
                with suppress(BrokenPipeError):  # it may be done
                    self._free.send_bytes(pickle.dumps(slot))
            stand.show(totals, progress)
            if slot is None:
                break
        joiner = Joiner(self._config, self._seed)
        for pipe in self._pipes:
            joiner.first(_said(pipe)[0])
        for emitted in joiner.finish():
            yield emitted.batch

    def close(self) -> None:
        """End the processes."""
        self._processes.close()
        self._slots.close()


def _receive(pipe: Connection) -> Any:
    with told():
        try:
            return received(pipe.recv_bytes())
        except (EOFError, OSError):
            raise EndedError.because() from None


def _said(pipe: Pipe) -> tuple[Any, pa.RecordBatch | None]:
    with told():
        return pipe.receive()


class _Block:
    """What all workers say of one batch."""

    def __init__(self, pipes: Sequence[Pipe], limits: Sequence[int]) -> None:
        self._pipes, self._limits = pipes, limits
        self._until = [-1] * len(pipes)
        self._most: list[tuple[int, ...]] = [(0,) * len(limits) for _ in pipes]
        self._held: list[list[Emitted]] = [[] for _ in pipes]
        """Of each worker: events that cannot be passed on yet."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The events of all workers in order. Raises _LimitedError before the first that may be wrong."""
        passed = -1
        while passed < ALL:
            self._listen(self._until.index(min(self._until)))
            if min(self._until) > passed:
                passed = min(self._until)
                batch = self._passed_on(passed)
                if batch is not None:
                    yield batch

    def _listen(self, worker: int) -> None:
        part: _Part
        part, batch = _said(self._pipes[worker])
        self._until[worker], self._most[worker] = part.until, part.held
        together = [sum(each) for each in zip(*self._most, strict=True)]
        if part.limited or any(map(int.__ge__, together, self._limits)):
            raise _LimitedError
        if part.places is not None:
            self._held[worker].append(Emitted(batch, *part.places))

    def _passed_on(self, until: int) -> pa.RecordBatch | None:
        """What is held of events with lower keys."""
        given: list[Emitted] = []
        for held in self._held:
            for place, emitted in enumerate(held):
                count = int(np.searchsorted(emitted.keys, until))
                given.append(_cut(emitted, 0, count))
                held[place] = _cut(emitted, count, len(emitted.keys))
            held[:] = [each for each in held if len(each.keys)]
        given = [each for each in given if len(each.keys)]
        if not given:
            return None
        parts = [
            (dict(zip(each.batch.schema.names, each.batch.columns, strict=True)), len(each.keys))
            for each in given
        ]
        if len(given) == 1:
            return record_batch(*parts[0], EVENTS)
        places = _order(given)
        return record_batch(in_order(parts, places, EVENTS), len(places), EVENTS)


def _cut(emitted: Emitted, first: int, end: int) -> Emitted:
    rows = emitted.batch.slice(first, end - first)
    return Emitted(rows, emitted.keys[first:end], emitted.ranks[first:end], emitted.numbers[first:end])


def _order(given: list[Emitted]) -> Ints:
    """The rows of several workers in the order of one process."""
    keys, ranks, numbers = (
        np.concatenate([getattr(each, name) for each in given]) for name in ("keys", "ranks", "numbers")
    )
    return np.lexsort((numbers, ranks, keys))


# In the other processes


def _work(end: Connection, slots: Slots, tasks: Connection, config: Config, share: int, seed: int) -> None:
    """A worker's life: for each batch a message a slice, and one at its end; what is open then."""
    pipe, engine = Pipe(end), ShareEngine(config, seed, share)
    while (laid := pickle.loads(tasks.recv_bytes())) is not None:
        columns = slots.segments(laid)
        engine.count_anew()
        for emitted in engine.part([columns]):
            places = emitted.keys, emitted.ranks, emitted.numbers
            pipe.send(_Part(int(emitted.keys[-1]), *engine.most(), places), emitted.batch)
        held, limited = engine.most()
        pipe.send(_Part(ALL, held, limited or engine.astray))
    pipe.send(engine.summary())
    pipe.drain()


def _read(
    pipe: Connection,
    slots: Slots,
    freed: Connection,
    config: Config,
    paths: Sequence[str],
    *tasks: Connection,
) -> None:
    """The reader's life: lay out a batch wherever there is room, and tell everybody: its slot (None at the
    end), and how far reading has come."""
    free = list(range(AHEAD))
    shares = _Shares(len(tasks))
    for stand, columns in read(paths, config):
        if columns is None:
            for task in tasks if stand.error is None else ():
                _tell(task, None)
            _tell(pipe, (None, stand))
            break
        slot = free.pop() if free else pickle.loads(freed.recv_bytes())
        laid = slots.lay(slot, columns, shares.of(columns))
        _tell(pipe, (slot, stand))
        for task in tasks:
            _tell(task, laid)
    with suppress(EOFError):
        while True:  # until nobody frees slots any more
            freed.recv_bytes()


class _Shares:
    """Deals connections out in heaps, so that all shares of the first batch are about as large."""

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs
        self._heaps: Ints | None = None

    def of(self, columns: SegmentColumns) -> Ints:
        """The share of each segment."""
        heap = share_of(columns, BUCKETS)
        if self._heaps is None:
            self._heaps = self._dealt(np.bincount(heap, minlength=BUCKETS))
        found: Ints = self._heaps[heap]
        return found

    def _dealt(self, counts: Ints) -> Ints:
        """For heaps of so many segments, the shares they go to."""
        heaps = np.arange(BUCKETS) % self._jobs
        loads = [0] * self._jobs
        for each in np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)].tolist():
            least = loads.index(min(loads))
            heaps[each] = least
            loads[least] += int(counts[each])
        return heaps


def _tell(pipe: Connection, what: Any) -> None:
    pipe.send_bytes(pickle.dumps(what, pickle.HIGHEST_PROTOCOL))
