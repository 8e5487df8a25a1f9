"""What outputs show is what DuckDB calculates from the Parquet of `kwsniff decode`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.recount.checked import Checked
from tests.recount.inputs import CAPTURES, LOSSY, check, check_all, lossy


@pytest.mark.one_of(3)
@pytest.mark.parametrize("name", ["throttled.pcapng", "midstream.pcap", "stuck-consumer.pcapng.zst"])
def test_every_figure_is_the_one_calculated_from_the_events(name: str) -> None:
    checked = Checked()
    check(checked, str(CAPTURES / name))
    assert checked.wrong == []
    assert sum(checked.figures.values()) > 900
    assert len(checked.figures) > 12


def test_figures_are_right_where_packets_are_missing(tmp_path: Path) -> None:
    checked = Checked()
    check(checked, str(lossy(CAPTURES / LOSSY[1], tmp_path)))
    assert checked.wrong == []


@pytest.mark.slow
def test_every_figure_of_every_sample_is_right() -> None:
    checked = check_all([])
    assert checked.wrong == []
    assert checked.figures.total() > 500_000
