"""What tests of answers share: a command run over recorded samples, and its JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.invoked import Ended, invoker
from tests.samples import CAPTURES, sample

QUIET = ("show",)
"""Commands that print no summary that could be left out."""


@pytest.fixture
def kwsniff(
    capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Ended]:
    """Runs the command line in this process, from the folder of the samples."""
    monkeypatch.chdir(CAPTURES)

    return invoker(capfdbinary)


@pytest.fixture
def answered(kwsniff: Callable[..., Ended]) -> Callable[..., dict[str, Any]]:
    """The JSON answer of a command."""

    def invoke(*arguments: str, code: int = 0) -> dict[str, Any]:
        ended = kwsniff(*arguments, "-f", "json", *([] if arguments[0] in QUIET else ["-q"]))
        assert ended.code == code, ended.err
        found: dict[str, Any] = json.loads(ended.out)
        return found

    return invoke


def files(name: str) -> list[str]:
    """The files of a sample, as they are named in its folder."""
    return list(sample(name).note["files"])


def said_by_clients(name: str, what: str) -> list[dict[str, Any]]:
    """What the clients of a sample say they did: `produced`, `errors`."""
    return [item for client in sample(name).note["clients"] for item in client[what]]
