"""The command line in this process, for fixtures."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NamedTuple

import pytest


class Ended(NamedTuple):
    code: int
    out: str
    err: str


def invoker(capfdbinary: pytest.CaptureFixture[bytes]) -> Callable[..., Ended]:
    """Runs it with arguments; it is imported only now, after what a fixture replaced."""
    from kwsniff.cli.running import run

    def invoke(*arguments: str) -> Ended:
        code = run(arguments)
        sys.stdout.flush()
        out, err = capfdbinary.readouterr()
        return Ended(code, out.decode(), err.decode())

    return invoke
