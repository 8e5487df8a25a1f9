"""The command line, in this process, over real captures."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.invoked import Ended, invoker


@pytest.fixture
def kwsniff(capfdbinary: pytest.CaptureFixture[bytes]) -> Callable[..., Ended]:
    """Runs the command line in this process."""
    return invoker(capfdbinary)
