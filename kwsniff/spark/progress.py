"""What a job is at: the step, how many of its tasks are done, about how many bytes, and the time left.

On a terminal that is one line that changes; elsewhere a line every ten seconds, for logs.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kwsniff.report.text import bytes_text
from kwsniff.spark.control import context_of

if TYPE_CHECKING:
    from kwsniff.spark.control import Spark

INTERVAL = 0.5
"""Seconds between two looks."""
LINE_INTERVAL = 10.0
"""Seconds between two lines where there is no terminal."""
Count = Callable[[], tuple[int, int]]
"""Tells how many tasks are done, and how many there are; 0 between stages."""


class Steps:
    """What the job is at."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self._name, self._bytes = "starting", 0

    def __call__(self, name: str, size: int = 0) -> None:
        """The next step begins; `size` are the bytes that its tasks share, if they do."""
        self._name, self._bytes, self._began = name, size, self._clock()

    def line(self, done: int, total: int) -> str:
        """The step, when so many of its tasks are done."""
        parts = [f"{done:,}/{total:,} tasks"] if total else []
        if total and self._bytes:
            # Tasks are of about one size.
            parts.append(f"about {bytes_text(self._bytes * done // total)} of {bytes_text(self._bytes)}")
        if 0 < done < total:
            seconds = (self._clock() - self._began) / done * (total - done)
            parts.append(f"{_span(seconds)} left")
        return f"{self._name}: {', '.join(parts)}" if parts else self._name


def _span(seconds: float) -> str:
    minutes, rest = divmod(int(seconds + 0.5), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


@contextmanager
def watched(spark: Spark, *, quiet: bool = False) -> Iterator[Steps]:
    """Show the progress of Spark's jobs on standard error during the block, which tells the steps; `quiet`
    shows it on a terminal only."""
    steps = Steps()

    def count() -> tuple[int, int]:
        return tasks(spark)

    if sys.stderr.isatty():
        with _on_terminal(steps, count):
            yield steps
    elif quiet:
        yield steps
    else:
        with _regularly(LINE_INTERVAL, lambda: _print(steps.line(*count()))):
            yield steps


@contextmanager
def _on_terminal(steps: Steps, count: Count) -> Iterator[None]:
    from rich.console import Console
    from rich.markup import escape

    with (
        Console(stderr=True).status("starting") as status,
        _regularly(INTERVAL, lambda: status.update(escape(steps.line(*count())))),
    ):
        yield


@contextmanager
def _regularly(interval: float, look: Callable[[], None]) -> Iterator[None]:
    """Do something every so many seconds during the block."""
    done = threading.Event()

    def looking() -> None:
        while not done.wait(interval):
            try:
                look()
            except Exception:  # Spark is gone: the block will tell
                return

    thread = threading.Thread(target=looking, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _print(line: str) -> None:
    print(f"kwsniff: {line}", file=sys.stderr, flush=True)


def tasks(spark: Spark) -> tuple[int, int]:
    """Tasks of the stages that run: how many are done, and how many there are."""
    tracker = context_of(spark).statusTracker()
    stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
    known = [each for each in stages if each is not None]
    return sum(each.numCompletedTasks for each in known), sum(each.numTasks for each in known)
