"""What goes wrong with Java is told in one line."""

from __future__ import annotations

import errno
import os
from typing import Any

import pytest

from kwsniff.spark.sparksession import JavaError, session


def test_java_that_is_killed_while_spark_starts_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.sql import SparkSession

    def gone(*_: Any) -> Any:
        raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))

    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", gone)
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    with pytest.raises(JavaError, match=r"^Spark did not start: its Java ended$"):
        session("local[1]")
