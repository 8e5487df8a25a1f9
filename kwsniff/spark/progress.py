"""One line on the terminal about what Spark is doing: the step, and how many of its tasks are done."""

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


@contextmanager
def watched(spark: SparkSession) -> Iterator[None]:
    """Show the progress of Spark's jobs during the block, if standard error is a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    done = threading.Event()
    with Console(stderr=True).status("Spark: starting") as status:

        def look() -> None:
            while not done.wait(INTERVAL):
                if text := running(spark):
                    status.update(text)

        thread = threading.Thread(target=look, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()


def running(spark: SparkSession) -> str | None:
    """The stages that run, with their tasks; None between stages."""
    tracker = spark.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
    parts = [f"{each.numCompletedTasks}/{each.numTasks} tasks" for each in stages if each is not None]
    return f"Spark: {', '.join(parts)} done" if parts else None
