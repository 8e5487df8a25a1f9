"""`kwsniff live --csv` with real clients: the tables against the lines that the same session wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.live.test_end_to_end import lines, scenario
from tests.live.test_table import read
from tests.report import oracle

pytestmark = pytest.mark.root


def test_tables_and_history_have_the_figures_of_the_calls_shown(tmp_path: Path) -> None:
    tables = tmp_path / "tables"
    arguments = ("-i", "lo", "-f", "jsonl", "--port", "PORTS", "--csv", str(tables), "--interval", "1s")
    told = scenario(tmp_path, 6, *arguments)
    assert told["exit"] == 0
    calls: list[dict[str, Any]] = [row for row in lines(tmp_path / "live.out") if row["event"] == "call"]
    history = read(tables / "history.csv")
    assert len({row["time"] for row in history}) >= 4
    by_api = oracle.grouped([_filled(row) for row in calls], lambda row: [row["api"]])
    table = {row["api"]: row for row in read(tables / "api.csv")}
    assert table.keys() == by_api.keys() == {row["api"] for row in history}
    for api, rows in by_api.items():
        expected = oracle.figures(rows)
        of_it = [row for row in history if row["api"] == api]
        for column in ("calls", "errors", "unanswered", "request_bytes", "response_bytes"):
            assert int(table[api][column]) == expected[column], (api, column)
            assert sum(int(row[column]) for row in of_it) == expected[column], (api, column)
        p99 = table[api]["latency_p99_us"]
        assert (float(p99) if p99 else None) == pytest.approx(expected["latency_p99_us"])


def _filled(row: dict[str, Any]) -> dict[str, Any]:
    """With the columns that a line leaves out."""
    names = ("latency_us", "duration_us", "error_code", "throttle_ms", "max_wait_ms", "record_count")
    more = ("record_bytes", "in_flight", "request_bytes", "response_bytes")
    return {**dict.fromkeys((*names, *more)), **row}
