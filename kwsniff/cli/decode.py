"""The job of `kwsniff decode`: events in, rows of one format out."""

from __future__ import annotations

import re
import shutil
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

import pyarrow as pa

from kwsniff.analysis.stored import NAMED, NAMING
from kwsniff.capture.error import CaptureError
from kwsniff.capture.source import segments
from kwsniff.cli import problem
from kwsniff.cli.destination import Output, Writer, after, chosen_format, open_writer
from kwsniff.cli.problem import CommandError, said
from kwsniff.cli.request import (
    Request,
    chosen_columns,
    parsed,
    patient,
    refuse_bodies,
    refuse_overwriting,
    seconds_of,
)
from kwsniff.cli.telling import Reading
from kwsniff.config import Config
from kwsniff.count.naming import named
from kwsniff.engine.analyze import Engine, analyze
from kwsniff.engine.details import Decision, matching
from kwsniff.net.segments import segment_columns
from kwsniff.output.text import iso_times
from kwsniff.rows.prefetch import prefetched


@dataclass(frozen=True, kw_only=True)
class DecodeRequest(Request):
    """What `kwsniff decode` can be asked."""

    output: str | None = None
    records: bool = False
    follow: bool = False
    """Read on as the files grow."""
    duration: str | None = None
    trace: str | None = None
    """Beginning of the id of a connection."""


def decode(request: DecodeRequest) -> int:
    """Write the events of the inputs, or the decisions on one connection; return the exit code.

    Raises:
        CommandError: the request is wrong, or an input could not be read. Everything decoded before an
            unreadable input is written.
    """
    config = request.config
    config = replace(config, full=config.full or request.records, records=request.records)
    request = replace(request, config=config)
    if request.trace is not None:
        shaped = request.form not in (None, "text") or request.columns or request.count is not None
        if request.follow or shaped or request.limits:
            raise CommandError("--trace goes with none of the options that choose or shape rows")
        return trace(request, request.trace, request.output)
    return _decode(request)


def _decode(request: DecodeRequest) -> int:
    if request.duration is not None and not request.follow:
        raise CommandError("--duration goes with --follow")
    seconds = None if request.duration is None else parsed(seconds_of, request.duration, "--duration")
    form = chosen_format(request.form, request.output)
    columns = chosen_columns(request, form, "csv, jsonl or parquet")
    refuse_bodies(request.checked())
    if columns is not None:
        needed = request.chosen_by.union(columns)
        needed |= NAMING if needed & NAMED else frozenset()
        request = replace(request, config=replace(request.config, columns=needed))
    refuse_overwriting(request.output, request.paths)
    if request.follow:
        request = _to_be_followed(request, form)
    output = None
    with Reading(request, follow=request.follow) as reading:
        try:
            # What is begun is cleaned up, and an import may lose what is raised in it.
            with reading.interrupts.held():
                output = Output(request.output, growing=request.follow)
                if form == "parquet" and output.terminal:
                    raise CommandError("parquet is not for a terminal: give -o FILE or a pipe")
                run = _Run(request, reading, form, columns, output, seconds)
            return run.run()
        finally:
            if output is not None:
                output.discard()


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


