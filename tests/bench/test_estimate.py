"""The estimate for a cluster is a matter of proportion."""

from __future__ import annotations

from tests.bench.estimate import Cluster, Measured, table


def test_figures_are_scaled_by_the_bytes() -> None:
    cluster = Cluster(10 * 10**12, 100, 400, 0.625e9)
    found = Measured("plain", 500 * 10**6, 4.0, 5 * 10**6, 10 * 10**6, 1_000, 3)
    cells = [line.strip("| ").split(" | ") for line in table([found], cluster)]
    rows = dict(cells)
    assert rows["CPU seconds a GB"] == "8.0"
    assert rows["read: once to cut, once to decode"] == "5.3 min"
    assert rows["CPU"] == "80,000 s, 3.3 min"
    assert rows["shuffled"] == "100 GB (1.00 %)"
    assert rows["results"] == "0.20 TB"
    assert rows["if nothing overlaps"] == "8.7 min"
