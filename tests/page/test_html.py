"""What the page is made from: bounded, mergeable, taken from what other parts of the product say."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import pickle
import re
import shlex
from collections.abc import Callable
from datetime import datetime
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwsniff.analysis.bytestream import messages_of, messages_of_calls
from kwsniff.config import Config
from kwsniff.count.timeline import COUNTED, LIMIT, PERCENTILES, WIDTHS, Timeline
from kwsniff.page.html import ASSETS, MOST_BYTES, Page, Pass, script_json
from kwsniff.run.offline import events
from tests.cli.conftest import Ended
from tests.page import page_of
from tests.page.echarts import ABOUT, about
from tests.page.hostile import HOSTILE, hostile, many
from tests.recount.command import page
from tests.report.events import START, batch, call
from tests.samples import CAPTURES, sample

Run = Callable[..., Ended]
GROUPS = str(CAPTURES / "librdkafka-groups.pcapng")
REBALANCES = str(CAPTURES / "rebalance-leave.pcapng.zst")


@cache
def of(path: str) -> list[pa.RecordBatch]:
    return list(events([path], Config()))


def taken(batches: list[pa.RecordBatch]) -> Pass:
    found = Pass()
    for each in batches:
        found.take(each)
    return found


def data_of(page: str) -> dict[str, Any]:
    """What the page's script draws."""
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    data: dict[str, Any] = json.loads(text)
    return data


# Time


@st.composite
def calls(draw: st.DrawFn) -> list[dict[str, Any]]:
    times = draw(st.lists(st.integers(0, 10**13), max_size=60))
    return [
        call(at=at, time=START + at, error_code=3 * (at % 3 == 0), throttle_ms=at % 5, status="ok")
        for at in times
    ]


@given(calls(), st.integers(1, 50), st.integers(1, 60))
def test_a_timeline_in_parts_is_the_timeline_of_the_whole(
    rows: list[dict[str, Any]], limit: int, cut: int
) -> None:
    whole, first, second = Timeline(limit), Timeline(limit), Timeline(limit)
    whole.take(batch(*rows))
    first.take(batch(*rows[:cut]))
    second.take(batch(*rows[cut:]))
    first.merge(second)
    assert first.width_us == whole.width_us
    assert first.columns() == whole.columns()
    columns = whole.columns()
    assert len(columns["time"]) <= max(limit, 2)
    assert sum(columns["calls"]) == len(rows)
    assert sum(columns["errors"]) == sum(row["error_code"] != 0 for row in rows)
    assert sum(columns["throttle_ms"]) == sum(row["throttle_ms"] for row in rows)
    assert sum(columns["bytes"]) == sum(row["request_bytes"] + row["response_bytes"] for row in rows)
    assert set(columns) == {"time", *COUNTED, *PERCENTILES}


def test_each_width_divides_the_next() -> None:
    assert all(wide % narrow == 0 for narrow, wide in pairwise(WIDTHS))


