"""A progress bar on standard error, for runs that take more than a second before a person's eyes."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any

PATIENCE = 1.0
INTERVAL = 0.1


class ProgressBar:
    """Called with bytes done and, where known, bytes in all. Says nothing unless standard error is a
    terminal, and nothing before `PATIENCE` seconds; rich is imported only then."""

    def __init__(self, *, wanted: bool = True) -> None:
        self._enabled = wanted and sys.stderr.isatty()
        self._started = self._shown = time.monotonic()
        self._bar: Any = None
        self._task: Any = None

    def __call__(self, done: int, total: int | None) -> None:
        if not self._enabled:
            return
        now = time.monotonic()
        if now - self._started < PATIENCE or now - self._shown < INTERVAL:
            return
        self._shown = now
        if self._bar is None:
            self._start()
        self._bar.update(self._task, completed=done, total=total)

    def _start(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            Progress,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )

        self._bar = Progress(
            BarColumn(),
            DownloadColumn(binary_units=True),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
            # The pipeline calls often enough; a refresh thread would draw into other output.
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._bar.start()
        self._task = self._bar.add_task("", total=None)

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
