"""Events and answers as text, JSON Lines, CSV and Parquet, and events that were stored."""

from __future__ import annotations

import csv
import io
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from kwsniff.analysis.stored import CsvWriter, as_events, is_stored, stored_events
from kwsniff.analysis.tabular import BYTES, COUNT, DURATION, LIST, TEXT, TIME, AnswerField, AnswerTable
from kwsniff.capture.error import CaptureError
from kwsniff.cli.answering import Look, write_csv, write_json, write_text
from kwsniff.output.lines import TextWriter
from kwsniff.output.text import cut
from kwsniff.output.units import short_duration
from kwsniff.output.writers import JsonlWriter, ParquetWriter, json_texts
from kwsniff.rows.schema import EVENTS
from tests.cli.conftest import anomaly, call, connection
from tests.cli.stand_in import batch_of

# Formats

NASTY = 'a"b\\c\n\x1b[2J\x9b1m\u202eé\U0001f600'


def written(writer: type, batch: pa.RecordBatch, *arguments: Any, **options: Any) -> bytes:
    stream = io.BytesIO()
    form = writer(stream, *arguments, **options)
    form.write(batch)
    form.close()
    return stream.getvalue()


def test_jsonl_holds_every_value_and_leaves_nulls_out() -> None:
    partitions = [
        {"topic": "t", "topic_id": None, "partition": 0, "records": 3},
        {"topic": None, "partition": 1},
    ]
    row = call(topics=["t", None], topic_ids=[], partitions=partitions, client_id=NASTY, throttle_ms=None)
    (line,) = written(JsonlWriter, batch_of([row])).splitlines()
    decoded = json.loads(line)
    assert decoded["client_id"] == NASTY
    assert decoded["topics"] == ["t", None]
    assert decoded["topic_ids"] == []
    assert decoded["partitions"] == [{"topic": "t", "partition": 0, "records": 3}, {"partition": 1}]
    assert decoded["latency_us"] == 1500.25
    assert decoded["request_time"] == "2026-01-31T12:00:00.000001Z"
    assert "throttle_ms" not in decoded
    assert list(decoded) == [name for name in EVENTS.names if name in decoded]
    assert b"\x1b" not in line
    assert b"\x9b" not in line.replace(NASTY[-1].encode(), b"")


def test_jsonl_splices_bodies_in_as_objects() -> None:
    row = call(request='{"topics":[{"name":"t"}]}', response='{"x":null}')
    (line,) = written(JsonlWriter, batch_of([row])).splitlines()
    assert json.loads(line)["request"] == {"topics": [{"name": "t"}]}
    assert json.loads(line)["response"] == {"x": None}


def test_jsonl_of_chosen_columns_has_an_object_even_where_all_are_null() -> None:
    out = written(JsonlWriter, batch_of([call(), anomaly("gap")]), ["api", "syn"])
    assert out == b'{"api":"Metadata"}\n{}\n'


VALUES = st.one_of(st.none(), st.text(st.characters(exclude_categories=["Cs"])))


@given(st.lists(st.one_of(st.none(), st.lists(VALUES, max_size=3)), max_size=5), st.integers(0, 5))
def test_json_texts_say_what_pythons_json_reads_back(lists: list[Any], start: int) -> None:
    texts = json_texts(pa.array(lists, pa.list_(pa.string())).slice(start))
    assert [None if text is None else json.loads(text) for text in texts.to_pylist()] == lists[start:]


@given(st.lists(st.one_of(st.none(), st.floats()), max_size=5))
def test_json_has_no_number_that_is_none(values: list[float | None]) -> None:
    for value, text in zip(values, json_texts(pa.array(values, pa.float64())).to_pylist(), strict=True):
        if value is None:
            assert text is None
        elif value - value == 0:
            assert json.loads(text) == value
        else:
            assert text == "null"


def test_csv_has_a_header_text_for_lists_and_no_formulas() -> None:
    partitions = [{"topic": "t", "partition": 0}, {"topic": "u", "partition": 1}]
    row = call(topics=["t", "u"], partitions=partitions, client_id='=HYPERLINK("x")')
    rows = list(csv.DictReader(io.StringIO(written(CsvWriter, batch_of([row, anomaly("gap")])).decode())))
    assert list(rows[0]) == EVENTS.names
    assert rows[0]["topics"] == "t;u"
    assert rows[0]["partitions"] == "t-0;u-1"
    assert rows[0]["client_id"] == '\'=HYPERLINK("x")'
    assert rows[0]["request_time"] == "2026-01-31T12:00:00.000001Z"
    assert rows[1]["code"] == "gap"
    assert rows[1]["api"] == ""


@pytest.mark.parametrize(
    ("column", "value", "cell"),
    [
        ("client_id", "", b'""'),
        ("client_id", None, b""),
        ("client_id", 'a "b", c', b'"a ""b"", c"'),
        ("client_id", "a;  @b", b'"a;\'  @b"'),
        ("client_id", "\u202eé", '"\\u202eé"'.encode()),
        ("correlation_id", -(2**31), b"-2147483648"),
        ("fin", True, b"true"),
        ("latency_us", 9999999999.999, b"9999999999.999"),
        ("latency_us", 1500.0, b"1500"),
        ("latency_us", 0.001, b"0.001"),
        ("request_time", datetime(9999, 12, 31, 23, 59, 59, 5, tzinfo=UTC), b'"9999-12-31T23:59:59.000005Z"'),
        ("topics", [], b'""'),
        ("topics", None, b""),
        ("topics", ["a", "=x"], b'"a;\'=x"'),
        ("partitions", [{"topic": "a;b", "partition": -1}, {"topic_id": "88fa"}], b'"a;b--1;88fa-"'),
        ("advertised", [{"host": "kafka-1", "port": 9092}, {"port": 1}], b'"kafka-1:9092;:1"'),
        ("resources", [{"type": "topic", "name": "orders"}, {}], b'"topic orders; "'),
        ("request", '{"a": "=b\x9b"}', b'"{""a"": ""=b\\u009b""}"'),
    ],
)
def test_a_cell_of_csv_quotes_texts_and_leaves_out_what_is_not_known(
    column: str, value: Any, cell: bytes
) -> None:
    arrays = [pa.array([value if field.name == column else None, None], field.type) for field in EVENTS]
    batch = pa.RecordBatch.from_arrays(arrays, schema=EVENTS).slice(0, 1)
    names = ["error", column, "packet"]
    header = ",".join(f'"{name}"' for name in names).encode()
    assert written(CsvWriter, batch, names) == header + b"\n," + cell + b",\n"


