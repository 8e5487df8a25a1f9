"""The job of `kwsniff pipeline`: captures to a directory of results, on Spark."""

from __future__ import annotations

import logging
import os
import signal
import socketserver
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import FrameType
from typing import TYPE_CHECKING, Any

from kwsniff.capture.error import CaptureError, Stop
from kwsniff.capture.place import Unread
from kwsniff.cli import problem
from kwsniff.cli.destination import Stopping
from kwsniff.cli.problem import CommandError, said
from kwsniff.cli.request import Request, parsed, seconds_of
from kwsniff.output.units import many

if TYPE_CHECKING:
    import pyarrow as pa

    from kwsniff.spark import job
    from kwsniff.spark.results import StreamRecord
    from kwsniff.spark.streaming import Stream
    from kwsniff.spark.version import Where


POLL_S = 1.0
"""How often directories are looked at that are followed."""


@dataclass(frozen=True, kw_only=True)
class PipelineRequest(Request):
    """What `kwsniff pipeline` can be asked."""

    out: str
    form: str = "parquet"
    """Of the tables."""
    master: str | None = None
    append: bool = False
    partitions: int | None = None
    """Tasks that read everything each; None: tasks that read a part each."""
    split_size: int | None = None
    """MiB of such a part, about."""
    verbose: bool = False
    follow: bool = False
    once: bool = False
    end: bool = False
    window: str = "1m"
    late: str = "1m"
    settle: str = "60s"
    state: str | None = None
    """Where a stream keeps what it needs to go on; None: in `out`."""


def pipeline(request: PipelineRequest) -> int:
    """Run the job, or the stream; return the exit code.

    Raises:
        CommandError: the request is wrong, Spark cannot be started, the output is in the way, or an input
            could not be read.
    """
    if request.state is not None and not request.follow:
        raise CommandError("--state is for --follow")
    if not (request.follow or request.once or request.end):
        return decode_files(request)
    if not request.follow or request.append:
        raise CommandError("--append is for runs without --follow; --once and --end are for --follow")
    return follow(request)


@contextmanager
def _plain_ends() -> Iterator[None]:
    """Turn what keeps a job from its end into a CommandError."""
    from kwsniff.spark.results import OutputError
    from kwsniff.spark.sparksession import JavaError, SparkFailedError, SparkMissingError, TaskError

    try:
        yield
    except (CaptureError, OutputError, SparkMissingError) as error:
        raise CommandError(str(error)) from None
    except (JavaError, TaskError, OSError) as error:
        raise CommandError(str(error)) from error
    except SparkFailedError as error:
        raise CommandError(f"{error} (-v shows Spark's log)", problem.INTERNAL) from error


def decode_files(request: PipelineRequest) -> int:
    """Run the job; return the exit code. Raises CommandError."""
    from kwsniff.spark import job
    from kwsniff.spark.results import inputs
    from kwsniff.spark.sparksession import context, plain_failures
    from kwsniff.spark.tasks import watched

    unread: list[Unread] = []
    with _plain_ends():
        job.check(request.out, request.form)
        inputs(request.paths, 0, unread)  # before Spark takes its seconds to start
        for each in unread:
            said(f"{each}; it is passed over")
        spark = context(request.master, verbose=request.verbose)
        with watched(spark, quiet=request.quiet) as steps, plain_failures():
            result = job.run(
                spark,
                request.paths,
                request.out,
                request.config,
                append=request.append,
                shards=request.partitions,
                split=None if request.split_size is None else request.split_size << 20,
                form=request.form,
                tell=steps,
            )
    _tell(request, result)
    return problem.DAMAGED if result.damaged or unread else problem.DONE


def _tell(request: PipelineRequest, result: job.JobResult) -> None:
    known = result.manifest
    if result.report is None:
        said(f"nothing new: {request.out} holds all {len(known.inputs)} files")
        return
    counts = ", ".join(f"{count:,} {kind}s" for kind, count in known.events.items())
    counts = counts.replace("anomalys", "anomalies")
    said(f"{many(len(result.read), 'file')} read; {request.out} holds {counts}")
    if not request.quiet:
        print(known.trust, file=sys.stderr)


# The job of `kwsniff pipeline --follow`: rotated captures to events and statistics as they come.


def follow(request: PipelineRequest) -> int:
    """Follow until stopped, or with `once` or `end` through the files that are there; return the exit code.

    Raises:
        CommandError: Spark cannot be started, the output is in the way, or an input could not be read.
    """
    from kwsniff.spark import formats, results, sparksession, version

    stop = Stop()
    unread: list[Unread] = []
    try:
        with _plain_ends():
            where = version.Where.of(request.out, request.state)
            formats.check(request.form, where.out)
            sparksession.installed()
            with Signals(stop):
                _run(request, where, stop, unread)
    except CommandError as error:
        if error.__cause__ is not None:
            stop.wait(1)
        if not stop.is_set():  # asked of Java too, a moment earlier
            raise
    return _sum_up(request, results.last_record(where.out), unread)


