"""Capture files in, events out, on this machine."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from kwsniff.capture.error import Stop
from kwsniff.capture.place import is_remote, local
from kwsniff.capture.source import CaptureTotals, resolve, segments
from kwsniff.config import MIB, Config
from kwsniff.engine.analyze import analyze

WORTH_PROCESSES = 64 * MIB
"""Bytes of input from which on starting other processes pays."""
MOST_STAGES = 4
"""Stages there are, see `kwsniff.run.stages`; the fourth is that of who looks at the events as they pass."""


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
    `jobs` is how many processes take part; None as many as pay. The events are the same for any number; a
    pipe is read by one only. `stop`, once set, ends what comes through a pipe.

    Raises:
        CaptureError: with one line that says which input cannot be read, and why.
    """
    totals = CaptureTotals() if totals is None else totals
    count = processes(paths, config, jobs)
    if count > 1:
        from kwsniff.run import stages  # which loads what starts processes

        reader, renderers = count > 2 or config.full, count if config.full else 0
        try:
            return stages.events(paths, config, totals, progress, reader=reader, renderers=renderers)
        except OSError:  # there is no room for processes
            if jobs is not None:
                raise
    source = segments(paths, config, totals, progress, stop, prefetch=True)
    return analyze(source, config, prefetch=not any(map(_may_wait, paths)))


def processes(paths: Sequence[str], config: Config, jobs: int | None) -> int:
    """How many processes take part in reading these inputs, if `jobs` were asked for (None: as many as pay).

    Raises:
        CaptureError: an input cannot be read.
    """
    if jobs == 1:
        return 1
    sizes = [file.size for file in resolve(paths)]
    if not sizes or None in sizes:
        return 1
    from kwsniff.run.processes import cores, may_fork, may_start

    if not may_start():
        return 1
    if jobs is not None:
        return jobs
    if sum(filter(None, sizes)) <= WORTH_PROCESSES or not (config.full or may_fork()):
        return 1
    return cores() if config.full else min(cores(), MOST_STAGES)


def _may_wait(path: str) -> bool:
    """Whether reading may have to wait, as it has to for a pipe, which can't be broken off."""
    return not (is_remote(path) or os.path.isdir(local(path)) or os.path.isfile(local(path)))