class _Run:
    """One pass over the inputs. However it ends, what was written is complete rows, closed properly."""

    def __init__(
        self,
        request: DecodeRequest,
        reading: Reading,
        form: str,
        columns: list[str] | None,
        output: Output,
        seconds: float | None,
    ) -> None:
        """`seconds`: after which to end, when following."""
        self._request, self._reading, self._output = request, reading, output
        self._predicate = request.predicate
        self._seconds = seconds
        self._left = request.count
        self._rows = self._seen = 0
        colour = request.colour(output.terminal)
        width = shutil.get_terminal_size().columns if output.terminal else None
        self._writer: Writer = open_writer(
            form, output.stream, columns, width=width, colour=colour, zone=request.zone
        )

    def run(self) -> int:
        failure: CommandError | None = None
        code = problem.DONE
        try:
            self._pass()
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
        stopped = code and not self._reading.stop.is_set()
        self._reading.trust.show(whole=failure is None and not stopped and self._left != 0)
        if failure is not None:
            raise failure
        if self._predicate is not None and not self._rows and self._seen:
            problem.said(f"{self._request.limits} left none of {self._seen:,} rows")
        if self._writer.note and not self._request.quiet:
            problem.said(self._writer.note)
        ended = self._reading.code()
        return code or ended

    def _failure(self, error: CaptureError) -> CommandError:
        """Why there are no more rows, and where those are that came before."""
        written = self._request.output if self._output.to_file and self._rows else None
        return CommandError(f"{error}; {written} holds the rows so far" if written else str(error))

    def _pass(self) -> None:
        with closing(self._events()) as rows:
            for batch in rows:
                chosen = self._chosen(batch)
                with self._reading.interrupts.held():
                    self._writer.write(chosen)
                    self._rows += chosen.num_rows
                    if self._reading.growing:
                        self._output.stream.flush()
                if self._left == 0:
                    return

    def _events(self) -> Generator[pa.RecordBatch]:
        request, reading = self._request, self._reading
        if request.follow:
            source = _followed(request, reading, self._seconds)
        else:
            source = reading.events(request.config, bar=not self._output.terminal)
        # With -c the user waits for the first rows, not for names that may come a gigabyte later.
        hold = request.count is None and not reading.growing
        rows = named(reading.damage.watch(source), hold=hold, learner=request.learner())
        # Written by this thread while another decodes.
        yield from rows if reading.growing else prefetched(rows)

    def _chosen(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        self._seen += batch.num_rows
        if self._predicate is not None:
            batch = batch.filter(self._predicate(batch))
        if self._left is not None:
            batch = batch.slice(0, self._left)
            self._left -= batch.num_rows
        return batch


def _followed(request: DecodeRequest, reading: Reading, seconds: float | None) -> Iterator[pa.RecordBatch]:
    """Events of files that are still being written, until the reading is to stop, or so many seconds have
    passed. Raises CaptureError."""
    from kwsniff.capture.following import followed

    config, totals, stop = request.config, reading.trust.capture, reading.stop
    if not reading.piped:
        source = followed(request.paths, config, totals, stop, said)
    elif len(request.paths) > 1:
        raise CaptureError("--follow takes one pipe, or files and directories, not both")
    else:  # which is followed in any case
        source = segments(request.paths, config, totals, stop=stop)
    with after(seconds, stop.set):
        yield from reading.trust.watch(analyze(source, config))


# The job of `kwsniff decode --trace`: what was decided of a connection, a line a decision.

CONNECTION = re.compile(r"[0-9a-f]{1,16}", re.IGNORECASE)


def trace(request: Request, connection: str, output: str | None) -> int:
    """Write the decisions on connections whose id begins so; return the exit code.

    Raises:
        CommandError: that is no id, no connection has it, or an input could not be read.
    """
    if not CONNECTION.fullmatch(connection):
        raise CommandError(f"--trace: {connection!r} is no id of a connection, nor the beginning of one")
    refuse_overwriting(output, request.paths)
    made = Output(output)
    count = 0
    try:
        for found in decisions(request.paths, request.config):
            chosen = matching(found, connection.lower())
            made.stream.write("".join(lines(chosen, request.tz)).encode())
            count += sum(bool(each.connection) for each in chosen)
        made.commit()
    except CaptureError as error:
        raise CommandError(str(error)) from None
    finally:
        made.discard()
    if not count:
        raise CommandError(f"no connection has an id that begins with {connection}")
    return problem.DONE


def decisions(paths: Sequence[str], config: Config) -> Iterator[list[Decision]]:
    """All decisions on all connections, in the order in which they were taken, those of a batch together."""
    engine = Engine(config)
    made = engine.trace()
    for batch in segments(paths, config):
        for _ in engine.feed(segment_columns(batch)):
            pass
        yield made.take()
    for _ in engine.finish():
        pass
    yield made.take()


def lines(found: Sequence[Decision], zone: str) -> Iterator[str]:
    """Decisions as people read them."""
    moments = [each.time // 1000 if each.time >= 0 else None for each in found]
    times = iso_times(pa.array(moments, pa.timestamp("us", tz="UTC")), zone).to_pylist()
    for time, each in zip(times, found, strict=True):
        if each.connection:
            yield f"{time}  {each.connection}  packet {each.packet:<8} {each.end:<6}  {each.what}\n"
        else:
            yield f"{each.what}\n"
