from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from kwsniff.analysis.report import Report
from kwsniff.analysis.statistics import TABLES
from kwsniff.analysis.stored import CALLS
from kwsniff.output.writers import replacing, write_table

from .events import batches, call, event
from .samples import mixture, topics_of

KINDS = {
    pa.int64(): "Int64",
    pa.int32(): "Int32",
    pa.float64(): "Float64",
    pa.string(): "string",
    pa.bool_(): "boolean",
}


def read(path: Path, schema: dict[str, pa.DataType]) -> pd.DataFrame:
    """A file as anybody reads it with pandas, given what the documentation says of its columns."""
    times = [name for name, kind in schema.items() if pa.types.is_timestamp(kind)]
    dtypes = {name: KINDS[kind] for name, kind in schema.items() if name not in times}
    return pd.read_csv(path, dtype=dtypes, parse_dates=times)


def test_every_table_reads_back_as_it_was(tmp_path: Path) -> None:
    report = Report.from_events(batches(mixture(300), 50), errors={3: ("UNKNOWN_TOPIC_OR_PARTITION", True)})
    assert sorted(path.name for path in report.write_csv(tmp_path / "new")) == sorted(
        f"{n}.csv" for n in TABLES
    )
    for name, columns in TABLES.items():
        found = read(tmp_path / "new" / f"{name}.csv", {column.name: column.type for column in columns})
        expected = report.tables[name]
        assert list(found) == list(expected)
        for column in columns:
            left, right = found[column.name].tolist(), expected[column.name].tolist()
            if column.type == pa.string():
                right = [guarded(text) if isinstance(text, str) else text for text in right]
            assert [same(value) for value in left] == [same(value) for value in right], column.name


def guarded(text: str) -> str:
    """As a spreadsheet gets it: an apostrophe before each element that would be a formula."""
    return ";".join(f"'{part}" if part[:1] in set("=+-@") else part for part in text.split(";"))


def same(value: Any) -> Any:
    if value is None or value is pd.NaT or pd.isna(value):
        return None
    return pytest.approx(value) if isinstance(value, float) else value


def test_tables_have_useful_types_without_being_told(tmp_path: Path) -> None:
    Report.from_events(batches(mixture(300), 50)).write_csv(tmp_path)
    frame = pd.read_csv(tmp_path / "api.csv", parse_dates=["first_time", "last_time"])
    assert frame["calls"].dtype == "int64"
    assert frame["latency_p99_us"].dtype == "float64"
    assert str(frame["first_time"].dtype).endswith("UTC]")
    assert frame["calls"].sum() == 300


def test_calls_csv_has_a_row_for_each_call_and_its_values(tmp_path: Path) -> None:
    rows = mixture(200)
    events = [*rows, event(event="anomaly", code="gap"), event(event="connection")]
    Report.from_events(batches(events, 30), keep_calls=True).write_csv(tmp_path)
    found = read(tmp_path / "calls.csv", {field.name: field.type for field in CALLS})
    assert list(found) == CALLS.names
    assert len(found) == len(rows)
    scalars = [
        "correlation_id",
        "api",
        "client_ip",
        "latency_us",
        "duration_us",
        "request_bytes",
        "error_code",
    ]
    for name in [*scalars, "status", "client_id", "max_wait_ms", "in_flight", "unanswered_because"]:
        assert [same(value) for value in found[name]] == [same(row[name]) for row in rows], name
    expected = [pd.Timestamp(row["request_time"], unit="us", tz="UTC") for row in rows]
    assert found["request_time"].tolist() == expected
    topics = [guarded(";".join(topics_of(row))) for row in rows]
    assert [value or "" for value in found["topics"].fillna("")] == topics


def test_lists_are_text_and_a_uuid_stands_for_a_name_that_is_not_known(tmp_path: Path) -> None:
    parts = [{"topic": "a", "partition": 0}, {"topic_id": "u2", "partition": 7}]
    row = call(topics=["a", None], topic_ids=["u1", "u2"], partitions=parts)
    Report.from_events(batches([row, call()], 1), keep_calls=True).write_csv(tmp_path)
    found = pd.read_csv(tmp_path / "calls.csv", keep_default_na=False)
    assert found["topics"].tolist() == ["a;u2", ""]
    assert found["topic_ids"].tolist() == ["u1;u2", ""]
    assert found["partitions"].tolist() == ["a-0;u2-7", ""]


def test_times_are_iso_8601_in_utc_with_microseconds(tmp_path: Path) -> None:
    Report.from_events(batches([call(at=7)], 1), keep_calls=True).write_csv(tmp_path)
    assert '"2023-11-14T22:13:20.000007Z"' in (tmp_path / "calls.csv").read_text()


HOSTILE = ["=1+1", "+1", "-1", "@SUM(A1)", "\uff1d1+1", "\ufe63 1", "\u22121"]
PLAIN = ["a=1", "ü", 'quote " and, comma', "'quoted'", "地震"]
ESCAPED = {
    "nul\x00byte": r"nul\x00byte", "two\nlines": r"two\x0alines", "\t=1": r"\x09=1", "\r=1": r"\x0d=1",
    "\ufeff=1": r"\ufeff=1", " =1": "' =1", "\x1b[2J": r"\x1b[2J", "a;=1": "a;'=1",
    "\U000e0041": r"\U000e0041",
}  # fmt: skip


@pytest.mark.parametrize("text", [*HOSTILE, *PLAIN, *ESCAPED])
def test_no_text_from_the_wire_is_a_formula_or_breaks_the_file(tmp_path: Path, text: str) -> None:
    row = call(client_id=text, topics=[text])
    Report.from_events(batches([row], 1), keep_calls=True).write_csv(tmp_path)
    expected = f"'{text}" if text in HOSTILE else ESCAPED.get(text, text)
    for name, column in (
        ("client", "client_id"),
        ("topic", "topic"),
        ("calls", "client_id"),
        ("calls", "topics"),
    ):
        with (tmp_path / f"{name}.csv").open(newline="") as file:
            assert pd.read_csv(file, keep_default_na=False)[column].tolist() == [expected]


def test_a_failed_write_leaves_the_old_file_and_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "api.csv"
    path.write_text("old")

    def fail() -> None:
        with replacing(path) as file:
            file.write(b"half")
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        fail()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
    write_table(path, Report.from_events([]).arrow["api"])
    assert path.read_text().startswith('"api","api_key"')
