"""The job of `kwsniff decode --trace`: what was decided of a connection, a line a decision."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import pyarrow as pa

from kwsniff.capture.error import CaptureError
from kwsniff.capture.source import segments
from kwsniff.cli import problem
from kwsniff.cli.destination import Output
from kwsniff.cli.problem import CommandError
from kwsniff.cli.request import Request, refuse_overwriting
from kwsniff.config import Config
from kwsniff.engine.decisions import Decision, matching
from kwsniff.engine.engine import Engine
from kwsniff.net.segments import segment_columns
from kwsniff.output.text import iso_times

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
