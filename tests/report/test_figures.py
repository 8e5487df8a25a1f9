"""What outputs show is what DuckDB calculates from the Parquet of `kwsniff decode`."""

from __future__ import annotations

import pytest

from tests.report import figures


@pytest.mark.parametrize("name", ["throttled.pcapng", "librdkafka-errors.pcap", "midstream.pcap"])
def test_every_figure_is_the_one_calculated_from_the_events(name: str) -> None:
    checked = figures.Checked()
    figures.check(str(figures.CAPTURES / name), checked)
    assert checked.wrong == []
    assert len(checked.figures) == 6
    assert sum(checked.figures.values()) > 900
