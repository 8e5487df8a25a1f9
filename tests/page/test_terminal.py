"""The default report: what fits a page, what it says, and that it obeys nothing from the wire."""

from __future__ import annotations

import io
import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from rich.cells import cell_len
from rich.console import Console

from kwsniff.analysis.findings import Findings, facts
from kwsniff.analysis.report import Report
from kwsniff.analysis.trust import TrustTotals, paragraph
from kwsniff.config import Config
from kwsniff.count.timeline import Timeline
from kwsniff.page import Page
from kwsniff.page.layout import Line, Section, beside, columns, fitted, shared, sparkline, title, wrapped
from kwsniff.run.offline import events
from tests.analysis.conftest import Ended, kwsniff
from tests.analysis.wide import SCHEMA, row
from tests.report.events import batches, call
from tests.report.samples import mixture
from tests.samples import CAPTURES, names, sample

ERRORS = {6: ("NOT_LEADER_OR_FOLLOWER", True), 3: ("UNKNOWN_TOPIC_OR_PARTITION", True)}


def page(rows: Any, paths: tuple[str, ...] = ("trace.pcapng",)) -> Page:
    rules, trust, timeline = Findings(), TrustTotals(), Timeline()
    taken = []
    for batch in rows:
        rules.take(batch)
        timeline.take(batch)
        trust.add(batch)
        taken.append(batch)
    report = Report.from_events(taken, errors=ERRORS)
    return Page(
        report.arrow, title(paths, report), paragraph(trust), rules.found(ERRORS), rules.errors(ERRORS),
        trust.anomalies, timeline=timeline,
    )  # fmt: skip


def text(page: Page, **options: Any) -> str:
    return "\n".join(line.text for line in page.lines(**options))


@pytest.mark.one_of(6)
@pytest.mark.parametrize("name", names())
def test_the_page_of_every_sample_fits_a_screen(name: str) -> None:
    made = page(events(sample(name).paths, Config()))
    for width in (80, 100, 160):
        lines = made.lines(height=49, width=width)
        assert 10 < len(lines) <= 49
        assert max(cell_len(line.text) for line in lines if "> kwsniff" not in line.text) <= width


@pytest.mark.parametrize("name", ["stale-leader", "kafka-0.8", "sasl"])
def test_a_higher_screen_shows_more_and_top_0_everything(name: str) -> None:
    made = page(events(sample(name).paths, Config()))
    short, long, whole = (made.lines(height=39), made.lines(height=59), made.lines(top=0))
    assert len(short) <= 39 < len(long) <= 59
    assert "--top 0" in "".join(line.text for line in short)
    assert "--top 0" not in "".join(line.text for line in whole)
    commands = [line for line in whole if line.text.lstrip().startswith("> kwsniff")]
    assert len(commands) == len(facts(made.findings)) + bool(made.anomalies)


def test_trust_is_a_verdict_on_the_line_below_the_title() -> None:
    for name, verdict in (("throttled", "high"), ("snaplen-128", "low"), ("midstream", "limited")):
        lines = [line.text for line in page(events(sample(name).paths, Config())).lines()]
        at = next(at for at, line in enumerate(lines) if line.startswith("Trust: "))
        assert at <= 2
        assert lines[at].startswith(f"Trust: {verdict} (")


def test_the_worst_comes_first_and_what_is_fine_is_said() -> None:
    made = text(page(events(sample("tls").paths, Config())))
    head, found = made.split("── Findings")
    assert "tls.pcapng" not in head  # the title names what the user gave
    assert "connections" in head
    assert found.splitlines()[1].startswith("critical  rdkafka-plaintext@127.0.0.1 speaks plaintext")
    assert "\nok        " in found
    assert "\nnot shown " in found


def test_findings_of_one_rule_are_one_row_with_whom_they_concern_beneath() -> None:
    rows = [row(at, client_id=f"c-{at}", throttle_ms=2000 - 100 * at) for at in range(5)]
    made = page([pa.RecordBatch.from_pylist(rows, schema=SCHEMA)])
    found = text(made).split("── Findings")[1].splitlines()
    at = next(at for at, line in enumerate(found) if line.startswith("warning   5 clients are throttled: "))
    whom = [line for line in found[at:] if line.startswith("            c-")]
    assert [line.split()[0] for line in whom] == [f"c-{at}@10.0.0.1" for at in range(3)]
    assert "1 answer told it to wait, 2 s in all" in whom[0]
    assert "            and 2 more" in found
    assert sum(line.startswith("            c-") for line in text(made, top=0).splitlines()) == 5


def test_headline_and_course_say_how_long_calls_took_and_what_was_not_answered() -> None:
    rows = [call(at=at * 1_000_000, latency=1000.0 * (1 + at % 2), time=None) for at in range(40)]
    rows = [{**each, "time": each["request_time"]} for each in rows]
    lost = call(at=7_000_000, latency=None, status="unanswered", unanswered_because="connection_closed")
    made = text(page(batches([*rows, {**lost, "time": lost["request_time"]}], 7)), width=80)
    assert "41 calls, 0 errors, 1 unanswered, latency p50 1.5 ms, p95 2 ms" in " ".join(made.split())
    course = made.split("── What happened when")[1].splitlines()[1:]
    assert [line[:11].strip() for line in course if line.strip()][:5] == [
        "calls/s", "p50 ms", "p95 ms", "bytes/s", "no answer",
    ]  # fmt: skip
    assert course[0].endswith("▅" * 32 + "  1 to 2")


