"""The job of `kwsniff extract`: packets of chosen calls into a capture of their own."""

from __future__ import annotations

import sys
from typing import Any

import pyarrow.compute as pc

from kwsniff.analysis.extract import MAX_CALLS, NEEDS, Chosen, choose, copy
from kwsniff.analysis.stored import is_stored
from kwsniff.capture.error import CaptureError
from kwsniff.cli import problem
from kwsniff.cli.answering import check, taken
from kwsniff.cli.destination import Output
from kwsniff.cli.problem import CommandError
from kwsniff.cli.request import Request, refuse_overwriting
from kwsniff.cli.telling import Reading
from kwsniff.rows.events import CALL

STDIN = "-"


def extract(request: Request, output: str) -> int:
    """Write the packets; return the exit code. Raises CommandError."""
    check(request)
    _readable(request)
    refuse_overwriting(output, request.paths)
    reading = Reading(request)
    calls = _calls(reading)
    if not calls:
        problem.said("no call was found, and nothing written")
        return problem.DONE
    try:
        chosen = choose(request.paths, calls, request.config)
        written = _written(request, chosen, output)
    except CaptureError as error:
        raise CommandError(str(error)) from None
    if not request.quiet:
        print(f"{written:,} packets of {len(calls):,} calls written to {output}", file=sys.stderr)
    return reading.code()


def _readable(request: Request) -> None:
    """Inputs are read three times, and must hold packets."""
    for path in request.paths:
        if path == STDIN:
            raise CommandError("extract reads its input several times: standard input can be read only once")
        if is_stored(path):
            raise CommandError(f"{path}: stored events hold no packets; name the captures")


def _calls(reading: Reading) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    request = reading.request
    for batch in taken(reading, NEEDS):
        own = batch.filter(pc.equal(batch["event"], CALL))
        found += own.select(sorted(NEEDS)).to_pylist()
        if request.top and len(found) >= request.top:
            return found[: request.top]
        if len(found) > MAX_CALLS:
            raise CommandError(f"more than {MAX_CALLS:,} calls: narrow --where, or give --top")
    return found


def _written(request: Request, chosen: Chosen, output: str) -> int:
    out = Output(output)
    try:
        if out.terminal:
            raise CommandError("pcapng is not for a terminal: give -o FILE or a pipe")
        written = copy(request.paths, chosen, out.stream, request.config)
        out.commit()
        return written
    finally:
        out.discard()
