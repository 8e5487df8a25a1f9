"""What is said of a job while it runs."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from kwsniff.spark import progress
from kwsniff.spark.progress import Steps, watched


def test_a_step_tells_tasks_bytes_and_the_time_left() -> None:
    now = [100.0]
    steps = Steps(lambda: now[0])
    assert steps.line(0, 0) == "starting"
    steps("decoding 2 GB in 3 files", 2_000_000_000)
    assert steps.line(0, 8) == "decoding 2 GB in 3 files: 0/8 tasks, about 0 bytes of 2 GB"
    now[0] += 30
    assert steps.line(2, 8) == "decoding 2 GB in 3 files: 2/8 tasks, about 500 MB of 2 GB, 1:30 left"
    steps("publishing")
    assert steps.line(0, 0) == "publishing"
    steps("stitching")
    now[0] += 100
    assert steps.line(1, 50) == "stitching: 1/50 tasks, 1:21:40 left"


def test_without_a_terminal_a_line_comes_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "LINE_INTERVAL", 0.05)
    monkeypatch.setattr(progress, "tasks", lambda spark: (3, 4))
    spark: Any = SimpleNamespace()
    with watched(spark) as steps:
        steps("writing")
        time.sleep(0.4)
    lines = capsys.readouterr().err.splitlines()
    assert 2 <= len(lines) <= 9
    assert lines[-1].startswith("kwsniff: writing: 3/4 tasks, 0:00 left")
    with watched(spark, quiet=True):
        time.sleep(0.2)
    assert capsys.readouterr().err == ""