def test_bars_go_from_the_least_to_the_greatest_and_by_decades_where_values_span_them() -> None:
    assert sparkline([0, 1, 2, 4, None, 8]) == " ▂▃▅ █"
    assert sparkline([1, 10, 100, 1000, 10_000]) == "▁▃▅▆█"
    assert sparkline([0, None]) == "  "


def test_times_of_an_api_are_split_where_the_capture_shows_it() -> None:
    parts = {"request_transfer_us": 10.0, "queued_us": 200.0, "throttled_us": 0.0, "waited_us": 0.0}
    parts |= {"broker_us": 780.0, "broker_least_us": 780.0, "response_transfer_us": 30.0}
    made = text(page([pa.RecordBatch.from_pylist([row(**parts)] * 3, schema=SCHEMA)]))
    heading, figures = made.split("Where the time went")[1].splitlines()[1:3]
    assert heading.endswith("share  spent in")
    assert figures.endswith("100%  broker 76%, queue 20%")
    parts["broker_least_us"] = 0.0  # it may have waited for data
    made = text(page([pa.RecordBatch.from_pylist([row(**parts)] * 3, schema=SCHEMA)]))
    assert "broker ≤76%" in made


def test_errors_say_who_got_them_where_and_when() -> None:
    part = {"topic": "orders", "partition": 3, "error_code": 6}
    failed = {"status": "error", "error_code": 6, "error": "X", "error_count": 1, "partitions": [part]}
    made = text(page(batches([call(at=number, time=None, **failed) for number in range(12)], 5)))
    line = next(line for line in made.splitlines() if line.startswith("NOT_LEADER"))
    assert line.split()[1:5] == ["Metadata", "12", "app@10.0.0.1", "orders[3]"]


@pytest.mark.parametrize("calls", [1, 99, 100, 5000])
def test_pages_of_any_size_fit(calls: int) -> None:
    lines = page(batches(mixture(calls), 1000)).lines(height=49)
    assert len(lines) <= 49


def test_names_from_the_wire_are_shown_not_obeyed() -> None:
    evil = "evil\x1b[2J\r\n[bold red]\u202eabc\x9b漢字" + "x" * 300
    failed = {"status": "error", "error_code": 3, "error": "E", "error_count": 1, "throttle_ms": 5000}
    rows = [call(client_id=evil, topics=[evil], **failed) for _ in range(20)]
    file = io.StringIO()
    page(batches(rows, 7), (f"{evil}.pcap",)).print(
        Console(file=file, force_terminal=True, width=100, height=30)
    )
    shown = file.getvalue()
    for forbidden in ("\x1b[2J", "\r", "\u202e", "\x9b"):
        assert forbidden not in shown
    lines = page(batches(rows, 7), (f"{evil}.pcap",)).lines(height=49)
    assert max(cell_len(line.text) for line in lines if "> kwsniff" not in line.text) <= 100


def test_an_empty_input_has_a_page() -> None:
    made = text(page([]))
    assert "0 calls, 0 errors" in made
    assert "There are no Kafka calls in it" in made


def test_what_is_printed_on_a_terminal_and_piped_is_the_same_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.delenv("COLUMNS", raising=False)
    made = page(events(sample("throttled").paths, Config()))
    piped, terminal = io.StringIO(), io.StringIO()
    made.print(Console(file=piped))
    made.print(Console(file=terminal, force_terminal=True, color_system=None, width=100, height=30))
    assert piped.getvalue() == terminal.getvalue()
    assert "\x1b" not in piped.getvalue()


def test_wide_characters_line_up() -> None:
    made = [fitted("漢字", 6), fitted("漢字漢字", 6), fitted("abc", 6, left=False)]
    assert [cell_len(each) for each in made] == [6] * 3
    heading, lines = columns(["name", "n"], [["漢字", "1"], ["abcd", "22"]], (0,), ((0, 4),), 30)
    assert {cell_len(line) for line in (heading, *lines)} == {cell_len(heading)}
    assert all(cell_len(line) <= 20 for line in beside([["漢字漢字漢字漢字"], ["b"]], 20))


def test_long_words_are_cut_and_lines_never_wider_than_asked() -> None:
    lines = wrapped("one two " + "x" * 50 + " three", 20, "  ")
    assert all(cell_len(line) <= 20 for line in lines)
    assert "".join(line.strip() for line in lines).replace(" ", "") == "onetwo" + "x" * 50 + "three"


def test_numbers_stay_beside_their_units() -> None:
    assert wrapped("over 12 s and 3.4 kB here", 7) == ["over", "12 s", "and", "3.4 kB", "here"]


def test_a_page_is_shared_out_in_turn_and_never_overfull() -> None:
    def section(name: str, blocks: int, least: int = 1) -> Section:
        return Section(name, [[Line("a"), Line("b")] for _ in range(blocks)], least=least)

    assert shared([section("a", 9), section("b", 9)], 20) == [5, 4]
    assert shared([section("a", 9), section("b", 1)], 20) == [8, 1]
    assert shared([section("a", 9, least=9), section("b", 9, least=9)], 12) == [2, 3]


@pytest.mark.parametrize("width", [80, 100, 160])
def test_a_page_is_as_wide_as_columns_says(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    file = io.StringIO()
    page(events(sample("stuck-consumer").paths, Config())).print(Console(file=file))
    lines = [line for line in file.getvalue().splitlines() if "> kwsniff" not in line]
    assert max(map(cell_len, lines)) == width


# The page of real captures: its commands run, and it is of the time that is asked for

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
