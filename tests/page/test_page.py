"""The default report: what fits a page, what it says, and that it obeys nothing from the wire."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pytest
from rich.cells import cell_len
from rich.console import Console

from kwsniff.config import Config
from kwsniff.findings import Finding, Findings
from kwsniff.findings.finding import CRITICAL, NOTICE, WARNING, order
from kwsniff.offline import events
from kwsniff.page import Page
from kwsniff.page.layout import Line, Section, beside, columns, fitted, shared, wrapped
from kwsniff.page.sections import varied
from kwsniff.page.title import title
from kwsniff.report import Report
from kwsniff.report.trust import TrustTotals, paragraph
from tests.findings.wide import SCHEMA, row
from tests.report.events import batches, call
from tests.report.samples import mixture
from tests.samples import names, sample

ERRORS = {6: ("NOT_LEADER_OR_FOLLOWER", True), 3: ("UNKNOWN_TOPIC_OR_PARTITION", True)}


def page(rows: Any, paths: tuple[str, ...] = ("trace.pcapng",)) -> Page:
    rules, trust = Findings(), TrustTotals()
    taken = []
    for batch in rows:
        rules.take(batch)
        trust.add(batch)
        taken.append(batch)
    report = Report.from_events(taken, errors=ERRORS)
    return Page(
        report.arrow, title(paths, report), paragraph(trust), rules.found(ERRORS), rules.errors(ERRORS),
        trust.anomalies,
    )  # fmt: skip


def text(page: Page, **options: Any) -> str:
    return "\n".join(line.text for line in page.lines(**options))


@pytest.mark.one_of(6)
@pytest.mark.parametrize("name", names())
def test_the_page_of_every_sample_fits_a_screen(name: str) -> None:
    lines = page(events(sample(name).paths, Config())).lines(height=29)
    assert 10 < len(lines) <= 29
    assert max(cell_len(line.text) for line in lines) <= 100


@pytest.mark.parametrize("name", ["stale-leader", "kafka-0.8", "sasl"])
def test_a_higher_screen_shows_more_and_top_0_everything(name: str) -> None:
    made = page(events(sample(name).paths, Config()))
    short, long, whole = (made.lines(height=29), made.lines(height=49), made.lines(top=0))
    assert len(short) <= 29 < len(long) <= 49
    assert "--top 0" in "".join(line.text for line in short)
    assert "--top 0" not in "".join(line.text for line in whole)
    bad = [each for each in made.findings if each.severity in ("critical", "warning", "notice")]
    commands = [line for line in whole if line.text.lstrip().startswith("> kwsniff")]
    assert len(commands) == len(bad)


def test_the_worst_comes_first_and_what_is_fine_is_said() -> None:
    made = text(page(events(sample("tls").paths, Config())))
    head, found = made.split("── Findings")
    assert "tls.pcapng" not in head  # the title names what the user gave
    assert "connections" in head
    assert found.splitlines()[1].startswith("critical  rdkafka-plaintext@127.0.0.1 speaks plaintext")
    assert "\nok        " in found
    assert "\nnot shown " in found


def test_one_finding_of_each_rule_stands_before_the_second_of_any() -> None:
    codes = [("a", WARNING)] * 4 + [("b", WARNING)] + [("c", NOTICE)] * 2 + [("d", CRITICAL)]
    found = sorted((Finding(code, severity, "", "") for code, severity in codes), key=order)
    assert "".join(each.code for each in varied(found)) == "dabaccaa"


def test_times_of_an_api_are_split_where_the_capture_shows_it() -> None:
    parts = {"request_transfer_us": 10.0, "queued_us": 200.0, "throttled_us": 0.0, "waited_us": 0.0}
    parts |= {"broker_us": 780.0, "response_transfer_us": 30.0}
    made = text(page([pa.RecordBatch.from_pylist([row(**parts)] * 3, schema=SCHEMA)]))
    heading, figures = made.split("by API")[1].splitlines()[1:3]
    # Columns without any share are left out: nothing was throttled, and nothing waited.
    assert heading.split()[4:8] == ["send", "queue", "broker", "receive"]
    assert "1%" in figures.split()
    assert "20%" in figures
    assert "76%" in figures
    assert "3%" in figures


def test_errors_say_who_got_them_where_and_when() -> None:
    part = {"topic": "orders", "partition": 3, "error_code": 6}
    failed = {"status": "error", "error_code": 6, "error": "X", "error_count": 1, "partitions": [part]}
    made = text(page(batches([call(at=number, time=None, **failed) for number in range(12)], 5)))
    line = next(line for line in made.splitlines() if line.startswith("NOT_LEADER"))
    assert line.split()[1:5] == ["Metadata", "12", "app@10.0.0.1", "orders[3]"]


@pytest.mark.parametrize("calls", [1, 99, 100, 5000])
def test_pages_of_any_size_fit_and_hide_percentiles_of_few_calls(calls: int) -> None:
    lines = page(batches(mixture(calls), 1000)).lines(height=29)
    assert len(lines) <= 29
    rows = [line.text for line in lines if line.text.startswith("Heartbeat ")]
    assert calls >= 600 or all(len(each.split()) <= 7 for each in rows)


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
    lines = page(batches(rows, 7), (f"{evil}.pcap",)).lines(height=29)
    assert max(cell_len(line.text) for line in lines if "> kwsniff" not in line.text) <= 100


def test_an_empty_input_has_a_page() -> None:
    made = text(page([]))
    assert "0 calls, 0 errors" in made
    assert "There are no Kafka calls in it" in made


def test_what_is_printed_on_a_terminal_and_piped_is_the_same_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
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