def _run(request: PipelineRequest, where: Where, stop: Stop, unread: list[Unread]) -> None:
    """Run the stream to its end; `unread` takes files that were passed over."""
    from kwsniff.spark import streaming as stream
    from kwsniff.spark import version
    from kwsniff.spark.sparksession import context, plain_failures
    from kwsniff.spark.streamsource import Following

    window, late = _seconds(request.window, "--window"), _seconds(request.late, "--late")
    if window < 1:
        raise CommandError("--window: less than a second")
    following = Following(
        _directories(request.paths), "", request.config, 0,
        quiet=_seconds(request.settle, "--settle"), end=request.end,
    )  # fmt: skip
    wanted = version.Settings(
        version.plain(request.config), request.partitions or 0, window, late, request.form
    )
    version.settled(where, wanted, keep=False)  # before Spark takes its seconds to start
    # In another thread, or PySpark would take Ctrl-C for itself.
    with ThreadPoolExecutor(1) as thread:
        spark = thread.submit(context, request.master, verbose=request.verbose).result()
    with plain_failures():
        shares = wanted.shares or spark.defaultParallelism
        with version.locked(where.out):
            settings = version.settled(where, replace(wanted, shares=shares))
            made = stream.Stream(spark, following, where, settings, _tell_of_stream)
            said(f"following {', '.join(request.paths)} into {request.out}; {_so_far(made.record())}")
            made.start(once=request.once or request.end)
            _follow(made, stop, unread, once=request.once or request.end)


def _follow(made: Stream, stop: Stop, unread: list[Unread], *, once: bool) -> None:
    told: dict[str, int] = {}
    while not stop.is_set():
        began = time.monotonic()
        over = not made.batch() and once
        for each in made.unread(len(unread)):
            said(f"{each}; it is passed over")
            unread.append(each)
        for path, lost in made.grown().items():
            if told.get(path) != lost:
                said(f"{path}: grew after it was read; {lost} bytes are lost (see --settle)")
                told[path] = lost
        if over:
            return
        if not once:
            stop.wait(POLL_S - (time.monotonic() - began))


class Signals(Stopping):
    """Sets `stop` when Ctrl-C or SIGTERM asks for it; a second one ends the process at once."""

    def arrived(self, number: int, frame: FrameType | None) -> None:
        self._stop.set()
        for each in self._before:
            signal.signal(each, signal.SIG_DFL)
        _hush()
        said("stopping after the batch in progress")


def _hush() -> None:
    """What stops this process may stop Java too, and the threads that talk to it say so at length."""
    for name in ("py4j", "pyspark"):
        logging.getLogger(name).disabled = True
        for each in (log for log in logging.root.manager.loggerDict if log.startswith(f"{name}.")):
            logging.getLogger(each).disabled = True
    threading.excepthook = _no_more
    socketserver.BaseServer.handle_error = _no_more  # type: ignore[assignment, method-assign]


def _no_more(*_: object) -> None:
    """Nobody needs to know any more."""


def _tell_of_stream(before: StreamRecord, record: StreamRecord, closed: pa.Table) -> None:
    """One line on standard output for each window that was closed."""
    for row in closed.to_pylist():
        if row["api"] is None:
            print(_line(row), flush=True)
    if record.late > before.late:
        said(f"{record.late - before.late:,} calls came after their window was closed")


def _line(row: dict[str, Any]) -> str:
    parts = [
        f"{row['window_start']:%Y-%m-%d %H:%M:%S}",
        f"{row['calls']:,} calls",
        f"{row['errors']:,} errors",
        f"{row['unanswered']:,} unanswered",
        f"{row['connections']:,} connections",
    ]
    if row["latency_p50_us"] is not None:
        parts += [f"{name} {row[f'latency_{name}_us'] / 1000:,.1f} ms" for name in ("p50", "p99", "max")]
    return "  ".join(parts)


def _sum_up(request: PipelineRequest, record: StreamRecord, unread: Sequence[Unread]) -> int:
    from kwsniff.analysis.trust import TrustTotals, paragraph
    from kwsniff.capture.source import CaptureTotals

    trust = TrustTotals(**record.trust)
    said(f"{request.out} holds {trust.calls:,} calls; {_so_far(record)}")
    if not request.quiet:
        print(paragraph(trust, CaptureTotals(**record.capture)), file=sys.stderr)  # type: ignore[arg-type]
    return problem.DAMAGED if trust.damaged or unread else problem.DONE


def _so_far(record: StreamRecord) -> str:
    files = f"{many(record.files, 'file')} read"
    return f"{files}, stream ended" if record.ended else files


def _directories(given: Sequence[str]) -> list[str]:
    for each in given:
        if not os.path.isdir(each):
            what = "is no directory" if os.path.exists(each) else "No such file or directory"
            raise CommandError(f"{each}: {what}; --follow wants the directories that are rotated")
    return [os.path.abspath(each) for each in given]


def _seconds(text: str, option: str) -> float:
    """As `seconds_of`, and none at all."""
    return 0.0 if text.strip() in ("0", "0s") else parsed(seconds_of, text, option)
