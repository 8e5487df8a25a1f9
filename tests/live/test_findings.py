"""Findings of a live session: those of the report over the same events, however they come."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import kwsniff
from kwsniff.analysis.findings import Findings
from kwsniff.analysis.rule import NOT_SHOWN, OK
from kwsniff.live.livetable import IntervalCsv, LiveFindings
from kwsniff.live.session import Health
from tests.live.test_table import read
from tests.samples import sample


@pytest.mark.parametrize("name", ["stale-leader", "throttled"])
@pytest.mark.parametrize("size", [1, 50])
def test_a_session_finds_what_the_report_finds(name: str, size: int) -> None:
    whole = pa.Table.from_batches(list(kwsniff.events(sample(name).paths)))
    expected = Findings()
    for batch in whole.to_batches():
        expected.take(batch)
    live = LiveFindings()
    for first in range(0, whole.num_rows, size):
        for batch in whole.slice(first, size).to_batches():
            live.add(batch)
    assert live.found() == [each for each in expected.found() if each.severity not in (OK, NOT_SHOWN)]
    assert live.found()


def test_the_interval_s_tables_have_the_findings_beside_them(tmp_path: Path) -> None:
    live = LiveFindings()
    tables = IntervalCsv(tmp_path, 10.0, findings=live)
    for batch in kwsniff.events(sample("throttled").paths):
        live.add(batch)
        tables.add(batch)
    tables.tick(Health((), 0, 20_000_000_000))
    rows = read(tmp_path / "findings.csv")
    assert "throttled" in [row["code"] for row in rows if row["severity"] == "warning"]
    assert {row["severity"] for row in rows} >= {OK, NOT_SHOWN}
