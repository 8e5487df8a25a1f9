"""What went wrong in a stream is told in one line, with the exit code of what it was."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kwsniff.spark import streaming as stream
from kwsniff.spark.sparksession import JavaError, SparkFailedError, TaskError, plain_failures, session
from tests.samples import sample
from tests.spark.rotated import rotated
from tests.spark.streams import Followed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def full(*_: Any) -> Any:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def fault(*_: Any) -> Any:
    raise ZeroDivisionError("of ours")


def test_why_a_stream_failed_is_told_in_one_line(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    followed = Followed(spark, tmp_path)
    rotated(sample("midstream").paths, followed.source, 1000)
    with monkeypatch.context() as patch:
        patch.setattr(stream.Stream, "_written", full)
        with pytest.raises(TaskError, match=r"^\[Errno 28\] No space left on device$"), plain_failures():
            followed.run()
        patch.setattr(stream.Stream, "_written", fault)
        said = r"^Spark failed: ZeroDivisionError: of ours$"
        with pytest.raises(SparkFailedError, match=said), plain_failures():
            followed.run()


def test_java_that_is_killed_while_spark_starts_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.sql import SparkSession

    def gone(*_: Any) -> Any:
        raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))

    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", gone)
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    with pytest.raises(JavaError, match=r"^Spark did not start: its Java ended$"):
        session("local[1]")
