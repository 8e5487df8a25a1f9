"""The job of `kwsniff extract`: packets of chosen calls into a capture of their own."""

from __future__ import annotations

import sys
from typing import Any

import pyarrow.compute as pc

from kwsniff.answers.stored import is_stored
from kwsniff.capture.error import CaptureError
from kwsniff.cli import problem
from kwsniff.cli.answering import check, taken
from kwsniff.cli.arguments import Damage, refuse_overwriting
from kwsniff.cli.asked import Asked
from kwsniff.cli.output import Output
from kwsniff.cli.problem import CommandError
from kwsniff.cli.trust import Trust
from kwsniff.events import CALL
from kwsniff.message.extract import MAX_CALLS, NEEDS, Chosen, choose, copy

STDIN = "-"


def extract(asked: Asked, output: str) -> int:
    """Write the packets; return the exit code. Raises CommandError."""
    check(asked)
    _readable(asked)
    refuse_overwriting(output, asked.paths)
    damage = Damage()
    calls = _calls(asked, damage)
    if not calls:
        problem.said("no call was found, and nothing written")
        return problem.DONE
    try:
        chosen = choose(asked.paths, calls, asked.config)
        written = _written(asked, chosen, output)
    except CaptureError as error:
        raise CommandError(str(error)) from None
    if not asked.quiet:
        print(f"{written:,} packets of {len(calls):,} calls written to {output}", file=sys.stderr)
    if damage:
        problem.said(damage.line())
    return problem.DAMAGED if damage else problem.DONE


def _readable(asked: Asked) -> None:
    """Inputs are read three times, and must hold packets."""
    for path in asked.paths:
        if path == STDIN:
            raise CommandError("extract reads its input several times: standard input can be read only once")
        if is_stored(path):
            raise CommandError(f"{path}: stored events hold no packets; name the captures")


def _calls(asked: Asked, damage: Damage) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for batch in taken(asked, NEEDS, damage, Trust(wanted=False)):
        own = batch.filter(pc.equal(batch["event"], CALL))
        found += own.select(sorted(NEEDS)).to_pylist()
        if asked.top and len(found) >= asked.top:
            return found[: asked.top]
        if len(found) > MAX_CALLS:
            raise CommandError(f"more than {MAX_CALLS:,} calls: narrow --where, or give --top")
    return found


def _written(asked: Asked, chosen: Chosen, output: str) -> int:
    out = Output(output)
    try:
        if out.terminal:
            raise CommandError("pcapng is not for a terminal: give -o FILE or a pipe")
        written = copy(asked.paths, chosen, out.stream, asked.config)
        out.commit()
        return written
    finally:
        out.discard()
