"""The command line, in this process, over real captures."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from tests.cli.conftest import Ended


@pytest.fixture
def kwsniff(capfdbinary: pytest.CaptureFixture[bytes]) -> Callable[..., Ended]:
    """Runs the command line in this process."""
    from kwsniff.cli.running import run

    def invoke(*arguments: str) -> Ended:
        code = run(arguments)
        sys.stdout.flush()
        out, err = capfdbinary.readouterr()
        return Ended(code, out.decode(), err.decode())

    return invoke
