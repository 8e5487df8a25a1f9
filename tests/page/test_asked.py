"""The page of real captures: its commands run, and it is of the time that is asked for."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.answers.conftest import Ended, kwsniff
from tests.samples import CAPTURES

__all__ = ["kwsniff"]

Run = Callable[..., Ended]


def test_commands_that_the_report_suggests_run_as_they_stand(kwsniff: Run, tmp_path: Path) -> None:
    """With the file's name, however it is spelt, and the options that say what was read."""
    path = tmp_path / "it's a trace; rm.pcapng.zst"
    path.write_bytes((CAPTURES / "stuck-consumer.pcapng.zst").read_bytes())
    options = ["--port", "9092,19092", "--until", "23:02:35", "--where", "client_ip == '127.0.0.1'"]
    page = kwsniff("report", str(path), "--top", "0", *options).out
    commands = [line.partition("> ")[2] for line in page.splitlines() if "> kwsniff" in line]
    assert len(commands) > 1
    for command in commands:
        words = shlex.split(command)
        assert str(path) in words
        assert [words[words.index("--port") + 1], words[words.index("--until") + 1]] == [
            "9092,19092",
            "23:02:35",
        ]
        assert "client_ip == '127.0.0.1'" in words[words.index("--where") + 1]
        ended = kwsniff(*words[1:], "-q")
        assert ended.code == 0, (command, ended.err)
        assert ended.out, command


@pytest.mark.parametrize(
    ("around", "since", "until"),
    [
        ("23:02:20", "23:01:50", "23:02:50"),
        ("2026-11-21T23:02:55Z", "2026-11-21T23:02:25Z", "2026-11-21T23:03:25Z"),
        ("0:00:10", "00:00:00", "00:00:40"),
    ],
)
def test_around_is_the_minute_around_a_time(kwsniff: Run, around: str, since: str, until: str) -> None:
    path = str(CAPTURES / "stuck-consumer.pcapng.zst")
    near = kwsniff("report", path, "--json", "--around", around, "-q")
    window = kwsniff("report", path, "--json", "--since", since, "--until", until, "-q")
    told, expected = (json.loads(each.out) for each in (near, window))
    assert told["api"] == expected["api"]
    assert told["summary"] == expected["summary"]
