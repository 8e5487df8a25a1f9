"""What stands on the screen, at which size, whatever clients call themselves."""

from __future__ import annotations

import re
from datetime import UTC
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from rich.cells import cell_len
from rich.console import Console

from kwsniff.live.screen import view as lines
from kwsniff.live.screen.lastminute import ScreenStatistics, Snapshot
from kwsniff.live.screen.shown import Cell, ScreenColumn, cut, padded, table
from kwsniff.live.screen.state import State, ordered
from kwsniff.output.units import narrow_size, number
from tests.cli.test_safe_output import NASTY
from tests.live.screen.events import batch, call, health

SIZES = [(50, 14), (60, 16), (80, 23), (100, 30), (160, 49), (250, 80)]
VIEWS = ["rows", "calls", "help"]


def snapshot(rows: list[dict[str, Any]], **counts: int) -> Snapshot:
    statistics = ScreenStatistics()
    statistics.add(batch(rows))
    statistics.tick(health(60.0, **counts))
    return statistics.snapshot()


def drawn(shown: Snapshot, state: State | None = None, width: int = 80, height: int = 23) -> list[str]:
    state = state or State()
    texts = lines.screen(shown, state, "eth0", width, height)
    assert len(texts) <= height
    plain = [text.plain for text in texts]
    assert all(cell_len(line) <= width for line in plain)
    return plain


def spread(count: int) -> list[float]:
    """Seconds, ten calls each."""
    return [place / 10 for place in range(count)]


def usual() -> list[dict[str, Any]]:
    return [
        *(call(at, 3, api="Fetch", api_key=1, client_id="reader", topics=["orders"]) for at in spread(300)),
        *(call(at, 9, api="Produce", api_key=0, client_id="writer", topics=["bills"]) for at in spread(60)),
        call(20, 700, api="Metadata", client_id="admin", error_code=3, error="UNKNOWN_TOPIC_OR_PARTITION"),
        call(20, None, api="Heartbeat", api_key=12, client_id="reader", status="unanswered",
             unanswered_because="connection_closed"),
    ]  # fmt: skip


def test_times_are_in_the_zone_that_was_asked_for() -> None:
    shown = snapshot(usual())
    for view in ("rows", "calls"):
        plain, zoned = (
            drawn(shown, State(view=view, selected=("Metadata", ""), zone=zone), 160)
            for zone in (UTC, ZoneInfo("Asia/Kolkata"))
        )
        assert plain[0].endswith("UTC")
        assert zoned[0].endswith("IST")
        assert view == "rows" or plain[-18:] != zoned[-18:]


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize(("width", "height"), SIZES)
def test_capture_health_is_in_sight_in_every_view_and_size(view: str, width: int, height: int) -> None:
    shown = drawn(snapshot(usual(), kernel_dropped=1234, own_dropped=5), State(view=view), width, height)
    assert shown[1].startswith("DROPPED 1,239 (kernel 1,234, own 5")
    head = " ".join(shown[:5])
    for word in ("packets/s", "bytes/s", "connections", "anomalies", "unanswered 1"):
        assert word in head


def test_drops_stand_in_warning_colour_and_none_in_no_colour() -> None:
    for dropped, style in ((7, "bold red"), (0, "")):
        texts = lines.screen(snapshot(usual(), kernel_dropped=dropped), State(), "", 80, 23)
        assert str(texts[1].spans[0].style if texts[1].plain.startswith("D") else "").startswith(style)


def test_rows_hold_the_figures_of_their_calls() -> None:
    shown = drawn(snapshot(usual()))
    fetch = next(line for line in shown if line.startswith("Fetch")).split()
    # 300 calls in 60 s, all of 3 ms, 30 bytes each; the bin of 3 ms may be 2.5 % off.
    assert fetch[:2] == ["Fetch", "5.00"]
    assert float(fetch[2]) == pytest.approx(3, rel=0.025)
    assert fetch[4:] == ["0", "0", "150", "B"]
    metadata = next(line for line in shown if line.startswith("Metadata")).split()
    assert (metadata[1], metadata[4]) == ("0.02", "0.02")


def test_the_busiest_and_slowest_clients_and_topics_are_in_sight() -> None:
    shown = drawn(snapshot(usual()))
    busiest = next(line for line in shown if line.startswith("busiest"))
    slowest = next(line for line in shown if line.startswith("slowest"))
    assert re.findall(r"client (\w+) .* topic (\w+) ", busiest) == [("reader", "orders")]
    assert re.findall(r"client (\w+) .* topic (\w+) ", slowest) == [("admin", "bills")]


