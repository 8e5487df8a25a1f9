"""Topic names for rows that were made before the name was known, in a stream that keeps its order. Before
that, fetch sessions are followed (see `kwsniff.count.sessions`): what they are about has names, too.

Theory of operation: batches pass straight through until one holds a topic uuid that no response has named
yet. From there on all batches are held, in memory first and beyond a bound in a temporary file, until every
uuid in what is held has its name or the input ends; then they go on with the names filled in. Where nothing
may be held, every batch gets the names known by then.

Invariants: rows leave in the order they came; each batch leaves exactly once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from kwsniff.count.sessions import followed
from kwsniff.count.spool import Spool
from kwsniff.count.topics import TopicNames, Unnamed, fill

MEMORY = 32 << 20


def named(
    batches: Iterable[pa.RecordBatch],
    *,
    hold: bool = True,
    memory: int = MEMORY,
    learner: TopicNames | None = None,
) -> Iterator[pa.RecordBatch]:
    """`batches` (EVENTS) with topic names in place of nulls wherever the uuid is named somewhere.

    Args:
        hold: whether rows may wait for names that come later. False: the names known by then are used.
        learner: what knows names from elsewhere, and learns those of these batches.
        memory: bytes of batches that wait in memory before a temporary file takes them.

    Raises:
        OSError: the temporary file cannot be written.
    """
    learner = learner or TopicNames()
    held = _Held(memory)
    waiting: set[str] = set()
    try:
        for batch in followed(batches):
            unnamed = Unnamed(batch)
            if unnamed.pairs:
                learner.learn(unnamed.pairs)
            if hold:
                waiting |= unnamed.uuids()
                waiting -= learner.names.keys()
            if waiting:
                held.add(batch)
                continue
            for earlier in held.drain():
                yield fill(earlier, learner.names)
            yield unnamed.filled(learner.names)
        for earlier in held.drain():
            yield fill(earlier, learner.names)
    finally:
        held.close()


class _Held:
    """Batches in the order they came, on disk as soon as they outgrow `memory`."""

    def __init__(self, memory: int) -> None:
        self._memory = memory
        self._bytes = 0
        self._batches: list[pa.RecordBatch] = []
        self._spool: Spool | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        if self._spool is not None:
            self._spool.add(batch)
            return
        self._batches.append(batch)
        self._bytes += batch.nbytes
        if self._bytes > self._memory:
            self._spool = Spool()
            for earlier in self._batches:
                self._spool.add(earlier)
            self._batches = []

    def drain(self) -> Iterator[pa.RecordBatch]:
        """Hand out everything held and be empty again."""
        batches, self._batches, self._bytes = self._batches, [], 0
        yield from batches
        if self._spool is not None:
            yield from self._spool.read()
            self.close()

    def close(self) -> None:
        """Give the disk space back."""
        if self._spool is not None:
            self._spool.close()
            self._spool = None
