from __future__ import annotations

import io
import json
import re
from functools import cache
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from rich.console import Console

from kwsniff.analysis.report import Report
from kwsniff.analysis.statistics import TABLES
from kwsniff.analysis.terminal import PIPED_WIDTH
from kwsniff.output.text import printable
from kwsniff.output.units import bytes_text, digits

from .events import batches, call
from .samples import mixture


def printed(report: Report, width: int | None = None, **options: Any) -> str:
    """What the report prints: on a terminal of that width, or piped."""
    file = io.StringIO()
    console = Console(file=file, width=width, force_terminal=width is not None, color_system=None)
    report.print(console, **options)
    return file.getvalue()


def fetches() -> Report:
    waiting = {"api_key": 1, "api": "Fetch", "waited_us": 500_000.0}
    return Report.from_events(batches([call(latency=500_000, **waiting), call(latency=1500)], 2))


@cache
def many_calls() -> Report:
    """More than a thousand of some API, so that all percentiles are shown."""
    return Report.from_events(batches(mixture(9000), 3000))


def test_piped_text_has_the_columns_of_a_terminal_of_its_width() -> None:
    piped = printed(many_calls(), by=list(TABLES))
    assert max(map(len, piped.splitlines())) <= PIPED_WIDTH
    on_terminal = printed(many_calls(), width=PIPED_WIDTH, by=list(TABLES))
    headings = [line.split() for line in piped.splitlines() if "p50 ms" in line]
    assert headings == [line.split() for line in on_terminal.splitlines() if "p50 ms" in line]
    assert max(map(len, printed(many_calls(), by=list(TABLES), wide=True).splitlines())) > 300


@pytest.mark.parametrize(("calls", "shown"), [(99, []), (100, ["99"]), (999, ["99"]), (1000, ["99", "99.9"])])
def test_high_percentiles_of_few_calls_are_not_shown(calls: int, shown: list[str]) -> None:
    report = Report.from_events(batches([call(latency=1000.0 + number) for number in range(calls)], 100))
    lines = printed(report, by=["api"], wide=True).splitlines()
    cells = dict(zip(re.split(r"\s{2,}", lines[1]), re.split(r"\s{2,}", lines[2]), strict=False))
    if shown:
        assert float(cells["p99 ms"]) == pytest.approx((1000 + 0.99 * (calls - 1)) / 1000, rel=0.01)
    assert ("p99.9 ms" in lines[1]) == ("99.9" in shown)
    assert report.tables["api"]["latency_p999_us"][0] > 0


def test_piped_text_is_aligned_and_holds_no_escape_sequences() -> None:
    lines = printed(fetches(), by=["api"], wide=True).splitlines()
    assert lines[0] == "Calls by API"
    header, fetch, waited, metadata = lines[1:5]
    assert header.split()[:4] == ["API", "calls", "calls/s", "sent"]
    assert [line.split()[0] for line in (fetch, waited, metadata)] == ["Fetch", "waited", "Metadata"]
    end = header.index("p50 ms") + len("p50 ms")
    assert [line[:end].split()[-1] for line in (waited, metadata)] == ["500", "1.5"]
    assert fetch[:end].rstrip().endswith("200 bytes")
    assert "\x1b" not in "".join(lines)


def test_all_tables_print_and_an_unknown_one_is_refused() -> None:
    report = Report.from_events(batches(mixture(100), 50))
    text = printed(report, by=list(TABLES))
    for title in ("Calls by API", "Calls by client", "Calls by topic", "Calls by broker", "Errors"):
        assert title in text
    with pytest.raises(ValueError, match="no table 'group'; there are api, client"):
        printed(report, by=["group"])


def test_times_are_in_the_zone_that_was_asked_for() -> None:
    report = Report.from_events(batches([call(error_code=3, error="X")], 1))
    shown = printed(report, by=["error"], wide=True, zone=ZoneInfo("Asia/Tokyo"))
    assert "2023-11-15 07:13:20.000000 JST" in shown
    assert "2023-11-14 22:13:20.000000 UTC" in printed(report, by=["error"], wide=True)


def test_an_empty_report_prints_headings() -> None:
    assert "API" in printed(Report.from_events([]))
    assert "API" in printed(Report.from_events([]), width=100)


@pytest.mark.parametrize("width", [80, 100, 140, 400])
def test_a_terminal_shows_the_columns_that_fit_and_never_cuts_a_number(width: int) -> None:
    lines = printed(many_calls(), width=width, by=["api"]).splitlines()
    assert max(map(len, lines)) <= width
    header = next(line for line in lines if "p50 ms" in line)
    assert all(heading in header for heading in ("calls", "p50 ms", "p99 ms", "errors"))
    assert "…" not in "".join(lines)
    assert ("dur p99.9 ms" in header) == (width == 400)


@pytest.mark.parametrize("width", [None, 120])
def test_control_characters_and_markup_from_the_wire_are_shown_not_obeyed(width: int | None) -> None:
    name = "evil\x1b[2J\r\n[bold]\u202eabc\x9b"
    text = printed(Report.from_events(batches([call(client_id=name)], 1)), width=width, by=["client"])
    assert "evil\\x1b[2J\\x0d\\x0a[bold]\\u202eabc\\x9b" in text
    assert "\r" not in text
    assert "\u202e" not in text


def test_colour_comes_only_on_a_terminal_and_no_color_is_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    file = io.StringIO()
    fetches().print(Console(file=file, force_terminal=True, width=100), by=["api"])
    assert "\x1b[3" not in file.getvalue()


def test_json_holds_every_table_with_nulls_and_iso_times() -> None:
    rows = mixture(100)
    data = json.loads(Report.from_events(batches(rows, 30)).to_json())
    assert list(data) == ["summary", *TABLES]
    assert data["summary"]["calls"] == 100
    assert data["summary"]["first_time"] == "2023-11-14T22:13:20.000000Z"
    assert data["summary"]["errors"] == sum(bool(row["error_code"]) for row in rows)
    heartbeat = next(row for row in data["api"] if row["api"] == "Heartbeat")
    assert list(heartbeat) == [column.name for column in TABLES["api"]]
    assert heartbeat["waited_p50_us"] is None
    empty = json.loads(Report.from_events([]).to_json())
    assert empty["summary"]["first_time"] is None
    assert empty["api"] == []


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.01234, "0.0123"), (0.00000012, "0"), (1.5, "1.5"), (99.96, "100"), (123456.7, "123,457")],
)
def test_numbers_have_three_digits_or_all_before_the_point(value: float, text: str) -> None:
    assert digits(value) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (999, "999 bytes"),
        (1500, "1.5 kB"),
        (999_999, "1 MB"),
        (2.35e9, "2.35 GB"),
    ],
)
def test_sizes_are_in_powers_of_1000(size: int, text: str) -> None:
    assert bytes_text(size) == text


def test_printable_text_is_left_alone() -> None:
    assert printable("Grüße, 世界 ✓") == "Grüße, 世界 ✓"
    assert printable("\U000e0001") == "\\U000e0001"
