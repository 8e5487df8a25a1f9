"""The job of `kwsniff crosscheck`: kwsniff beside Wireshark's dissector."""

from __future__ import annotations

from kwsniff.capture.error import CaptureError
from kwsniff.capture.place import Unread
from kwsniff.capture.source import resolve
from kwsniff.cli import problem
from kwsniff.cli.problem import CommandError, said
from kwsniff.cli.request import Request
from kwsniff.crosscheck import ToolMissingError, crosscheck, lines
from kwsniff.output.text import printable


def check(request: Request) -> int:
    """Print the comparison of each file; 1 if there are findings, else 0.

    Raises:
        CommandError: a tool is missing, or an input cannot be read.
    """
    found = False
    unread: list[Unread] = []
    try:
        files = resolve(request.paths, unread)
        for each in unread:
            said(f"{each}; it is passed over")
        for file in files:
            if file.size is None:
                raise CommandError(f"{file.path}: crosscheck reads the file twice, a pipe cannot be")
            result = crosscheck(file.path, request.config)
            for line in lines(file.path, result):
                print(printable(line))
            found = found or bool(result.findings)
    except (CaptureError, ToolMissingError) as error:
        raise CommandError(str(error)) from None
    if unread and not found:
        return problem.DAMAGED
    return problem.FINDINGS if found else problem.DONE
