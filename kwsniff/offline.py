"""Capture files in, events out, on this machine."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from kwsniff.capture.place import is_remote, local
from kwsniff.capture.source import CaptureTotals, resolve, segments
from kwsniff.capture.stop import Stop
from kwsniff.config import MIB, Config
from kwsniff.native.code import ACT, load
from kwsniff.pipeline import analyze

WORTH_PROCESSES = 64 * MIB
"""Bytes of input from which on starting other processes pays."""


def events(
    paths: Sequence[str],
    config: Config,
    *,
    totals: CaptureTotals | None = None,
    progress: Callable[[int, int | None], None] | None = None,
    jobs: int | None = 1,
    stop: Stop | None = None,
) -> Iterator[pa.RecordBatch]:
    """EVENTS batches of capture files, directories of them, or `-` for standard input.

    `totals` is filled with what the files held, `progress` is told bytes read and, if known, bytes in all.
    `jobs` is how many processes decode, each some of the connections; None as many as there are cores if that
    pays. The events are the same for any number; a pipe is read by one only. `stop`, once set, ends what
    comes through a pipe.

    Raises:
        CaptureError: with one line that says which input cannot be read, and why.
    """
    totals = CaptureTotals() if totals is None else totals
    if jobs != 1:
        sizes = [file.size for file in resolve(paths)]
        if jobs is None:
            jobs = _worth(sizes) if config.full or not _compiled(config) else 1
        if jobs > 1 and sizes and None not in sizes:
            from kwsniff import parallel  # which loads what starts and joins processes

            return parallel.events(paths, config, jobs, totals, progress)
    source = segments(paths, config, totals, progress, stop, prefetch=True)
    return analyze(source, config, prefetch=not any(map(_may_wait, paths)))


def _may_wait(path: str) -> bool:
    """Whether reading may have to wait, as it has to for a pipe, which can't be broken off."""
    return not (is_remote(path) or os.path.isdir(local(path)) or os.path.isfile(local(path)))


def _compiled(config: Config) -> bool:
    """Whether kernels run compiled: then one process decodes about as fast as a file is read and rows are
    written, which are done side by side anyway."""
    return config.kernels != "never" and load(ACT) is not None


def _worth(sizes: list[int | None]) -> int:
    """How many processes gain for files of these sizes."""
    return (os.cpu_count() or 1) if sum(filter(None, sizes)) > WORTH_PROCESSES else 1
