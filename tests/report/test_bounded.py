"""Percentiles when there are more calls than are kept one by one."""

import pandas as pd
import pandas.testing
import pytest

from kwsniff.analysis.report import Report
from kwsniff.analysis.statistics import TABLES
from kwsniff.count import store, topicstore
from kwsniff.count.keyed import Columns, Keyed
from kwsniff.rows.columns import Ints

from .events import batches
from .samples import mixture

ROWS = mixture(3000)
EXACT = Report.from_events(batches(ROWS, 50))


def assert_same(name: str, made: Report, columns: list[str]) -> None:
    pandas.testing.assert_frame_equal(made.tables[name][columns], EXACT.tables[name][columns])


@pytest.mark.parametrize("samples", [0, 1, 300, 10_000])
def test_a_report_is_exact_as_long_as_all_values_are_kept(samples: int) -> None:
    made = Report.from_events(batches(ROWS, 50), samples=samples)
    for name in TABLES:
        assert_same(name, made, list(EXACT.tables[name]))
    assert (made.percentile_error, made.note) == (0.0, "")
    assert made.to_json() == EXACT.to_json()


@pytest.mark.parametrize("samples", [0, 300])
def test_beyond_that_only_percentiles_differ_and_no_more_than_said(
    samples: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "LIMIT", 500)
    made = Report.from_events(batches(ROWS, 50), samples=samples)
    assert made.percentile_error > 0
    for name in TABLES:
        rough = [column for column in made.tables[name] if "_p" in column and column.endswith("_us")]
        assert_same(name, made, [column for column in made.tables[name] if column not in rough])
        for column in rough:
            mine, true = (report.tables[name][column].astype(float) for report in (made, EXACT))
            off = (mine - true).abs() / true.where(true != 0, 1.0)
            assert (off.dropna() <= made.percentile_error * 1.000001).all(), (name, column)
            assert (pd.isna(mine) == pd.isna(true)).all()


def test_a_report_says_that_its_percentiles_are_approximate(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(store, "LIMIT", 500)
    made = Report.from_events(batches(ROWS, 50), samples=0)
    made.print()
    assert capsys.readouterr().out.splitlines()[-1].startswith("Percentiles are approximate, within ")
    assert '"percentile_error": ' in made.to_json()


def test_pairs_of_call_and_topic_are_counted_so_many_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    add = Keyed.add

    def watched(table: Keyed, rows: Ints, values: Columns) -> None:
        if len(next(iter(table.rows))) == len(topicstore.KEYS):
            sizes.append(len(rows))
        add(table, rows, values)

    monkeypatch.setattr(Keyed, "add", watched)
    monkeypatch.setattr(topicstore, "MAX_PAIRS", 7)
    made = Report.from_events(batches(ROWS, 50))
    assert max(sizes) == 7
    for name in TABLES:
        assert_same(name, made, list(EXACT.tables[name]))
