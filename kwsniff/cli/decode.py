"""The job of `kwsniff decode`: events in, rows of one format out."""

from __future__ import annotations

import os
import shutil
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from threading import Timer
from typing import TYPE_CHECKING

import pyarrow as pa

from kwsniff.capture.error import CaptureError
from kwsniff.capture.source import segments
from kwsniff.capture.stop import Stop
from kwsniff.cli import problem
from kwsniff.cli.arguments import Damage, from_pipe, patient, refuse_bodies, refuse_overwriting
from kwsniff.cli.choice import Choice
from kwsniff.cli.formats import Writer, chosen_format, open_writer
from kwsniff.cli.instead import instead
from kwsniff.cli.kernels import tell_if_interpreted
from kwsniff.cli.naming import named
from kwsniff.cli.output import Interrupts, Output, Stopping
from kwsniff.cli.problem import CommandError, chosen_columns, said
from kwsniff.cli.progress import ProgressBar
from kwsniff.cli.trust import Trust
from kwsniff.config import Config
from kwsniff.offline import events
from kwsniff.pipeline import analyze
from kwsniff.prefetch import prefetched
from kwsniff.report.calls import NAMED, NAMING
from kwsniff.table import EVENTS

if TYPE_CHECKING:
    from kwsniff.net.packets import CaptureTotals
    from kwsniff.where.predicate import Predicate

# `kwsniff decode --follow`: events of files that are still being written.


def following(
    paths: Sequence[str], config: Config, totals: CaptureTotals, stop: Stop, duration: float | None
) -> Generator[pa.RecordBatch]:
    """EVENTS batches until `stop` is set, or `duration` seconds have passed.

    Raises:
        CaptureError: a path cannot be followed.
    """
    from kwsniff.capture.following import followed

    timer = Timer(duration or 0, stop.set)
    timer.daemon = True
    source = (
        _piped(paths, config, totals, stop)
        if from_pipe(paths)
        else followed(paths, config, totals, stop, said)
    )
    if duration is not None:
        timer.start()
    try:
        yield from analyze(source, config)
    finally:
        timer.cancel()


def _piped(
    paths: Sequence[str], config: Config, totals: CaptureTotals, stop: Stop
) -> Iterator[pa.RecordBatch]:
    """What comes through a pipe is followed in any case."""
    if len(paths) > 1:
        raise CaptureError("--follow takes one pipe, or files and directories, not both")
    return segments(paths, config, totals, stop=stop)


@dataclass(frozen=True, slots=True)
class DecodeRequest:
    """What the user asked for."""

    paths: Sequence[str]
    config: Config
    form: str | None = None
    output: str | None = None
    columns: str | None = None
    choice: Choice = field(default_factory=Choice)
    count: int | None = None
    quiet: bool = False
    jobs: int | None = None
    follow: bool = False
    """Read on as the files grow."""
    duration: float | None = None
    """Seconds after which to end, when following."""


def decode(request: DecodeRequest) -> int:
    """Write the events of the inputs; return the exit code.

    Raises:
        CommandError: the request is wrong, or an input could not be read. Everything decoded before an
            unreadable input is written.
    """
    form = chosen_format(request.form, request.output)
    columns = _columns(request, form)
    predicate = _predicate(request)
    if columns is not None:
        needed = _needed(request.choice.columns.union(columns))
        request = replace(request, config=replace(request.config, columns=needed))
    refuse_overwriting(request.output, request.paths)
    if request.follow:
        request = _to_be_followed(request, form)
    stop, output = Stop(), None
    # What comes as it is written often ends by a signal, and is to be written then.
    growing = request.follow or from_pipe(request.paths)
    interrupts = Stopping(stop) if growing else Interrupts()
    try:
        with interrupts.held():  # what is begun is cleaned up, and an import may lose what is raised in it
            output = Output(request.output, growing=request.follow)
            if form == "parquet" and output.terminal:
                raise CommandError("parquet is not for a terminal: give -o FILE or a pipe")
            run = _Run(request, form, columns, predicate, output, stop)
        return run.run(interrupts)
    finally:
        if output is not None:
            output.discard()
        interrupts.restore()


def _to_be_followed(request: DecodeRequest, form: str) -> DecodeRequest:
    """The request as it can be followed.

    Raises:
        CommandError: it cannot.
    """
    if form == "parquet":
        raise CommandError("--follow writes lines: -f text, jsonl or csv, not parquet")
    if request.jobs is not None and request.jobs > 1:
        raise CommandError("-j does not go with --follow: files are followed by one process")
    return replace(request, config=patient(request.config))