def test_hours_without_calls_are_left_out_of_a_drawing() -> None:
    minutes, gap = 60_000_000, 20 * 3600 * 1_000_000
    line = Timeline()
    for begin in (0, gap):
        line.take(batch(*(call(time=START + begin + at * minutes // 10) for at in range(100))))
    drawn = line.drawn()
    (stretch,) = drawn.stretches()
    assert stretch.last - stretch.first > gap * 0.9
    assert drawn.width_us <= minutes
    busy = Timeline()
    busy.take(batch(*(call(time=START + at * 1_000_000) for at in range(5000))))
    assert busy.drawn().stretches() == []


def test_percentiles_of_a_slot_are_right_within_a_tenth_and_leave_waiting_out() -> None:
    line = Timeline()
    rows = [call(time=START, latency=100.0 * (at + 1)) for at in range(100)]
    line.take(batch(*rows, call(time=START, latency=9e6, waited_us=5e6)))
    (p50,), (p95,) = line.columns()["p50_us"], line.columns()["p95_us"]
    assert p50 == pytest.approx(5_050, rel=0.1)
    assert p95 == pytest.approx(9_505, rel=0.1)


def test_a_strip_has_columns_of_one_width_and_no_long_stretches_without_calls() -> None:
    second, line = 1_000_000, Timeline()
    for at in (0, 1, 2, 3, 5, 6, 7, 8, 9, 3610, 3611, 3611):
        line.take(batch(call(time=START + at * second, latency=2000.0)))
    strip = line.strip(12)
    assert sum(strip.columns["calls"]) == 12
    assert 11 <= len(strip.columns["calls"]) <= 12
    assert strip.columns["p95_us"].count(None) == strip.columns["calls"].count(0) > 0
    assert 0.8 * second < strip.width < 1.1 * second
    assert strip.left == pytest.approx(3600 * second, rel=0.001)
    assert strip.last - strip.first == pytest.approx(3611 * second, rel=0.001)


# Messages


def test_messages_of_many_calls_are_those_of_each_call() -> None:
    rows = [row for each in of(REBALANCES) for row in each.to_pylist() if row["event"] == "call"]
    assert len(rows) > 200
    found = {(at, name): message for at, name, message in messages_of_calls([REBALANCES], rows)}
    for at in range(0, len(rows), 7):
        for name, message in messages_of(REBALANCES, rows[at]).items():
            assert found[at, name] == message
    assert {(at, "request") for at in range(len(rows))} <= set(found)


@pytest.mark.parametrize(
    "name", ["librdkafka-groups", "java-groups", "rebalance-leave", "java-streams", "stuck-consumer"]
)
def test_groups_are_told_as_the_command_tells_them(name: str, kwsniff: Run, tmp_path: Path) -> None:
    capture = sample(name).paths[0]
    shown = json.loads(kwsniff("groups", capture, "-f", "json", "--top", "0", "-q").out)
    data = page(capture, tmp_path)
    columns = ("group", "kind", "generation", "trigger", "after")
    headings = [column[0] for column in data["tables"]["rebalances"]["columns"]]
    places = [1, 2, 3, headings.index("because"), headings.index("assignment")]
    rows = [[row[place] for place in places] for row in data["tables"]["rebalances"]["rows"]]
    assert rows == [[row.get(column) for column in columns] for row in shown["rebalances"]]

    def micros(text: str) -> int:
        return round(datetime.fromisoformat(text).timestamp() * 1e6)

    seen = sorted((row[0], row[1], row[6], row[7]) for row in data["tables"]["members"]["rows"])
    assert seen == sorted(
        (row["group"], row["client"], micros(row["first_time"]), micros(row["last_time"]))
        for row in shown["members"]
    )
    bars = data["groups"]["bars"]
    assert {bar[3] for bar in bars} >= {"orders[0-1]", "orders[0]", "orders[1]"} or name != "rebalance-leave"
    for lane in range(len(data["groups"]["lanes"])):
        spans = sorted(bar[1:3] for bar in bars if bar[0] == lane)
        assert all(first[1] <= second[0] for first, second in pairwise(spans))


def test_slow_calls_open_to_the_fields_that_show_has(kwsniff: Run, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    kwsniff("report", GROUPS, "--html", str(path), "-q")
    opened = data_of(path.read_text())["slow"]
    assert len(opened) == 50
    for each in opened[:8]:
        command = shlex.split(each["command"])
        (shown,) = json.loads(kwsniff(*command[1:], "-f", "json").out)
        for tree in each["trees"]:
            fields = list(flat(shown[tree["what"]]["fields"]))
            assert [field[3] for field in tree["fields"]] == fields[: len(tree["fields"])]
            assert len(fields) == len(tree["fields"]) + tree["more"]
            assert tree["packets"] == shown[tree["what"]]["packets"][:6]


def flat(fields: list[dict[str, Any]]) -> Any:
    for field in fields:
        yield field["name"]
        yield from flat(field.get("fields", []))


def test_passwords_stay_hidden() -> None:
    sasl = str(CAPTURES / "sasl.pcapng")
    page = taken(of(sasl)).page([sasl])
    page.read_again(Config())
    text = page.html()
    for secret in ("alice-secret", "alice-password", "mallory"):
        assert f"\\u0000{secret}" not in text
    assert '"auth_bytes"' in text
    assert not re.search(r'"auth_bytes","bytes[^"]*","(?!\*\*\*)', text)


# The whole


def test_a_page_in_parts_is_the_page_of_the_whole() -> None:
    batches = [each.slice(at, 40) for each in of(GROUPS) for at in range(0, each.num_rows, 40)]
    whole = page_of(batches, [GROUPS])
    parts = [taken(batches[:3]), taken(batches[3:5]), taken(batches[5:])]
    merged = pickle.loads(pickle.dumps(parts[0]))
    for part in parts[1:]:
        merged.merge(pickle.loads(pickle.dumps(part)))
    assert data_of(merged.page([GROUPS]).html()) == data_of(whole)


def test_the_command_writes_what_events_give(kwsniff: Run, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    assert kwsniff("report", GROUPS, "--html", str(path), "-q").code == 0
    written, made = data_of(path.read_text()), data_of(page_of(of(GROUPS), [GROUPS]))
    for name in ("timeline", "split", "latency", "matrix"):
        if name == "timeline":
            written[name].pop("rebalances"), made[name].pop("rebalances")
            kept = [at for at, calls in enumerate(written[name]["calls"]) if calls]
            for column in ("time", *COUNTED, *PERCENTILES):
                written[name][column] = [written[name][column][at] for at in kept]
        assert written[name] == made[name]
    for name in ("api", "client", "errors", "anomalies"):
        assert written["tables"][name] == made["tables"][name]


def test_every_command_on_a_page_runs(kwsniff: Run, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    kwsniff("report", GROUPS, "--html", str(path), "-q")
    text = path.read_text()
    commands = [html.unescape(each) for each in re.findall(r"<code>(kwsniff .*?)</code>", text)]
    sections = re.findall(r'<section id="(\w+)">', text)
    assert len(commands) >= len(sections) >= 8
    for command in commands:
        ended = kwsniff(*shlex.split(command)[1:], "-q")
        assert ended.code == 0, (command, ended.err)
        assert ended.out, command


def test_where_chooses_what_the_page_is_of(kwsniff: Run, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    where = 'api == "Heartbeat"'
    bounds = ("--since", "2026-11-21", "--tz", "Europe/Berlin")
    kwsniff("report", GROUPS, "--html", str(path), "--where", where, *bounds, "-q")
    text = path.read_text()
    assert [row[0] for row in data_of(text)["tables"]["api"]["rows"]] == ["Heartbeat"]
    again = "--where &#x27;api == &quot;Heartbeat&quot;&#x27; --since 2026-11-21 --tz Europe/Berlin"
    assert f"kwsniff slow {GROUPS} --top 50 {again}" in text


def test_a_pipe_gives_a_page_without_fields(
    kwsniff: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "page.html"
    with (CAPTURES / "librdkafka-groups.pcapng").open("rb") as file:
        monkeypatch.setattr("sys.stdin", file)
        code = kwsniff("report", "-", "--html", str(path), "-q").code
    assert code == 0
    assert len(data_of(path.read_text())["slow"]) == 50


@pytest.mark.parametrize(
    ("target", "says"), [("missing/page.html", "No such file or directory"), (GROUPS, "is one of the inputs")]
)
def test_a_page_that_cannot_be_written_is_one_line(
    kwsniff: Run, tmp_path: Path, target: str, says: str
) -> None:
    ended = kwsniff("report", GROUPS, "--html", str(tmp_path / target), "-q")
    assert ended.code == 2
    assert says in ended.err
    assert ended.err.count("\n") == 1


def test_a_page_stays_small_whatever_it_is_of() -> None:
    page = page_of(many(60_000, 20_000), ["big.pcap"])
    assert len(page.encode()) <= MOST_BYTES
    data = data_of(page)
    assert len(data["timeline"]["time"]) <= LIMIT
    assert len(data["matrix"]["clients"]) == len(data["matrix"]["topics"]) == 30
    assert all(len(table["rows"]) <= 300 for table in data["tables"].values())
    assert data["tables"]["client"]["left"] > 0
    assert data["tables"]["api"]["rows"]


def test_trees_that_do_not_fit_are_left_out_and_told() -> None:
    found: Page = taken(of(GROUPS)).page([GROUPS])
    field = [0, 0, "", "x" * 100, "string", "y" * 160]
    tree = {"what": "request", "bytes": 1, "packets": [], "more_packets": 0, "fields": [field] * 400}
    tree |= {"more": 0, "problem": ""}
    found.trees = {number: [tree, tree] for number in range(50)}
    page = found.html()
    assert len(page.encode()) <= MOST_BYTES
    with_trees = sum(bool(each["trees"]) for each in data_of(page)["slow"])
    assert 0 < with_trees < 50
    assert f"{50 - with_trees} of these calls have no fields here" in page


# Nothing gets in or out


def test_data_cannot_end_its_element() -> None:
    text = script_json({name: [name] for name in HOSTILE})
    assert not re.search(r"[<>&\u2028\u2029]", text)
    assert json.loads(text) == {name: [name] for name in HOSTILE}


def test_the_page_of_hostile_names_has_no_markup_of_theirs() -> None:
    page = page_of([hostile()], list(HOSTILE[:3]))
    page = page.replace((ASSETS / "echarts.min.js").read_text(), "").replace(
        (ASSETS / "page.js").read_text(), ""
    )
    assert page.count("<script") == 3
    assert not re.search(r"<(img|svg|iframe|i)\b", page)
    assert "\x1b" not in page
    assert "\u202e" not in page


def test_the_policy_names_what_the_page_runs() -> None:
    page = page_of(of(GROUPS), [GROUPS])
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    assert "http" not in policy
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    styles = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    for directive, texts in (("script-src", scripts), ("style-src", styles)):
        (named,) = re.findall(rf"{directive} ([^;]*)", policy)
        digests = [base64.b64encode(hashlib.sha256(each.encode()).digest()).decode() for each in texts]
        assert named.split() == [f"'sha256-{digest}'" for digest in digests]


def test_the_library_is_the_one_that_was_published() -> None:
    said = about()
    assert said["license"] == "Apache-2.0"
    for name, digest in said["files"].items():
        assert hashlib.sha256((ABOUT.parent / Path(name).name).read_bytes()).hexdigest() == digest
    assert (ABOUT.parent / "echarts.NOTICE").read_text().startswith("Apache ECharts")