def test_a_large_terminal_lists_several_of_them() -> None:
    shown = "\n".join(drawn(snapshot(usual()), width=160, height=49))
    assert re.search("busiest clients +slowest clients +busiest topics +slowest topics", shown)
    assert re.search(r"reader +5.02/s +admin +p99 \d+ ms +orders", shown)


@pytest.mark.parametrize(
    ("sort", "first"),
    [
        ("rate", "Fetch"),
        ("p99", "Metadata"),
        ("errors", "Metadata"),
        ("unanswered", "Heartbeat"),
        ("bytes", "Fetch"),
    ],
)
def test_rows_are_sorted_by_what_is_asked_for(sort: str, first: str) -> None:
    shown = drawn(snapshot(usual()), State(sort=sort))
    heading = next(place for place, line in enumerate(shown) if line.startswith("API"))
    assert shown[heading + 1].startswith(first)


def test_a_filter_leaves_rows_that_contain_it_in_any_case() -> None:
    state = State(grouping="client", text="READ")
    shown = "\n".join(drawn(snapshot(usual()), state))
    assert "filter READ: 1 of 3" in shown
    assert re.search("^reader ", shown, re.M)
    assert not re.search("^writer ", shown, re.M)


def test_a_filter_that_no_row_contains_is_said_so() -> None:
    assert "No client contains zebra" in drawn(snapshot(usual()), State(grouping="client", text="zebra"))


def test_a_client_can_be_filtered_by_its_address() -> None:
    rows = [call(1, client_id="a"), call(1, client_id="b", client_ip="10.0.0.77")]
    shown = snapshot(rows)
    assert shown.groups is not None
    figures = shown.groups["client"]
    assert [figures.keys[row] for row in ordered(figures, "rate", "0.77")] == [("b", "10.0.0.77")]


def test_the_last_calls_of_a_row_say_when_who_what_how_long_and_how() -> None:
    state = State(grouping="client", view="calls", selected=("admin", "10.0.0.1"))
    shown = drawn(snapshot(usual()), state)
    assert "Last calls of client admin 10.0.0.1" in shown
    line = next(line for line in shown if line.startswith("12:00:19.300"))
    assert re.split("  +", line)[1:] == ["700", "Metadata v9", "10 B", "20 B", "UNKNOWN_TOPIC_OR_PARTITION"]


def test_an_unanswered_call_says_why() -> None:
    state = State(view="calls", selected=("Heartbeat", ""))
    shown = "\n".join(drawn(snapshot(usual()), state, width=100))
    assert "unanswered (connection_closed)" in shown


def test_a_call_that_waited_on_purpose_says_so() -> None:
    fetch = {"api_key": 1, "api": "Fetch"}
    shown = drawn(
        snapshot([call(1, 500, waited_us=500_000.0, **fetch), call(1, 20, **fetch)]), State(view="calls")
    )
    results = [line.split()[-2:] for line in shown if line.startswith("12:00:0")]
    assert sorted(results) == [["B", "ok"], ["ok", "(waited)"]]


def test_calls_of_a_row_that_fell_silent_are_not_another_s() -> None:
    shown = drawn(snapshot(usual()), State(view="calls", selected=("OffsetCommit", "")))
    assert "No calls in the last 60 s" in shown


@pytest.mark.one_of(2)
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize(("width", "height"), SIZES)
def test_no_name_commands_the_terminal_or_breaks_the_lines(view: str, width: int, height: int) -> None:
    names = [
        *NASTY,
        "[red]markup[/red]",
        "[/]",
        "wide \u4f60\u597d" * 9,
        "zalgo" + "\u0301" * 200,
        "",
        "x" * 300,
    ]
    rows = [
        call(1, client_id=name, topics=[name], group_id=name, api=None, api_key=7, error_code=1, error=name)
        for name in names
    ]
    shown = snapshot(rows)
    assert shown.groups is not None
    console = Console(width=width, force_terminal=True, color_system=None)
    for grouping, figures in shown.groups.items():
        for key in figures.keys:
            state = State(grouping=grouping, view=view, selected=key, text=" " if key is None else "")
            drawn(shown, state, width, height)
            for text in lines.screen(shown, state, "title \x1b[2J", width, height):
                written = "".join(segment.text for segment in text.render(console))
                assert not re.search("[\x00-\x1f\x7f-\x9f\u2028\u202e]", written)


def test_markup_in_a_name_is_shown_as_it_is() -> None:
    shown = drawn(snapshot([call(1, client_id="[red]x[/red]")]), State(grouping="client"))
    assert any(line.startswith("[red]x[/red]") for line in shown)


