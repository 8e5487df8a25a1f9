"""Keeps events on disk until the pass is over.

Topic names may come after the calls that need them, so rows that are to show them have to wait; in memory
they would be as large as the input. The file is anonymous: it is gone when the spool is, whatever
happens.
"""

from __future__ import annotations

import contextlib
import tempfile
import weakref
from collections.abc import Iterable, Iterator
from typing import IO

import pyarrow as pa
import pyarrow.compute as pc

from kwsniff.rows.schema import EVENTS

_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")


class Spool:
    """EVENTS batches written once, then read any number of times. Raises OSError if the disk is full."""

    def __init__(self, event: str | None = None) -> None:
        """Keep the events of one kind only, or all of them."""
        self._event = event
        self._file = tempfile.TemporaryFile(prefix="kwsniff-")  # noqa: SIM115, lives as long as the spool
        self._writer = pa.ipc.new_stream(self._file, EVENTS, options=_OPTIONS)
        self._open = True
        self._closer = weakref.finalize(self, _close, self._file)

    def tee(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Pass batches on and keep them."""
        for batch in batches:
            self.add(batch)
            yield batch

    def add(self, batch: pa.RecordBatch) -> None:
        """Keep one batch."""
        kept = batch if self._event is None else batch.filter(pc.equal(batch["event"], self._event))
        if kept.num_rows:
            self._writer.write_batch(kept)

    def read(self) -> Iterator[pa.RecordBatch]:
        """All batches kept, in order. Nothing can be added afterwards."""
        if self._open:
            self._writer.close()
            self._open = False
        self._file.seek(0)
        yield from pa.ipc.open_stream(self._file)

    def close(self) -> None:
        """Give the disk space back."""
        self._closer()


def _close(file: IO[bytes]) -> None:
    # What a full disk kept from being written is not needed any more; who wrote it was told.
    with contextlib.suppress(OSError):
        file.close()
