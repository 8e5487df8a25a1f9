from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.cells import cell_len

from kwsniff.analysis.stored import as_events, is_stored, stored_events
from kwsniff.analysis.tabular import BYTES, COUNT, DURATION, LIST, TEXT, TIME, AnswerField, AnswerTable
from kwsniff.capture.error import CaptureError
from kwsniff.cli.printing import Look, write_csv, write_json, write_text
from kwsniff.output.text import cut
from kwsniff.output.units import short_duration
from kwsniff.rows.schema import EVENTS
from tests.cli.conftest import call
from tests.cli.stand_in import batch_of

NOON = datetime(2026, 1, 31, 12, 0, 0, 250_000, UTC)
FIELDS = (
    AnswerField("name", TEXT, "name", "who"),
    AnswerField("topics", LIST, "topics", "what", 2),
    AnswerField("calls", COUNT, "calls", "how often"),
    AnswerField("took_us", DURATION, "took", "how long", 1),
    AnswerField("size", BYTES, "size", "how much", 3),
    AnswerField("time", TIME, "time", "when", 4),
)
ROWS = [
    {
        "name": "注文サービス",
        "topics": ["注文", "b"],
        "calls": 1234,
        "took_us": 1500.0,
        "size": 10,
        "time": NOON,
    },
    {"name": "web", "topics": ["a", "b", "c", "d", "e"], "calls": 2, "took_us": 2.5e6, "size": 5000},
    {"name": "=cmd|'x'", "calls": 3},
]


def text(width: int | None = 100, **look: object) -> list[str]:
    out = io.StringIO()
    write_text(out, [AnswerTable("t", "Things", FIELDS, ROWS)], Look(width, **look))  # type: ignore[arg-type]
    return out.getvalue().splitlines()


def test_wide_characters_line_up() -> None:
    _, head, first, second, _ = text()
    for heading in ("calls", "took", "time"):
        ends = cell_len(head[: head.index(heading) + len(heading)])
        assert ends <= cell_len(first)
    column = head.index("topics")
    assert cell_len(first[: first.index("注文, b")]) == column == second.index("a, b, c +2")


def test_times_sizes_and_durations_are_for_people() -> None:
    title, _, first, second, _ = text()
    assert title == "Things (2026-01-31, UTC)"
    assert "1,234" in first
    assert "1.5 ms" in first
    assert "12:00:00.250" in first
    assert "2.5 s" in second
    assert "5 kB" in second
    assert text(zone=ZoneInfo("Asia/Tokyo"))[0] == "Things (2026-01-31, Asia/Tokyo)"
    assert short_duration(0.5) == "0.5 µs"


def test_where_room_is_short_less_important_columns_are_left_out() -> None:
    assert "time" not in text(55)[1]
    assert text(30)[1].split() == ["name", "calls"] or text(30)[1].split() == ["name", "calls", "took"]
    assert all(cell_len(line) <= 30 for line in text(30)[1:])
    assert "time" in text(None)[1]


def test_a_cut_text_ends_with_an_ellipsis_and_fits() -> None:
    assert cut("注文サービス", 6) == "注文…"
    assert cut("orders", 6) == "orders"


def test_rows_beyond_the_top_are_counted() -> None:
    assert text(top=1)[-1] == "+2 more: --top 0"
    assert not text(top=0)[-1].startswith("+")


def test_colour_is_only_where_it_is_wanted() -> None:
    assert not any("\x1b" in line for line in text())
    assert text(colour=True)[0].startswith("\x1b[1m")


def test_csv_holds_every_column_and_no_formula() -> None:
    out = io.BytesIO()
    write_csv(out, AnswerTable("t", "Things", FIELDS, ROWS), None)
    lines = out.getvalue().decode().splitlines()
    assert lines[0] == '"name","topics","calls","took_us","size","time"'
    assert lines[1] == '"注文サービス","注文;b",1234,1500,10,"2026-01-31T12:00:00.250000Z"'
    assert lines[3].startswith("\"'=cmd")


def test_json_shows_nothing_that_a_terminal_obeys() -> None:
    out = io.StringIO()
    write_json(out, [AnswerTable("t", "T", FIELDS[:1], [{"name": "a\x1b[31m\u202eb"}])], ["note"], None)
    assert out.getvalue().replace("\n", "").isprintable()
    assert json.loads(out.getvalue()) == {"t": [{"name": "a\x1b[31m\u202eb"}], "notes": ["note"]}


def test_numbers_are_sorted_from_the_greatest_and_texts_from_the_least() -> None:
    table = AnswerTable("t", "T", FIELDS, ROWS)
    table.sorted_by("calls")
    assert [row["calls"] for row in table.rows] == [1234, 3, 2]
    table.sorted_by("name")
    assert [row["name"] for row in table.rows] == ["=cmd|'x'", "web", "注文サービス"]
    table.sorted_by("took_us", turned=True)
    assert [row.get("took_us") for row in table.rows] == [1500.0, 2.5e6, None]


# Stored events


def test_a_folder_of_the_pipeline_is_read_in_the_order_of_hours(tmp_path: Path) -> None:

    for hour in (10, 7, 9):
        folder = tmp_path / "events" / "date=2026-01-31" / f"hour={hour}"
        folder.mkdir(parents=True)
        batch = batch_of([call(correlation_id=hour)])
        pq.write_table(pa.Table.from_batches([batch]), folder / "a.parquet")
    assert is_stored(str(tmp_path))
    rows = [row for batch in stored_events(str(tmp_path)) for row in batch.to_pylist()]
    assert [row["correlation_id"] for row in rows] == [7, 9, 10]


def test_events_of_an_older_version_lack_columns_and_fields_of_structs() -> None:

    old = pa.struct([("topic", pa.string()), ("partition", pa.int32())])
    batch = pa.RecordBatch.from_arrays(
        [pa.array(["call", "call"]), pa.array([[{"topic": "a", "partition": 1}], None], pa.list_(old))],
        names=["event", "partitions"],
    )
    rows = as_events(batch).to_pylist()
    assert as_events(batch).schema.equals(EVENTS)
    assert rows[0]["partitions"][0]["topic"] == "a"
    assert rows[0]["partitions"][0]["high_watermark"] is None
    assert rows[1]["partitions"] is None


def test_a_parquet_file_that_holds_no_events_is_an_error(tmp_path: Path) -> None:

    pq.write_table(pa.table({"x": [1]}), tmp_path / "x.parquet")
    with pytest.raises(CaptureError, match=r"x\.parquet: holds no events of kwsniff"):
        list(stored_events(str(tmp_path / "x.parquet")))