@pytest.mark.parametrize(("width", "height"), [(49, 24), (80, 13), (1, 1), (20, 5)])
def test_a_terminal_that_is_too_small_is_told_so_in_its_width(width: int, height: int) -> None:
    texts = lines.screen(snapshot(usual()), State(), "title", width, height)
    assert len(texts) == 1
    assert texts[0].cell_len <= width
    assert "Needs 50x14".startswith(texts[0].plain[:11].rstrip("…"))


def test_before_the_first_packet_it_says_what_it_waits_for() -> None:
    assert "Waiting for packets ..." in drawn(Snapshot())
    assert "No API yet" in drawn(snapshot([]))


def test_a_paused_screen_says_so() -> None:
    assert "PAUSED" in drawn(snapshot(usual()), State(paused=True))[0]


def test_the_selected_row_is_scrolled_into_sight() -> None:
    shown = snapshot([call(1, client_id=f"client-{number:03}") for number in range(150)])
    for place in (120, 0, 149):
        name = f"client-{place:03}"
        state = State(grouping="client", selected=(name, "10.0.0.1"))
        rows = [line[:10] for line in drawn(shown, state) if line.startswith("client-")]
        assert name in rows
        assert len(rows) < 20


def test_others_stand_last_and_are_not_selected() -> None:
    shown = snapshot([call(1, client_id=f"client-{number:03}") for number in range(300)])
    assert shown.groups is not None
    state = State(grouping="client")
    state.move(shown.groups["client"], 10_000)
    assert state.selected is not None
    rows = [line for line in drawn(shown, state, height=240) if line.startswith(("client-", "(others)"))]
    assert [place for place, line in enumerate(rows) if line.startswith("(others)")] == [200]


def test_narrow_terminals_leave_out_columns_of_less_use() -> None:
    def headings(width: int) -> list[str]:
        shown = drawn(snapshot(usual()), State(grouping="client"), width)
        return re.split("  +", next(line for line in shown if line.startswith("client  ")).strip())

    assert headings(50) == ["client", "calls/s", "p99 ms", "errors/s"]
    assert headings(80) == ["client", "calls/s", "p50 ms", "p99 ms", "errors/s", "unanswered", "bytes/s"]
    wide = ["client", "address", "calls/s", "p50 ms", "p95 ms", "p99 ms", "errors/s", "unanswered", "bytes/s"]
    assert headings(140) == [*wide, "last error"]


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.017, "0.02"), (9.994, "9.99"), (9.996, "10.0"), (99.96, "100"), (12345.6, "12,346")],
)
def test_numbers_have_three_digits_or_more(value: float, text: str) -> None:
    assert number(value, 2) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999.4, "999 B"), (999.6, "1.00 kB"), (1.5e6, "1.50 MB"), (3e18, "3,000 PB")],
)
def test_sizes_have_units_of_a_thousand(count: float, text: str) -> None:
    assert narrow_size(count) == text


def test_names_that_differ_at_their_ends_differ_when_cut() -> None:
    assert cut("consumer-orders-1-2f6c1b7e-9d40-a1", 20) != cut("consumer-orders-1-2f6c1b7e-9d40-a2", 20)


@pytest.mark.parametrize("text", ["plain", "\u4f60\u597d\u4f60\u597d", "e\u0301e\u0301e\u0301", ""])
@pytest.mark.parametrize("width", range(1, 9))
def test_a_cut_text_has_the_width_asked_for(text: str, width: int) -> None:
    assert cell_len(cut(text, width)) <= width
    assert cell_len(padded(text, width)) == width


@pytest.mark.parametrize("width", range(60, 200, 10))
def test_an_address_is_shown_whole_or_not_at_all(width: int) -> None:
    address = "2001:db8:1234:5678:9abc:def0:1234:5678"
    shown = snapshot([call(1, client_id="x" * 60, client_ip=address, broker_ip="10.11.12.13")])
    for state in (State(grouping="client"), State(view="calls")):
        for line in drawn(shown, state, width):
            assert "2001:" not in line or address in line
            assert "10.11" not in line or "10.11.12.13:9092" in line


def test_long_texts_are_cut_before_the_table_gets_too_wide() -> None:
    columns = [
        ScreenColumn("a", "a", left=True),
        ScreenColumn("b", "b"),
        ScreenColumn("c", "c", 1, left=True),
    ]
    rows = [({"a": Cell("x" * 90), "b": Cell("12345"), "c": Cell("y" * 40)}, "")]
    for width in range(40, 150):
        shown, widths = table(columns, rows, width)
        assert sum(widths) + 2 * (len(widths) - 1) <= width
        assert widths[1] == 5
        assert len(shown) == 3
