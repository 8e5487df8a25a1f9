"""What a command says when it cannot go on: one line, an exit code, and names that come close."""

from __future__ import annotations

import sys

from kwsniff.output import suggestion

__all__ = ["CommandError", "said", "suggestion"]

DONE = 0
FINDINGS = 1
USAGE = 2
DAMAGED = 3
INTERNAL = 70
"""A fault of kwsniff itself (EX_SOFTWARE of sysexits.h), apart from every code that speaks of the input."""
INTERRUPTED = 130
"""What a shell reports for a process ended by Ctrl-C: 128 + SIGINT."""
TERMINATED = 143
"""The same for one that was told to end: 128 + SIGTERM."""


class Terminated(BaseException):
    """SIGTERM: as KeyboardInterrupt, which the framework takes for Ctrl-C."""


class CommandError(Exception):
    """A reason to stop that the user can do something about.

    Attributes:
        exit_code: what the process ends with; 2 is usage or unreadable input.
    """

    def __init__(self, message: str, exit_code: int = USAGE) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def said(message: str) -> None:
    """Print one line on standard error, whatever a file name or a library puts into the message."""
    line = " ".join(message.split())
    if not line.isprintable():
        from kwsniff.output.text import printable

        line = printable(line)
    print(f"kwsniff: {line}", file=sys.stderr, flush=True)
