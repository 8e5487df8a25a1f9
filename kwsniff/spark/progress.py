"""One line on the terminal about the step that a job is at, and how many of its tasks are done."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INTERVAL = 0.5
"""Seconds between two looks."""


class Steps:
    """What the job is at."""

    def __init__(self) -> None:
        self.now = "starting"

    def __call__(self, step: str) -> None:
        self.now = step


@contextmanager
def watched(spark: SparkSession) -> Iterator[Steps]:
    """Show the progress of Spark's jobs during the block, if standard error is a terminal; the block tells
    the steps."""
    steps = Steps()
    if not sys.stderr.isatty():
        yield steps
        return
    from rich.console import Console
    from rich.markup import escape

    done = threading.Event()
    with Console(stderr=True).status("starting") as status:

        def look() -> None:
            while not done.wait(INTERVAL):
                status.update(escape(steps.now + tasks(spark)))

        thread = threading.Thread(target=look, daemon=True)
        thread.start()
        try:
            yield steps
        finally:
            done.set()
            thread.join()


def tasks(spark: SparkSession) -> str:
    """How many tasks of the stages that run are done; nothing between stages."""
    tracker = spark.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
    parts = [f"{each.numCompletedTasks}/{each.numTasks} tasks" for each in stages if each is not None]
    return f": {', '.join(parts)} done" if parts else ""
