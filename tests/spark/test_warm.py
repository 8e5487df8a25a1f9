"""What is run before the first batch does no harm, whatever becomes of the stream."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kwsniff.config import Config
from kwsniff.spark import warm
from kwsniff.spark.datasource import FollowedSource
from kwsniff.spark.followed import Following

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def failed(monkeypatch: pytest.MonkeyPatch) -> list[threading.ExceptHookArgs]:
    """What threads fail by."""
    found: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", found.append)
    return found


def test_no_rows_are_read_and_nothing_is_written(
    spark: SparkSession, tmp_path: Path, failed: list[threading.ExceptHookArgs],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(warm, "_run", lambda query: query())  # which would be silent
    spark.dataSource.register(FollowedSource)
    following = Following([str(tmp_path / "in")], str(tmp_path / "state"), Config(), 2)
    options = {"following": FollowedSource.emitted(following)}
    nothing = spark.read.format(FollowedSource.name()).options(**options)
    assert nothing.load().count() == 0
    for thread in warm.warm(spark, nothing, 2):
        thread.join(300)
        assert not thread.is_alive()
    assert not failed
    assert list(tmp_path.iterdir()) == []


def test_a_session_that_is_gone_is_not_told_by_it(failed: list[threading.ExceptHookArgs]) -> None:
    class Gone:
        def load(self) -> None:
            raise ConnectionError("Java is gone")

        range = load

    for thread in warm.warm(Gone(), Gone(), 2):  # type: ignore[arg-type]
        thread.join()
    assert not failed
