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


@pytest.mark.parametrize("given", [[str(CAPTURES / "midstream.pcap")], ["--follow", str(CAPTURES)]])
def test_without_pyspark_one_line_names_the_extra(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, given: list[str]
) -> None:
    monkeypatch.setattr("kwsniff.spark.sparksession.find_spec", lambda _: None)
    assert run(["pipeline", *given, "--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err == (
        "kwsniff: kwsniff pipeline needs Apache Spark: pip install 'kwsniff[spark]'\n"
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--once"], "--once and --end are for --follow"),
        (["--follow", "--append"], "--append is for runs without --follow"),
        (["--follow", "--window", "soon"], "--window: 'soon' is no time such as 90s, 10m or 2h"),
        (["--follow", "--window", "0.2s"], "--window: less than a second"),
    ],
)
def test_options_that_do_not_fit_are_told_before_spark_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], said: str
) -> None:
    assert run(["pipeline", str(tmp_path), "--out", str(tmp_path / "out"), *options]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_only_directories_can_be_followed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(CAPTURES / "midstream.pcap")
    assert run(["pipeline", "--follow", path, "--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err == (
        f"kwsniff: {path}: is no directory; --follow wants the directories that are rotated\n"
    )


def test_a_stream_does_not_go_into_a_directory_with_other_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "notes.txt").touch()
    assert run(["pipeline", "--follow", str(tmp_path), "--out", str(tmp_path)]) == 2
    assert "holds other files (notes.txt); name a directory of its own" in capsys.readouterr().err
