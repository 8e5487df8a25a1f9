"""Pages in headless Chromium: nothing goes wrong, nothing is asked of any network, nothing is injected."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kwsniff.page.html import MOST_BYTES
from tests.cli.conftest import Ended
from tests.page import page_of
from tests.page.hostile import HOSTILE, hostile, many
from tests.samples import CAPTURES, names

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.page.browser import Browser

    Run = Callable[..., Ended]

pytestmark = pytest.mark.browser

CHARTS = {"timeline", "split", "latency", "matrix", "groups"}


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    from tests.page.browser import browser

    with browser(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


def check(chromium: Browser, path: Path) -> None:
    """The page is whole, small enough and quiet, in both colour schemes and for the printer."""
    assert path.stat().st_size < 5_000_000
    for dark in (False, True):
        chromium.emulate(dark=dark)
        chromium.open(path)
        assert chromium.run("return document.documentElement.dataset.ready") == "yes"
        assert chromium.complaints() == []
        assert chromium.requests() == []
    for place in chromium.all("[data-chart]"):
        drawn = chromium.all("canvas", place) or chromium.all(".note", place)
        assert drawn, place.get_attribute("data-chart")
    assert {place.get_attribute("data-chart") for place in chromium.all("[data-chart]")} <= CHARTS
    assert chromium.run("return window.hurt") is None
    assert chromium.run("return Object.getOwnPropertyNames(Object.prototype).includes('prev')") is False


@pytest.mark.parametrize("name", names())
def test_the_page_of_a_sample_is_whole_and_quiet(
    chromium: Browser, kwsniff: Run, name: str, tmp_path: Path
) -> None:
    (sample,) = (path for path in CAPTURES.iterdir() if path.name.split(".pcap")[0] == name)
    path = tmp_path / "page.html"
    assert kwsniff("report", str(sample), "--html", str(path), "-q").code in (0, 3)
    check(chromium, path)
    for row in chromium.all("#slow tr.opens")[:3]:
        chromium.click(chromium.all("button", row)[0])
    assert all(chromium.all("code", row) for row in chromium.all("#slow tr.open"))
    assert chromium.complaints() == []
    chromium.pdf(tmp_path / "page.pdf")
    assert (tmp_path / "page.pdf").read_bytes().startswith(b"%PDF")
    assert chromium.complaints() == []


def test_a_million_calls_fit_into_a_page(chromium: Browser, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(page_of(many(1_000_000), ["big.pcap"]), encoding="utf-8")
    assert path.stat().st_size <= MOST_BYTES
    check(chromium, path)
    assert chromium.all("dd")[0].text == "1,000,000"


def test_hostile_names_inject_nothing(chromium: Browser, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(page_of([hostile()], HOSTILE[:3]), encoding="utf-8")
    check(chromium, path)
    assert len(chromium.all("script")) == 3
    assert chromium.all("img, svg, iframe, object, main style, b script, [onerror], [onload]") == []
    for button in chromium.all("#slow .toggle button")[:6]:
        chromium.click(button)
    for button in chromium.all("th button"):
        chromium.click(button)
    for chart in chromium.all("canvas"):
        chromium.run(
            "const at = arguments[0].getBoundingClientRect();"
            "for (const x of [0.3, 0.5, 0.7]) for (const y of [0.1, 0.3, 0.6]) arguments[0].dispatchEvent("
            "new MouseEvent('mousemove', {clientX: at.x + x * at.width, clientY: at.y + y * at.height,"
            " bubbles: true}))",
            chart,
        )
    assert chromium.run("return window.hurt") is None
    assert chromium.complaints() == []
    assert chromium.requests() == []
    shown = chromium.run("return document.body.textContent")
    assert "<img src=x onerror" in shown
    assert "\u202e" not in shown
    assert "\\u202e" in shown


def column(chromium: Browser, table: str, at: int) -> list[str]:
    rows = chromium.all(f"[data-table={table}] tbody tr:not(.open)")
    return [chromium.all("td", row)[at].text for row in rows]


def test_tables_sort_and_filter(chromium: Browser, kwsniff: Run, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    kwsniff("report", str(CAPTURES / "librdkafka-groups.pcapng"), "--html", str(path), "-q")
    chromium.open(path)
    heads = [head.text for head in chromium.all("[data-table=api] th")]
    calls = heads.index("calls")
    for order, reverse in (("descending", True), ("ascending", False)):
        chromium.click(chromium.all("[data-table=api] th button")[calls])
        shown = [int(text.replace(",", "")) for text in column(chromium, "api", calls)]
        assert shown == sorted(shown, reverse=reverse)
        assert len(set(shown)) > 2
        assert chromium.all("[data-table=api] th")[calls].get_attribute("aria-sort") == order
    chromium.click(chromium.all("[data-table=api] th button")[0])
    names_shown = column(chromium, "api", 0)
    assert names_shown == sorted(names_shown, key=str.lower)
    chromium.all("[data-table=api] input")[0].send_keys("heartbeat")
    assert column(chromium, "api", 0) == [each for each in names_shown if "heartbeat" in each.lower()] != []
    chromium.all("[data-table=api] input")[0].clear()
    chromium.all("[data-table=api] input")[0].send_keys("no such api")
    assert column(chromium, "api", 0) == []
    more = chromium.all("[data-table=slow] button.link")[0]
    assert len(column(chromium, "slow", 1)) == 15
    chromium.click(more)
    assert len(column(chromium, "slow", 1)) == 50


def test_a_call_opens_to_its_fields(chromium: Browser, kwsniff: Run, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    kwsniff("report", str(CAPTURES / "librdkafka-groups.pcapng"), "--html", str(path), "-q")
    chromium.open(path)
    button = chromium.all("#slow .toggle button")[0]
    chromium.click(button)
    assert button.get_attribute("aria-expanded") == "true"
    fields = [row.text for row in chromium.all("#slow tr.open .tree tr")]
    assert any("correlation_id" in field for field in fields)
    assert chromium.all("#slow tr.open code")[0].text.startswith("kwsniff show ")
    chromium.click(button)
    assert chromium.all("#slow tr.open") == []


INK = """
const seen = {};
for (const canvas of document.querySelectorAll(".printed")) {
  const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  let coloured = 0;
  for (let at = 0; at < pixels.length; at += 4)
    coloured += Math.max(...pixels.slice(at, at + 3)) - Math.min(...pixels.slice(at, at + 3)) > 60;
  seen[canvas.closest("[data-chart]").dataset.chart] = coloured;
}
return seen;
"""


def test_every_chart_is_printed_in_ink_that_shows_on_paper(
    chromium: Browser, kwsniff: Run, tmp_path: Path
) -> None:
    path = tmp_path / "page.html"
    kwsniff("report", str(CAPTURES / "rebalance-leave.pcapng.zst"), "--html", str(path), "-q")
    chromium.emulate(dark=True)
    chromium.open(path)
    chromium.run("dispatchEvent(new Event('beforeprint'))")
    ink = chromium.run(INK)
    assert set(ink) == CHARTS
    assert all(coloured > 1000 for coloured in ink.values())
    chromium.run("dispatchEvent(new Event('afterprint'))")
    assert chromium.all(".printed") == []
    assert chromium.complaints() == []
    chromium.emulate()
