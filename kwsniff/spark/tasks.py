"""Jobs of plain tasks: each takes one thing, and what it makes comes back to the driver; how far they are.

These are no DataFrames: a query's plan, and the code that is made for it, would take seconds of a first run,
and a tenth of one for each job after that. Rows do not come back, either: an event that went through the JVM
would be taken apart into its sixty fields and put together again, for longer than it took to decode. So tasks
write rows to files (`kwsniff.spark.staged`), and give back where these lie.
"""

from __future__ import annotations

import pickle
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

import zstandard

from kwsniff.capture.place import Place
from kwsniff.output.units import bytes_text
from kwsniff.run.tuning import trimmed

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    Spark = SparkSession | SparkContext

Given = TypeVar("Given")
Made = TypeVar("Made")
LEVEL = 3
"""Of zstd; the highest one saves 5 % more in a hundred times the time."""
STAGE_NAME = "callSite.short"
"""Spark's property for it."""


def context_of(spark: Spark) -> SparkContext:
    """What runs tasks; a session is more, which queries need."""
    from pyspark import SparkContext

    return spark if isinstance(spark, SparkContext) else spark.sparkContext


def described(spark: Spark) -> Callable[[], None]:
    """Gives the jobs of the thread that calls it the description of those of this one."""
    context, name = context_of(spark), "spark.job.description"
    text = context.getLocalProperty(name)
    return lambda: context.setLocalProperty(name, text) if text else None


def run(spark: Spark, name: str, given: Sequence[Given], work: Callable[[Given], Made]) -> list[Made]:
    """What a task makes of each thing that is given, in their order; on Spark's page the tasks are called
    `name`. Raises what Spark raises."""
    if not given:
        return []

    def each(things: Iterable[Given]) -> list[Made]:
        trimmed()
        return [work(thing) for thing in things]

    context = context_of(spark)
    context.setLocalProperty(STAGE_NAME, name)
    try:  # `collect` would give the stage its own name, and the line of this file
        return context.runJob(context.parallelize(given, len(given)), each)
    finally:
        context.setLocalProperty(STAGE_NAME, None)  # type: ignore[arg-type]


def kept(place: Place, what: object) -> tuple[str, int]:
    """Write anything that can be pickled to a new file in a directory, for other tasks: where it lies, and
    its bytes. A task that is tried again writes another one. Raises OSError."""
    data = zstandard.compress(pickle.dumps(what, pickle.HIGHEST_PROTOCOL), LEVEL)
    file = place / uuid4().hex
    file.replace(data)
    return file.url, len(data)


def fetched(url: str) -> Any:
    """What `kept` wrote. Raises OSError."""
    return pickle.loads(zstandard.decompress(Place(url).read()))


# What a job is at: the step, how many of its tasks are done, about how many bytes, and the time left. On a
# terminal that is one line that changes; elsewhere a line every ten seconds, for logs.

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
    steps, count = Steps(), partial(counts, spark)
    if sys.stderr.isatty():
        with _on_terminal(steps, count):
            yield steps
    elif quiet:
        yield steps
    else:
        with _regularly(
            LINE_INTERVAL, lambda: print(f"kwsniff: {steps.line(*count())}", file=sys.stderr, flush=True)
        ):
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


def counts(spark: Spark) -> tuple[int, int]:
    """Tasks of the stages that run: how many are done, and how many there are."""
    tracker = context_of(spark).statusTracker()
    stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
    known = [each for each in stages if each is not None]
    return sum(each.numCompletedTasks for each in known), sum(each.numTasks for each in known)
