from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Ended, anomaly, call

Run = Callable[..., Ended]
Capture = Callable[..., str]


def test_the_report_prints_tables_and_writes_csv_files(
    kwsniff: Run, capture: Capture, tmp_path: Path
) -> None:
    out = tmp_path / "tables"
    ended = kwsniff("report", capture(call(), call(api="Fetch", api_key=1)), "--csv", str(out), "-q")
    assert (ended.code, ended.err) == (0, "")
    assert "Metadata" in ended.out
    assert "Fetch" in ended.out
    names = {"api", "client", "topic", "broker", "error", "calls", "findings"}
    assert {path.name for path in out.iterdir()} == {f"{name}.csv" for name in names}
    assert len(list(csv.DictReader((out / "calls.csv").read_text().splitlines()))) == 2


def test_json_is_one_object(kwsniff: Run, capture: Capture) -> None:
    ended = kwsniff("report", capture(call(), call(status="error", error_code=3, error="E")), "--json")
    report = json.loads(ended.out)
    assert (report["summary"]["calls"], report["summary"]["errors"]) == (2, 1)


def test_where_chooses_the_calls_that_count(kwsniff: Run, capture: Capture) -> None:
    path = capture(
        call(topics=[None], topic_ids=["u-1"]),
        {"do": "batch"},
        call(topics=["orders"], topic_ids=["u-1"]),
        call(topics=["other"]),
    )
    ended = kwsniff("report", path, "--json", "--where", "'orders' in topics")
    assert json.loads(ended.out)["summary"]["calls"] == 2


def test_damage_is_exit_code_3(kwsniff: Run, capture: Capture) -> None:
    ended = kwsniff("report", capture(call(), anomaly("capture_cut_short")), "-q")
    assert ended.code == 3
    assert ended.err.startswith("kwsniff: part of the input was damaged: 1 capture_cut_short")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--by", "api,cleint"], "--by: unknown table 'cleint' (did you mean client?)"),
        (["--by", ","], "--by names no table"),
        (["--where", "nosuch"], "unknown column 'nosuch'"),
        ([], "No such file or directory"),
    ],
)
def test_a_wrong_request_is_one_line_and_exit_code_2(
    kwsniff: Run, tmp_path: Path, arguments: list[str], says: str
) -> None:
    ended = kwsniff("report", str(tmp_path / "missing"), *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert says in ended.err
    assert ended.err.count("\n") == 1