def test_csv_of_no_rows_is_its_header() -> None:
    assert written(CsvWriter, batch_of([]), ["api", "topics"]) == b'"api","topics"\n'


def test_parquet_holds_the_events_exactly() -> None:
    batch = batch_of([call(topics=["t"]), anomaly("gap"), connection()])
    table = pq.read_table(io.BytesIO(written(ParquetWriter, batch)))
    assert table.schema.equals(EVENTS, check_metadata=False)
    assert table.schema.field("api").metadata[b"doc"]
    assert table.to_pylist() == batch.to_pylist()


def test_parquet_bytes_do_not_depend_on_how_rows_came_in_batches() -> None:
    rows = [call(correlation_id=number) for number in range(50)]
    whole, parts = io.BytesIO(), io.BytesIO()
    for stream, size in ((whole, 50), (parts, 7)):
        writer = ParquetWriter(stream)
        for start in range(0, 50, size):
            writer.write(batch_of(rows[start : start + size]))
        writer.close()
    assert whole.getvalue() == parts.getvalue()


@pytest.mark.parametrize("columns", [EVENTS.names, ["partitions"], ["latency_us"]])
def test_parquet_has_dictionaries_for_texts_and_statistics_for_what_readers_skip_by(
    columns: list[str],
) -> None:
    partitions = [{"topic": "t", "partition": 0}]
    batch = batch_of([call(topics=["t"], partitions=partitions)] * 2)
    group = pq.ParquetFile(io.BytesIO(written(ParquetWriter, batch, columns))).metadata.row_group(0)
    for each in (group.column(at) for at in range(group.num_columns)):
        is_text = each.physical_type == "BYTE_ARRAY"
        assert each.has_dictionary_page == is_text, each.path_in_schema
        assert each.is_stats_set == ("." not in each.path_in_schema), each.path_in_schema


def test_parquet_of_no_rows_has_the_schema() -> None:
    stream = io.BytesIO()
    ParquetWriter(stream, ["api"]).close()
    assert pq.read_table(stream).schema.names == ["api"]


def test_a_line_of_text_says_who_asked_what_and_how_it_went() -> None:
    partitions = [{"topic": "orders", "partition": 0}, {"topic": "orders", "partition": 2}]
    row = call(topics=["orders"], partitions=partitions, record_count=12, record_bytes=3072, acks=-1)
    row |= {"status": "error", "error_code": 6, "error": "NOT_LEADER_OR_FOLLOWER", "group_id": "g"}
    (line,) = written(TextWriter, batch_of([row])).decode().splitlines()
    assert line.split() == [
        *("2026-01-31T12:00:00.000001Z", "10.0.0.5:50123", "->", "10.0.0.9:9092", "Metadata", "v12", "#7"),
        *("app-1", "1.5", "ms", "error", "NOT_LEADER_OR_FOLLOWER", "orders[0,2]", "12", "records"),
        *("3.0", "KiB", "group=g", "acks=-1"),
    ]


def test_text_never_lets_the_wire_move_the_cursor_or_forge_a_line() -> None:
    row = call(client_id=NASTY, topics=[NASTY], group_id=NASTY, transactional_id=NASTY)
    row |= {"api_key": 18, "software_name": NASTY}
    rows = [row, anomaly("gap", detail=NASTY), connection(user=NASTY, sasl_mechanism=NASTY)]
    text = written(TextWriter, batch_of(rows)).decode()
    assert text.count("\n") == 3
    assert all(character.isprintable() for character in text.replace("\n", ""))


def test_text_on_a_terminal_is_no_wider_than_it_and_coloured() -> None:
    row = call(topics=["a-topic-with-a-long-name" * 10], time="2026-01-31T12:00:00.000001+00:00")
    for width in (60, 80, 120, 200):
        day, line = written(TextWriter, batch_of([row]), width=width).decode().splitlines()
        assert day == "-- 2026-01-31 UTC"
        assert len(line) == width
        assert line.startswith("12:00:00.000001  ")
        assert line.endswith("…")
    assert "\x1b[32mok" in written(TextWriter, batch_of([row]), width=120, colour=True).decode()


def test_text_shows_bodies_below_their_call() -> None:
    lines = written(TextWriter, batch_of([call(request='{"a":[1]}')])).decode().splitlines()
    assert [line.strip() for line in lines[1:]] == ["request {", '"a": [', "1", "]", "}"]


@pytest.mark.parametrize("writer", [JsonlWriter, CsvWriter, ParquetWriter, TextWriter])
def test_every_format_takes_slices_and_empty_batches(writer: type) -> None:
    rows = [call(correlation_id=number, topics=[f"t{number}"]) for number in range(6)]
    sliced = written(writer, batch_of(rows).slice(2, 2))
    assert sliced == written(writer, batch_of(rows[2:4]))
    assert written(writer, batch_of(rows).slice(6)) in (b"", written(writer, batch_of([])))


# Tables

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