def _predicate(request: DecodeRequest) -> Predicate | None:
    choice = request.choice.checked()
    refuse_bodies(choice.columns, full=request.config.full)
    return choice.predicate()


def _columns(request: DecodeRequest, form: str) -> list[str] | None:
    if request.columns is None:
        return None
    if form == "text":
        raise CommandError("--columns goes with -f csv, jsonl or parquet")
    return chosen_columns(request.columns, EVENTS.names)


def _needed(columns: frozenset[str]) -> frozenset[str]:
    """The columns to decode: where topics are named, all that goes into naming them."""
    return columns | NAMING if columns & NAMED else columns


class _Run:
    """One pass over the inputs. However it ends, what was written is complete rows, closed properly."""

    def __init__(
        self,
        request: DecodeRequest,
        form: str,
        columns: list[str] | None,
        predicate: Predicate | None,
        output: Output,
        stop: Stop,
    ) -> None:
        self._request = request
        self._predicate = predicate
        self._output = output
        self._damage = Damage()
        self._trust = Trust(
            wanted=not request.quiet,
            window=request.choice.window(),
            instead=instead(request.paths, request.config),
        )
        self._piped = from_pipe(request.paths)
        self._growing = request.follow or self._piped
        """Rows are to be seen as they come."""
        self._left = request.count
        self._rows = self._seen = 0
        self._stop = stop
        choice = request.choice
        colour = choice.colour(output.terminal, os.environ.get("NO_COLOR"))
        width = shutil.get_terminal_size().columns if output.terminal else None
        self._writer: Writer = open_writer(
            form, output.stream, columns, width=width, colour=colour, zone=choice.zone
        )

    def run(self, interrupts: Interrupts) -> int:
        failure: CommandError | None = None
        code = problem.DONE
        try:
            self._pass(interrupts)
            if self._stop.is_set() and not self._request.follow:
                code = problem.INTERRUPTED
        except problem.Terminated:
            code = problem.TERMINATED
        except KeyboardInterrupt:
            code = problem.INTERRUPTED
        except CaptureError as error:
            failure = self._failure(error)
        if failure is not None and self._rows == 0:
            raise failure
        self._writer.close()
        self._output.commit()
        stopped = code and not self._stop.is_set()
        self._trust.show(whole=failure is None and not stopped and self._left != 0)
        if failure is not None:
            raise failure
        if self._predicate is not None and not self._rows and self._seen:
            problem.said(f"{self._request.choice.limits} left none of {self._seen:,} rows")
        if self._writer.note and not self._request.quiet:
            problem.said(self._writer.note)
        if self._damage:
            problem.said(self._damage.line())
        return code or (problem.DAMAGED if self._damage else problem.DONE)

    def _failure(self, error: CaptureError) -> CommandError:
        """Why there are no more rows, and where those are that came before."""
        written = self._request.output if self._output.to_file and self._rows else None
        return CommandError(f"{error}; {written} holds the rows so far" if written else str(error))

    def _pass(self, interrupts: Interrupts) -> None:
        with (
            ProgressBar(wanted=not self._output.terminal and not self._growing) as progress,
            closing(self._events(progress)) as rows,
        ):
            for batch in rows:
                chosen = self._chosen(batch)
                with interrupts.held():
                    self._writer.write(chosen)
                    self._rows += chosen.num_rows
                    if self._growing:
                        self._output.stream.flush()
                if self._left == 0:
                    return

    def _events(self, progress: ProgressBar) -> Generator[pa.RecordBatch]:
        request = self._request
        if request.follow:
            yield from self._followed()
            return
        tell_if_interpreted(request.paths)
        source = events(
            request.paths,
            patient(request.config) if self._piped else request.config,
            totals=self._trust.capture,
            progress=progress,
            jobs=request.jobs,
            stop=self._stop,
        )
        # With -c the user waits for the first rows, not for names that may come a gigabyte later.
        hold = request.count is None and not self._piped
        rows = named(
            self._damage.watch(self._trust.watch(source)), hold=hold, learner=request.choice.learner()
        )
        # Written by this thread while another decodes.
        yield from rows if self._growing else prefetched(rows)

    def _followed(self) -> Iterator[pa.RecordBatch]:
        request = self._request
        source = following(request.paths, request.config, self._trust.capture, self._stop, request.duration)
        return named(
            self._damage.watch(self._trust.watch(source)), hold=False, learner=request.choice.learner()
        )

    def _chosen(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        self._seen += batch.num_rows
        if self._predicate is not None:
            batch = batch.filter(self._predicate(batch))
        if self._left is not None:
            batch = batch.slice(0, self._left)
            self._left -= batch.num_rows
        return batch
