"""Capture files in, events out, on this machine."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from kwsniff import parallel
from kwsniff.capture.source import CaptureTotals, resolve, segments
from kwsniff.capture.stop import Stop
from kwsniff.config import MIB, Config
from kwsniff.engine.bulk import warm
from kwsniff.engine.bulk.rehearsal import compile_apart
from kwsniff.pipeline import analyze

WORTH_KERNELS = 24 * MIB
"""Bytes of input from which on loading compiled kernels pays ..."""
WORTH_COMPILING = 256 * MIB
"""... and compiling them first."""
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
    `jobs` is the number of processes: 1 is this one, None as many as there are cores if the input is large.
    The events are the same for any number; a pipe can be read by one process only. `stop`, once set, ends
    what comes through a pipe.

    Raises:
        CaptureError: with one line that says which input cannot be read, and why.
    """
    totals = CaptureTotals() if totals is None else totals
    sizes = [file.size for file in resolve(paths)] if jobs != 1 or config.kernels == "auto" else []
    if sizes and None not in sizes:
        size = sum(filter(None, sizes))
        config = with_kernels(config, size)
        if jobs is None:
            # Reading is most of what the kernels leave to do, and every process reads all.
            divisible = config.full or config.kernels == "never"
            jobs = (os.cpu_count() or 1) if size > WORTH_PROCESSES and divisible else 1
        if jobs > 1:
            return parallel.events(paths, config, jobs, totals, progress)
    return analyze(segments(paths, config, totals, progress, stop), config)


def with_kernels(config: Config, size: int) -> Config:
    """Settle now whether a run over so many bytes uses compiled kernels: later it would cost exact blocks."""
    if config.kernels != "auto":
        return config
    state = warm.kernels() if size > WORTH_KERNELS else warm.MISSING
    worth = state == warm.READY or (state == warm.COLD and size > WORTH_COMPILING and compile_apart())
    return replace(config, kernels="always" if worth else "never")
