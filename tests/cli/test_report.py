from __future__ import annotations

import csv
import json
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Ended, anomaly, call, connection

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
    names = {"api", "client", "topic", "broker", "error", "calls", "findings", "lag"}
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


def test_a_threshold_says_when_a_finding_speaks(kwsniff: Run, capture: Capture) -> None:
    path = capture(*(call(throttle_ms=300) for _ in range(2)))
    severities = []
    for chosen in ([], ["--threshold", "throttled_ms=500"]):
        found = json.loads(kwsniff("report", path, "--json", "-q", *chosen).out)["findings"]
        severities += [each["severity"] for each in found if each["code"] == "throttled"]
    assert severities == ["notice", "warning"]


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
        (["--threshold", "slow=1"], "there is no threshold 'slow' (did you mean slow_ms?)"),
        (["--threshold", "slow_ms=x"], "--threshold 'slow_ms=x' is not NAME=VALUE with a number"),
        (["--threshold", "slow_calls=1.5"], "threshold slow_calls is a whole number from 0 on, not 1.5"),
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


THROTTLED = {"throttle_ms": 5000, "time": "2026-01-31T12:00:00.000001+00:00"}


def test_the_page_says_what_it_found_and_stands_on_standard_output_whole(
    kwsniff: Run, capture: Capture
) -> None:
    ended = kwsniff("report", capture(call(**THROTTLED), connection()))
    assert (ended.code, ended.err) == (0, "")
    assert "events.jsonl, 2026-01-31 12:00:00" in ended.out.splitlines()[0]
    assert "1 connection: 1 complete" in ended.out
    assert "warning   app-1@10.0.0.5 is throttled: 1 answer told it to wait, 5 s in all" in ended.out
    lines = [line for line in ended.out.splitlines() if "> kwsniff" not in line]
    assert max(map(len, lines)) <= 100


def test_around_is_no_window_beside_another(kwsniff: Run, capture: Capture) -> None:
    path = capture(call())
    assert kwsniff("report", path, "--around", "1:00", "--since", "2:00").err.endswith(
        "--around stands in place of --since and --until\n"
    )
    assert "'noon' is no ISO 8601 time" in kwsniff("report", path, "--around", "noon").err


def test_quiet_leaves_the_trust_out_of_the_page(kwsniff: Run, capture: Capture) -> None:
    ended = kwsniff("report", capture(call(), connection()), "-q")
    assert "connection: 1 complete" not in ended.out
    assert "── Where the time went" in ended.out


def test_json_and_csv_have_every_finding_and_what_was_not_shown(
    kwsniff: Run, capture: Capture, tmp_path: Path
) -> None:
    path = capture(call(**THROTTLED))
    data = json.loads(kwsniff("report", path, "--json", "-q").out)
    found = data["findings"][0]
    assert (found["code"], found["severity"], found["subject"]) == ("throttled", "warning", "app-1@10.0.0.5")
    assert found["numbers"]["throttle_ms"] == 5000
    assert found["evidence"] == [{"capture": "a.pcap", "packet": 6}]
    assert found["first_time"] == "2026-01-31T12:00:00.000001Z"
    assert {each["severity"] for each in data["findings"]} == {"warning", "ok", "not_shown"}
    kwsniff("report", path, "--csv", str(tmp_path / "out"), "-q")
    with (tmp_path / "out" / "findings.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["code"] for row in rows] == [each["code"] for each in data["findings"]]
    assert rows[0]["evidence"] == "a.pcap:6"
    assert "throttle_ms=5000" in rows[0]["numbers"]


def test_wide_prints_all_columns_and_top_more_rows(kwsniff: Run, capture: Capture) -> None:
    path = capture(*(call(client_id=f"app-{number}") for number in range(40)))
    wide = kwsniff("report", path, "--wide", "-q").out
    assert "dur p50 ms" in wide
    assert max(map(len, wide.splitlines())) > 100
    page, whole = kwsniff("report", path, "-q").out, kwsniff("report", path, "-q", "--top", "0").out
    assert "(+30 more: --top 0)" in page
    assert page.count("app-") < whole.count("app-") == 80


def test_the_commands_of_findings_are_ones_that_there_are(kwsniff: Run, capture: Capture) -> None:
    """Those that show more take their expression as `decode` does."""
    golden = (Path(__file__).parents[1] / "data" / "findings").glob("*.csv")
    commands = {row["command"] for path in golden for row in csv.DictReader(path.read_text().splitlines())}
    expressions = {word for each in commands for word in _where(each)}
    assert len(expressions) > 30
    path = capture(call())
    for expression in sorted(expressions):
        ended = kwsniff("decode", path, "--where", expression, "-q")
        assert ended.code == 0, (expression, ended.err)


def _where(command: str) -> list[str]:
    words = shlex.split(command)
    return words[words.index("--where") + 1 :][:1] if "--where" in words else []
