"""Options of the test run."""

from __future__ import annotations

import pytest
from hypothesis import settings

# How long an example takes says nothing on a busy machine.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="accept what the samples yield now as the golden events, after reading the difference",
    )
