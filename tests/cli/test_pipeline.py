"""`kwsniff pipeline` as its user meets it, as far as it goes without starting Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from kwsniff.cli.running import run
from tests.samples import CAPTURES


def test_a_missing_input_is_told_before_spark_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["pipeline", str(tmp_path / "none.pcap"), "--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err == f"kwsniff: {tmp_path}/none.pcap: No such file or directory\n"
    assert not (tmp_path / "out").exists()


def test_a_pipe_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["pipeline", "-", "--out", str(tmp_path / "out")]) == 2
    assert "a pipe can be read by one process only" in capsys.readouterr().err


def test_without_pyspark_one_line_names_the_extra(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kwsniff.spark.session.find_spec", lambda _: None)
    assert run(["pipeline", str(CAPTURES / "midstream.pcap"), "--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err == (
        "kwsniff: kwsniff pipeline needs Apache Spark: pip install 'kwsniff[spark]'\n"
    )
