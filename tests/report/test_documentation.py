from __future__ import annotations

from pathlib import Path

import pytest

from kwsniff.analysis.statistics import FIGURES, TABLES
from kwsniff.analysis.stored import CALLS, LISTS
from kwsniff.rows.schema import COLUMNS

DOCUMENT = Path(__file__).parents[2] / "docs" / "report.md"


def columns_of(heading: str) -> list[tuple[str, ...]]:
    """The rows of the table below a heading of docs/report.md."""
    section = DOCUMENT.read_text(encoding="utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| `")]
    return [tuple(cell.strip() for cell in row) for row in rows]


@pytest.mark.parametrize("name", TABLES)
def test_every_column_of_a_table_is_documented_in_order(name: str) -> None:
    own = [column for column in TABLES[name] if column not in FIGURES]
    expected = [(f"`{column.name}`", str(column.type), column.meaning) for column in own]
    assert columns_of(f"{name}.csv") == expected


def test_every_figure_is_documented_in_order() -> None:
    expected = [(f"`{column.name}`", str(column.type), column.meaning) for column in FIGURES]
    assert columns_of("Figures") == expected


def test_every_column_of_calls_csv_is_documented_in_order() -> None:
    meanings = {column.name: column.meaning for column in COLUMNS}
    rows = columns_of("calls.csv")
    assert [row[:2] for row in rows] == [(f"`{f.name}`", str(f.type)) for f in CALLS]
    scalars = [row for row in rows if row[0].strip("`") not in LISTS]
    assert [row[2] for row in scalars] == [meanings[row[0].strip("`")] for row in scalars]
