"""The estimate for a cluster is a matter of proportion."""

from __future__ import annotations

from pathlib import Path

import pytest

from kwsniff.spark.splits import MOST_SHARES
from tests.bench.estimate import BEGIN, END, FIGURES, Cluster, Measured, estimate, read, section, table, write

CLUSTER = Cluster(10 * 10**12, 100, 400, 0.625e9, 10**9)
PLAIN = Measured("plain", 500 * 10**6, 4.0, 6, 5 * 10**6, 0.3, 10 * 10**6, 1_000, 3)


def test_figures_are_scaled_by_the_bytes() -> None:
    found = estimate(PLAIN, CLUSTER)
    cells = [line.strip("| ").split(" | ") for line in table([PLAIN], [found], CLUSTER)]
    rows = dict(cells)
    assert rows["CPU seconds a GB"] == "8.0"
    assert rows["read: once to cut, once to decode"] == "5.3 min"
    assert rows["CPU"] == "80,000 s, 3.3 min"
    assert rows["results"] == "200 GB"


def test_what_is_shuffled_goes_with_cuts_and_joining_with_splits() -> None:
    found = estimate(PLAIN, CLUSTER)
    assert CLUSTER.splits == 10_000
    assert found.shuffled == 9_999 * 10**6  # a megabyte a cut
    assert found.joining == pytest.approx(3_000 / MOST_SHARES)
    assert found.whole == pytest.approx(320 + 200 + 3_000 / MOST_SHARES)
    coarse = estimate(PLAIN, Cluster(10 * 10**12, 100, 400, 0.625e9, 2 * 10**9))
    assert coarse.joining == pytest.approx(1_500 / MOST_SHARES)


def test_what_breaks_first_comes_first() -> None:
    text = "\n".join(section([PLAIN], CLUSTER))
    assert text.index("1. **Joining.**") < text.index("2. **One large file.**")
    quick = Measured("quick", 500 * 10**6, 4.0, 6, 5 * 10**6, 0.001, 10 * 10**6, 1_000, 3)
    text = "\n".join(section([quick], CLUSTER))
    assert text.index("1. **One large file.**") < text.index("2. **Joining.**")


def test_the_section_takes_its_place_and_leaves_the_rest(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    for _ in range(2):
        write(page, ["new"])
        assert page.read_text() == f"before\n{BEGIN}\nnew\n{END}\nafter\n"


def test_docs_say_what_the_figures_come_to() -> None:
    page = (Path(__file__).parents[2] / "docs" / "spark.md").read_text(encoding="utf-8")
    found = page.partition(f"{BEGIN}\n")[2].partition(f"\n{END}")[0]
    cluster = Cluster(10 * 10**12, 100, 400, 0.625e9)
    assert found.splitlines() == section(read(FIGURES), cluster)
